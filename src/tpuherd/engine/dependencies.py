"""What an engine is made of, and how it can end."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from pathlib import Path
from typing import Any, Protocol

from tpuherd.clock import Clock
from tpuherd.engine.desired import Desire
from tpuherd.ports import CloudPort, HostsPort, Store
from tpuherd.store.log_store import Shelf
from tpuherd.store.trouble_files import Troubles
from tpuherd.sweeps.scheduler import OURS, Advice

Note = Callable[[str, Mapping[str, Any]], None]


class Ended(StrEnum):
    """Why an engine has ended by itself."""

    REST = "rest"  #: nothing is wished that is not there
    STOPPED = "stopped"  #: it was told to
    OUTDATED = "outdated"  #: another engine leads
    GONE = "gone"  #: the world that it worked for is there no more
    MOVED = "moved"  #: it is at another address now
    DAMAGED = "damaged"  #: the store is: who opens it next sets it aside


class Secrets(Protocol):
    """Where the values of secrets are."""

    def get(self, job: str) -> Mapping[str, str]: ...


def silent(name: str, facts: Mapping[str, Any]) -> None:
    """A log that nobody reads."""


def at_home() -> bool:
    """A cloud that is always at one address."""
    return False


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    """All that it gets from outside."""

    store: Store
    secrets: Secrets
    cloud: CloudPort
    hosts: HostsPort
    shelf: Shelf
    troubles: Troubles
    clock: Clock
    desire: Desire
    owner: str
    outputs: Path
    who: str = "the engine"
    process: Mapping[str, Any] = field(default_factory=dict)  #: our `pid`, and on which `host`
    look_s: float = 5.0  #: at least so often the cloud is looked at while we hold nodes
    rest_s: float = 600.0  #: at rest for so long, then it ends
    gone_s: float = inf  #: nobody listens at the cloud for so long, then it ends
    astray: Callable[[], bool] = at_home  #: the cloud is said to be at another address now
    note: Note = silent  #: its own log: a constant name and facts
    advice: Advice = OURS  #: on the trials of sweeps
