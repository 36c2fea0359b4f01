"""A problem that affects all jobs: with the cloud, the store, the engine, the login or messages."""

from dataclasses import dataclass

#: Sources of trouble, and their names for people.
CLOUD, STORE, ENGINE, LOGIN, NOTIFY = "cloud", "store", "engine", "login", "notify"
BACKUP = "backup"


@dataclass(frozen=True, kw_only=True, slots=True)
class TroubleRecord:
    """The latest problem of one source; a successful call ends it."""

    source: str
    sentence: str
    hint: str = ""
    since: float  #: when the first in a row occurred
    at: float  #: when the latest occurred
    times: int = 1
