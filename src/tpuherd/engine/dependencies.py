"""What an engine is made of, and the reasons it can end."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from pathlib import Path
from typing import Any, Protocol

from tpuherd.clock import Clock
from tpuherd.engine.desired import JobExpander
from tpuherd.engine.host_samples import NoKeeper, SampleKeeper
from tpuherd.model.slot_history import History
from tpuherd.model.stored_job import StoredJob
from tpuherd.ports import CloudPort, HostsPort, Store
from tpuherd.store.log_store import LogStore
from tpuherd.store.trouble_files import TroubleStore
from tpuherd.sweeps.scheduler import OURS, SweepAdvisor

LogFunction = Callable[[str, Mapping[str, Any]], None]


class EndReason(StrEnum):
    """Why an engine has ended by itself."""

    REST = "rest"  #: nothing is left to do
    STOPPED = "stopped"  #: it was asked to stop
    OUTDATED = "outdated"  #: another engine leads
    UNSURE = "unsure"  #: whether its last write was recorded can't be known: it starts anew
    GONE = "gone"  #: its simulated world no longer runs
    MOVED = "moved"  #: its simulated world is at another address now
    DAMAGED = "damaged"  #: its store is damaged; the next process that opens it sets it aside


class SecretSource(Protocol):
    def get(self, job: str) -> Mapping[str, str]: ...


def ignore_log(name: str, facts: Mapping[str, Any]) -> None:
    """A log that discards its entries."""


def never_moved() -> bool:
    """The default of `cloud_has_moved`: a cloud whose address never changes."""
    return False


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineView:
    """What runs beside the loop sees of the engine, and may tell it."""

    stored_jobs: Callable[[], Mapping[str, StoredJob]]
    slot_history: Callable[[], History]
    record_event: Callable[[str, Mapping[str, Any]], None]  #: `job` among its facts says whose
    note_trouble: Callable[[str, str, str], None]
    end_trouble: Callable[[str], None]
    stir: Callable[[], None]  #: look again: the loop may rest now


class NotifierPort(Protocol):
    """Tells people what happens, beside the loop."""

    def begin(self) -> None:
        """Remember where the log ends now; raises HerdError if it can't be read."""
        ...

    def wake(self, last: int) -> None:
        """The log has grown to the event of this number."""
        ...

    def is_idle(self) -> bool:
        """Whether nothing waits to be sent."""
        ...

    async def run(self, engine: EngineView) -> None:
        """Tell people until cancelled."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineDeps:
    """What the engine receives from outside."""

    store: Store
    secrets: SecretSource
    cloud: CloudPort
    hosts: HostsPort
    shelf: LogStore
    troubles: TroubleStore
    clock: Clock
    lease_clock: Clock  #: this machine's, by which others see whether the lease is over
    desire: JobExpander
    owner: str
    outputs: Path
    who: str = "the engine"
    account: str = ""  #: ours, if engines of others may lead, and have other files
    process: Mapping[str, Any] = field(default_factory=dict)  #: what `engine.started` says of us
    look_s: float = 5.0  #: survey period while we hold nodes
    rest_s: float = 600.0  #: it ends after resting this long
    gone_s: float = inf  #: it ends when its simulated world is absent this long
    cloud_has_moved: Callable[[], bool] = (
        never_moved  #: whether the cloud is at another address now
    )
    note: LogFunction = ignore_log  #: its own log: a constant name and facts
    samples: SampleKeeper = field(default_factory=NoKeeper)  #: what hosts do, for charts
    advice: SweepAdvisor = OURS  #: on the trials of sweeps
    notifier: NotifierPort | None = None
    alone: bool = False
    #: No other process has its store, hosts or code: nothing is polled, renewed, probed or saved.
