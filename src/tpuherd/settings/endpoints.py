"""The addresses of a cloud's services, and where to get a token for them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SCOPE = "https://www.googleapis.com/auth/cloud-platform"
IAP_URL = "wss://tunnel.cloudproxy.app/v4"
LOG_IN = "log in: gcloud auth application-default login"
HINT = (
    "log in with `gcloud auth application-default login`, "
    "or try herd without Google: herd sim start"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ServiceUrls:
    tpu: str
    compute: str
    storage: str = "https://storage.googleapis.com"
    iam: str = "https://iam.googleapis.com"
    usage: str = "https://serviceusage.googleapis.com"
    projects: str = "https://cloudresourcemanager.googleapis.com"
    os_login: str = "https://oslogin.googleapis.com"

    @classmethod
    def of_world(cls, url: str) -> "ServiceUrls":
        """A world serves all of them at one address."""
        return cls(
            tpu=url, compute=url, storage=url, iam=url, usage=url, projects=url, os_login=url
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class CredentialSource:
    """Where to get a token: the first source that exists, without falling back to others."""

    file: Path | None = None  #: application default credentials
    metadata_url: str | None = None  #: of the machine we run on, if it is Google's
    gcloud: str | None = None  #: the program
    settings: tuple[tuple[str, str], ...] = ()  #: variables that gcloud reads
    quota_project: str | None = None  #: from the user's environment


@dataclass(frozen=True, kw_only=True, slots=True)
class AuthToken:
    """Headers to send with requests."""

    headers: Mapping[str, str]
    life_s: float  #: valid for this long
