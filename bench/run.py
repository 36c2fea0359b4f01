"""Runs the benchmarks of bench/page/contents.py, all or some, and writes their results.

    .venv/bin/python bench/run.py [NAME…]    # NAME: exec, exec.64, sync …

One that fails is named, leaves its old result, and keeps no other from being run.
"""

import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from bench.page.contents import SECTIONS, Piece, Section
from bench.page.results import FOLDER

ROOT = Path(__file__).parents[1]
PEERS = ROOT / ".venv-clients" / "fanout" / "bin"


def choose_pieces(names: Sequence[str]) -> Iterator[tuple[Section, Piece]]:
    """Yield what has one of these names: of a benchmark, or of one of its results."""
    for section in SECTIONS:
        for piece in section.pieces:
            if not names or section.name in names or piece.result in names:
                yield section, piece


def command_words(section: Section, piece: Piece) -> list[str]:
    words = [sys.executable, str(ROOT / "bench" / f"{section.name}.py"), *shlex.split(piece.words)]
    if piece.takes_peers and PEERS.exists():
        words += ["--peers", str(PEERS)]
    return [*words, "--json", str(FOLDER / f"{piece.result}.json")]


def main(names: Sequence[str]) -> int:
    known = {one.name for one in SECTIONS} | {p.result for one in SECTIONS for p in one.pieces}
    if strange := sorted(set(names) - known):
        print(f"no benchmark {strange[0]!r}; there are: {', '.join(sorted(known))}",
              file=sys.stderr)  # fmt: skip
        return 2
    if not PEERS.exists():
        print("without clush, parallel-ssh and ansible: make_venv.sh fanout", file=sys.stderr)
    failed = []
    for section, piece in choose_pieces(names):
        print(f"\n{piece.result}: {section.heading}", flush=True)
        if subprocess.run(command_words(section, piece), cwd=ROOT).returncode:
            failed.append(piece.result)
    if failed:
        print(f"failed: {', '.join(failed)}; their old results stay", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
