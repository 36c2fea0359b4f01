"""A problem that affects all jobs: with the cloud, the store, the engine or the login."""

from dataclasses import dataclass

#: Sources of trouble, and how they are called to people.
CLOUD, STORE, ENGINE, LOGIN = "cloud", "store", "engine", "login"


@dataclass(frozen=True, kw_only=True, slots=True)
class TroubleRecord:
    """The last trouble of one source. A good answer ends it."""

    source: str
    sentence: str
    hint: str = ""
    since: float  #: when the first of an unbroken row was met
    at: float  #: when the last was
    times: int = 1
