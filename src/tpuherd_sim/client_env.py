"""Environment variables that make other programs use a world instead of Google Cloud."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tpuherd_sim.hosts.api_address import api_environment
from tpuherd_sim.model.world_parts import default_account_email
from tpuherd_sim.state_dir import WorldInfo

ZONE = "us-central2-b"  #: the default zone of gcloud


@dataclass(frozen=True, kw_only=True, slots=True)
class WorldPaths:
    """Files of a world that other programs need."""

    folder: Path

    @property
    def bin_folder(self) -> Path:
        """The folder to put first on PATH."""
        return self.folder / "bin"

    @property
    def ssh_config(self) -> Path:
        return self.folder / "ssh_config"

    @property
    def known_hosts(self) -> Path:
        return self.folder / "known_hosts"

    @property
    def service_account_file(self) -> Path:
        return self.folder / "sa.json"

    @property
    def gcloud_folder(self) -> Path:
        """gcloud's configuration folder for this world."""
        return self.folder / "gcloud"

    @property
    def ca_file(self) -> Path:
        """The CA certificate of the proxy that stands in for Google."""
        return self.folder / "tls" / "ca.pem"


def user_account(facts: WorldInfo) -> str:
    """Return the account of the world's user, which owns the project."""
    return default_account_email(facts.project_number)


def client_environment(folder: Path, facts: WorldInfo, *, proxy: bool) -> dict[str, str]:
    """Return the variables.

    With `proxy`, also return those that redirect programs with a fixed Google address. They affect
    all other HTTPS traffic, so they are optional.
    """
    places = WorldPaths(folder=folder)
    named = {
        "HERD_WORLD": str(folder),
        "GOOGLE_CLOUD_PROJECT": facts.project,
        "GOOGLE_APPLICATION_CREDENTIALS": str(places.service_account_file),
        **api_environment("127.0.0.1", facts.port),
        "GOOGLE_AUTH_TOKEN_FOR_TESTING": "world",  # else tensorstore asks Google, also with a key
        # As on the hosts, gsutil asks gcloud.
        "BOTO_CONFIG": str(Path(__file__).with_name("hosts") / "rootfs_files/etc/boto.cfg"),
        "CLOUDSDK_AUTH_TOKEN_HOST": f"http://127.0.0.1:{facts.port}/token",
        "CLOUDSDK_CONFIG": str(places.gcloud_folder),
        "CLOUDSDK_CORE_PROJECT": facts.project,
        "CLOUDSDK_COMPUTE_ZONE": ZONE,
        "CLOUDSDK_CORE_ACCOUNT": user_account(facts),
        "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
        "CLOUDSDK_CORE_CHECK_GCE_METADATA": "false",
    }
    if proxy:
        way = f"http://127.0.0.1:{facts.tunnel_port}"
        home = "127.0.0.1,localhost"
        named |= dict.fromkeys(("HTTPS_PROXY", "https_proxy"), way)
        named |= dict.fromkeys(("NO_PROXY", "no_proxy"), home)
        named |= dict.fromkeys(TRUST, str(places.ca_file))
    return named


#: Where the HTTP libraries of Python, curl, OpenSSL, gcloud and gRPC look up trusted certificates.
TRUST = (
    "REQUESTS_CA_BUNDLE",
    "HTTPLIB2_CA_CERTS",
    "SSL_CERT_FILE",
    "CURL_CA_BUNDLE",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
    "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE",
)


def export_script(folder: Path, named: Mapping[str, str]) -> str:
    """Return a script for `eval` in any Bourne shell; running it twice is harmless."""
    programs = shlex.quote(str(WorldPaths(folder=folder).bin_folder))
    lines = [f"export {name}={shlex.quote(value)}" for name, value in named.items()]
    lines.append(f'case ":$PATH:" in *:{programs}:*) ;; *) export PATH={programs}:"$PATH" ;; esac')
    return "\n".join(lines) + "\n"
