"""What `herd` starts: the standard library only, so that quick answers are quick."""

import sys

import tpuherd
from tpuherd.cli.page import page


def main() -> None:
    """Answer at once what needs no library; hand everything else to the command line."""
    arguments = sys.argv[1:]
    if arguments == ["--version"]:
        print(f"herd {tpuherd.__version__}")
    elif arguments in (["--help"], ["-h"]):
        print(page(), end="")
    else:
        from tpuherd.cli.main import run

        sys.exit(run(arguments))


if __name__ == "__main__":
    main()
