"""Writes docs/benchmarks.md and its plots from bench/results: `make bench-page`."""

import sys

from bench.page.document import IMAGES, ROOT, pages
from bench.page.results import BadResult, read_runs


def main() -> int:
    try:
        found = pages(read_runs())
    except BadResult as error:
        print(f"bench/results/{error}; correct or delete this file", file=sys.stderr)
        return 1
    for path in sorted(set(IMAGES.glob("bench-*.svg")) - set(found)):
        path.unlink()
        print(f"removed {path.relative_to(ROOT)}")
    for path, text in found.items():
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            print(f"wrote {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
