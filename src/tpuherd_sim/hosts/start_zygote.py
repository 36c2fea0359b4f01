"""Starts a zygote by `python -I -S start_zygote.py PARENT`; loads only what the zygote needs."""

import importlib
import sys
import types
from pathlib import Path


def main() -> None:
    """Replace the parent packages by empty ones, so that none of their code is loaded."""
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
