"""Hand it a training script and a TPU type: it gets the hardware and keeps the run alive."""

TYPE_CHECKING = False  #: that of typing, which takes milliseconds to load; so does importlib
if TYPE_CHECKING:
    from tpuherd.herd import AsyncHerd, Herd
    from tpuherd.job import Job
    from tpuherd.ports import HerdError

__version__ = "0.1.0"

__all__ = ["AsyncHerd", "Herd", "HerdError", "Job", "__version__"]

PLACES = {
    "AsyncHerd": "tpuherd.herd",
    "Herd": "tpuherd.herd",
    "HerdError": "tpuherd.ports",
    "Job": "tpuherd.job",
}


def __getattr__(name: str) -> object:
    """Load what is asked for when it is: `import tpuherd` costs nothing."""
    if name not in PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(__import__(PLACES[name], fromlist=(name,)), name)
