"""Hand it a training script and a TPU type: it gets the hardware and keeps the run alive."""

TYPE_CHECKING = False  #: that of typing, which takes milliseconds to load; so does importlib
if TYPE_CHECKING:
    from tpuherd.async_herd import AsyncHerd
    from tpuherd.herd import Herd
    from tpuherd.hosts.sync_terms import Shipment
    from tpuherd.job import Job
    from tpuherd.ports import HerdError
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

__version__ = "0.1.0"

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
    "AsyncHerd": "tpuherd.async_herd",
    "Herd": "tpuherd.herd",
    "HerdError": "tpuherd.ports",
    "Job": "tpuherd.job",
    "Shipment": "tpuherd.hosts.sync_terms",
}
RESULTS = "tpuherd.results"  #: where all other public names are


def __getattr__(name: str) -> object:
    """Load what is asked for when it is: `import tpuherd` costs nothing."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(__import__(PLACES.get(name, RESULTS), fromlist=(name,)), name)


def __dir__() -> list[str]:
    """The public names too, so that `help(tpuherd)` shows them."""
    return sorted({*globals(), *__all__})
