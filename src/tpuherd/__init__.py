"""Hand it a training script and a TPU type: it gets the hardware and keeps the run alive."""

from tpuherd._version import __version__

TYPE_CHECKING = False  #: that of typing, which takes milliseconds to load; so does importlib
if TYPE_CHECKING:
    from tpuherd.api import Herd
    from tpuherd.async_api import AsyncHerd
    from tpuherd.errors import HerdError
    from tpuherd.job import Job
    from tpuherd.results import (
        Attempt,
        CommandResult,
        Event,
        JobStatus,
        JobSummary,
        Leftovers,
        LogLine,
        Plan,
        SlotStatus,
        Submission,
        SweepStatus,
        Trial,
        Why,
        ZoneCapacity,
    )
    from tpuherd.sync.shipment import Shipment

__all__ = [
    "AsyncHerd",
    "Attempt",
    "CommandResult",
    "Event",
    "Herd",
    "HerdError",
    "Job",
    "JobStatus",
    "JobSummary",
    "Leftovers",
    "LogLine",
    "Plan",
    "Shipment",
    "SlotStatus",
    "Submission",
    "SweepStatus",
    "Trial",
    "Why",
    "ZoneCapacity",
    "__version__",
]

PLACES = {
    "AsyncHerd": "tpuherd.async_api",
    "Herd": "tpuherd.api",
    "HerdError": "tpuherd.ports",
    "Job": "tpuherd.job",
    "Shipment": "tpuherd.sync.shipment",
}
RESULTS = "tpuherd.results"  #: where all other public names are


def __getattr__(name: str) -> object:
    """Load names on first use: `import tpuherd` costs nothing."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(__import__(PLACES.get(name, RESULTS), fromlist=(name,)), name)


def __dir__() -> list[str]:
    """The public names too, so that `help(tpuherd)` shows them."""
    return sorted({*globals(), *__all__})
