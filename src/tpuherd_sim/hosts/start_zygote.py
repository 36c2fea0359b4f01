"""Starts a zygote (`python -I -S start_zygote.py PARENT`) and loads nothing else of ours."""

import importlib
import sys
import types
from pathlib import Path


def main() -> None:
    """Put stand-ins for the packages above, so that none of their own code is loaded."""
    here = Path(__file__).parent
    for name, folder in (
        ("tpuherd", here.parent.parent / "tpuherd"),
        ("tpuherd_sim", here.parent),
        ("tpuherd_sim.hosts", here),
    ):
        package = types.ModuleType(name)
        package.__path__ = [str(folder)]
        sys.modules[name] = package
    importlib.import_module("tpuherd_sim.hosts.zygote").main()


if __name__ == "__main__":
    main()
