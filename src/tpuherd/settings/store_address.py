"""Parses the URL of a store in PostgreSQL: HERD_STORE, or the `store` of a context.

The password is kept apart and never printed. libpq would print a URL that it cannot parse.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from tpuherd.errors import InvalidInput

SCHEMES = ("postgresql", "postgres")
EXAMPLE = "postgresql://USER@HOST/DATABASE"


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreAddress:
    """A database of PostgreSQL, and how to log in there."""

    url: str  #: without a password
    host: str
    database: str
    password: str = field(default="", repr=False)
    passfile: str = ""  #: libpq's file of passwords

    @property
    def title(self) -> str:
        """Its name for people."""
        return f"PostgreSQL database {self.database or '(that of the user)'} on {self.host}"


def resolve_store_address(
    environ: Mapping[str, str], context: Mapping[str, object]
) -> StoreAddress | None:
    """Resolve where the store is; None: in a file on this machine."""
    if said := environ.get("HERD_STORE", ""):
        return parse_store_url(said, environ, origin="HERD_STORE")
    if said := str(context.get("store") or ""):
        refuse_password(said, origin="the context's store")
        return parse_store_url(said, environ, origin="the context's store")
    return None


def parse_store_url(text: str, environ: Mapping[str, str], *, origin: str) -> StoreAddress:
    """Parse postgresql://user@host:port/database?option=value; no error repeats the text."""
    expected = f"expected {EXAMPLE}"
    try:
        parts = urlsplit(text.strip())
        port = parts.port
        options = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
    except ValueError as error:
        raise InvalidInput(f"{origin} is not a URL of PostgreSQL", hint=expected) from error
    if parts.scheme not in SCHEMES or not text.isprintable() or parts.fragment:
        raise InvalidInput(f"{origin} is not a URL of PostgreSQL", hint=expected)
    if any("password" in name.lower() for name in options):
        raise InvalidInput(
            f"{origin} has a password among its options",
            hint="put it into ~/.pgpass, or before the @ of HERD_STORE",
        )
    login, at, place = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    database = unquote(parts.path.lstrip("/"))
    host = options.get("host") or (parts.hostname or "this machine")
    home = environ.get("HOME") or str(Path.home())
    server = options.get("hostaddr") or options.get("host") or parts.hostname
    verified = "" if "service" in options else require_tls(server, options, environ, home)
    query = "&".join(one for one in (parts.query, verified) if one)
    return StoreAddress(
        url=urlunsplit((SCHEMES[0], f"{user}{at}{place}", parts.path, query, "")),
        host=host if port is None else f"{host}:{port}",
        database=database or options.get("dbname", "") or unquote(user),
        password=unquote(password) or environ.get("PGPASSWORD", ""),
        passfile=environ.get("PGPASSFILE") or str(Path(home) / ".pgpass"),
    )


def require_tls(
    server: str | None, options: Mapping[str, str], environ: Mapping[str, str], home: str
) -> str:
    """The options by which a server elsewhere proves its name, unless the URL says something else.

    Its certificate is checked by libpq's own file of roots if there is one, else by the system's.
    """
    hosts = (server or environ.get("PGHOST") or "/").split(",")
    if all(map(is_this_machine, hosts)) or "sslmode" in options or environ.get("PGSSLMODE"):
        return ""
    own = Path(home) / ".postgresql/root.crt"
    rooted = "sslrootcert" in options or environ.get("PGSSLROOTCERT") or own.exists()
    return urlencode({"sslmode": "verify-full"} | ({} if rooted else {"sslrootcert": "system"}))


def is_this_machine(host: str) -> bool:
    """Whether it is the folder of a socket, or a loopback address."""
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return host.startswith(("/", "@")) or host == "localhost"


def refuse_password(text: str, *, origin: str) -> StoreAddress:
    """Parse a URL that others will see: in a file of settings, or in the list of processes."""
    address = parse_store_url(text, {}, origin=origin)
    if address.password:
        raise InvalidInput(
            f"{origin} has a password, which others could read there",
            hint="put it into ~/.pgpass, and leave it out of the URL",
        )
    return address
