"""Configures pip, uv, git and apt in a host to use this machine's sources through the proxy."""

import configparser
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from tpuherd_sim.hosts.host_protocols import Host

PROXY_ADDRESS = ("169.254.169.254", 3128)
PROXY = "http://{}:{}".format(*PROXY_ADDRESS)
SHARED = (Path("/etc"), Path("/usr"))  #: folders of this machine that hosts see
SCHEMES = ("http", "https")
MARK = "# written by the simulated world at every boot"


@dataclass(frozen=True, kw_only=True, slots=True)
class PackageSources:
    """The package sources of this machine."""

    index_url: str | None = None
    extra_index_urls: tuple[str, ...] = ()
    trusted_hosts: tuple[str, ...] = ()
    ca_bundle: str | None = None
    upstream: str | None = None  #: the upstream proxy of this machine: http://host:port
    direct: tuple[str, ...] = ()  #: domain suffixes that need no proxy

    @property
    def mirrors(self) -> frozenset[tuple[str, int]]:
        """Return host and port of the configured indexes, which hosts may reach even if they are
        private.
        """
        found = set()
        for url in filter(None, (self.index_url, *self.extra_index_urls)):
            parts = urlsplit(url)
            port = parts.port or (443 if parts.scheme == "https" else 80)
            found.add((parts.hostname or "", port))
        return frozenset(found)


def read_package_sources(environ: Mapping[str, str], home: Path) -> PackageSources:
    """Read the sources from this machine's pip configuration and environment."""
    configured: dict[str, str] = {}
    files = [Path("/etc/pip.conf"), home / ".pip/pip.conf", home / ".config/pip/pip.conf"]
    if environ.get("PIP_CONFIG_FILE"):
        files.append(Path(environ["PIP_CONFIG_FILE"]))
    for file in files:
        configured |= read_pip_settings(file)
    for name in ("index-url", "extra-index-url", "trusted-host", "cert"):
        value = environ.get("PIP_" + name.upper().replace("-", "_"))
        if value:
            configured[name] = value
    bundle = (
        configured.get("cert") or environ.get("SSL_CERT_FILE") or environ.get("REQUESTS_CA_BUNDLE")
    )
    indexes = [url for url in configured.get("index-url", "").split() if is_shareable(url)]
    return PackageSources(
        index_url=indexes[0] if indexes else None,
        extra_index_urls=tuple(
            url for url in configured.get("extra-index-url", "").split() if is_shareable(url)
        ),
        trusted_hosts=tuple(configured.get("trusted-host", "").split()),
        ca_bundle=bundle if bundle and is_shared(Path(bundle)) else None,
        upstream=environ.get("https_proxy") or environ.get("HTTPS_PROXY") or None,
        direct=tuple(
            name.strip().removeprefix("*").removeprefix(".")
            for name in (environ.get("no_proxy") or environ.get("NO_PROXY") or "").split(",")
            if name.strip()
        ),
    )


def read_pip_settings(file: Path) -> dict[str, str]:
    """Return the install options in one pip configuration file; empty if it can't be read."""
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(file.read_text())
    except (OSError, configparser.Error, UnicodeDecodeError):
        return {}
    return {
        name: value
        for section in ("global", "install")
        if parser.has_section(section)
        for name, value in parser.items(section)
    }


def is_shareable(url: str) -> bool:
    """Whether hosts may use an index: neither local folders nor URLs with a password."""
    parts = urlsplit(url)
    return parts.scheme in SCHEMES and bool(parts.hostname) and parts.username is None


def is_shared(file: Path) -> bool:
    """Whether a file of this machine is visible in hosts."""
    real = file.resolve()
    return real.is_file() and any(real.is_relative_to(folder) for folder in SHARED)


def pip_conf(packages: PackageSources) -> str:
    """Return pip's configuration. It allows writing to the system Python, as on a TPU VM."""
    lines = [MARK, "[global]", f"proxy = {PROXY}", "disable-pip-version-check = true"]
    if packages.index_url:
        lines.append(f"index-url = {packages.index_url}")
    if packages.extra_index_urls:
        lines.append("extra-index-url = " + "\n    ".join(packages.extra_index_urls))
    if packages.trusted_hosts:
        lines.append("trusted-host = " + "\n    ".join(packages.trusted_hosts))
    if packages.ca_bundle:
        lines.append(f"cert = {packages.ca_bundle}")
    return "\n".join([*lines, "", "[install]", "break-system-packages = true", ""])


def uv_toml(packages: PackageSources) -> str:
    lines = [MARK, f'http-proxy = "{PROXY}"', f'https-proxy = "{PROXY}"']
    if packages.index_url:
        lines.append(f'index-url = "{packages.index_url}"')
    if packages.extra_index_urls:
        urls = ", ".join(f'"{url}"' for url in packages.extra_index_urls)
        lines.append(f"extra-index-url = [{urls}]")
    if packages.ca_bundle:
        lines.append("system-certs = true")  # since uv 0.11; before: native-tls
    return "\n".join([*lines, ""])


def git_config(packages: PackageSources) -> str:
    lines = [MARK, "[http]", f"\tproxy = {PROXY}"]
    if packages.ca_bundle:
        lines.append(f"\tsslCAInfo = {packages.ca_bundle}")
    return "\n".join([*lines, ""])


def apt_conf(packages: PackageSources) -> str:
    """Return apt's configuration. The proxy takes one request per connection, so
    pipelining is off.
    """
    lines = [
        MARK.replace("#", "//"),
        f'Acquire::http::Proxy "{PROXY}";',
        f'Acquire::https::Proxy "{PROXY}";',
        'Acquire::http::Pipeline-Depth "0";',
    ]
    if packages.ca_bundle:
        lines.append(f'Acquire::https::CAInfo "{packages.ca_bundle}";')
    return "\n".join([*lines, ""])


async def write_package_config(host: Host, packages: PackageSources) -> None:
    await host.write("/etc/pip.conf", pip_conf(packages).encode(), 0o644)
    await host.write("/etc/uv/uv.toml", uv_toml(packages).encode(), 0o644)
    await host.write("/etc/gitconfig", git_config(packages).encode(), 0o644)
    await host.write("/etc/apt/apt.conf.d/99world", apt_conf(packages).encode(), 0o644)
