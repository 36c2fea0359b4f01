"""What starts a zygote, `python -I -S launch.py PARENT`: loads nothing of ours but the zygote."""

import importlib
import sys
import types
from pathlib import Path

HERE = Path(__file__).parent

# Stand-ins for the packages above, so that none of their own code is loaded.
for name, folder in (
    ("tpuherd", HERE.parent.parent),
    ("tpuherd.sim", HERE.parent),
    ("tpuherd.sim.hosts", HERE),
):
    package = types.ModuleType(name)
    package.__path__ = [str(folder)]
    sys.modules[name] = package

if __name__ == "__main__":
    importlib.import_module("tpuherd.sim.hosts.zygote").main()
