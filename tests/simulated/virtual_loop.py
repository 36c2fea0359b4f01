"""The laboratory's virtual loop, under the name that tests know."""

from tpuherd_lab.virtual_loop import Deadlock, VirtualLoop, run

__all__ = ["Deadlock", "VirtualLoop", "run"]
