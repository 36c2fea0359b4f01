"""Where a cloud's services are, and where a token for them can be had."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SCOPE = "https://www.googleapis.com/auth/cloud-platform"
LOG_IN = "log in: gcloud auth application-default login"
HINT = (
    "log in by `gcloud auth application-default login`, "
    "or try everything without Google: herd sim start"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ServiceUrls:
    """Where the services are."""

    tpu: str
    compute: str
    storage: str = "https://storage.googleapis.com"


@dataclass(frozen=True, kw_only=True, slots=True)
class CredentialSource:
    """Where a token can be had: the first that is there, and never another in its place."""

    file: Path | None = None  #: application default credentials
    metadata_url: str | None = None  #: of the machine we run on, if it is one of Google's
    gcloud: str | None = None  #: the program
    settings: tuple[tuple[str, str], ...] = ()  #: variables that gcloud heeds
    quota_project: str | None = None  #: that of the user's environment


@dataclass(frozen=True, kw_only=True, slots=True)
class AuthToken:
    """What to put into requests."""

    headers: Mapping[str, str]
    life_s: float  #: it counts so long from now
