"""Resolves which cloud and project to use, and which folders, without asking or connecting.

It reads the environment and the configuration files; only the launcher reads the former, too.

    resolve_access(environ)       # ProjectAccess: frozen; equal if nothing changed
    resolve_scope(environ)        # ProjectScope: also if the project can't be reached
"""

import getpass
import os
import re
import socket
from collections.abc import Mapping
from configparser import ConfigParser
from configparser import Error as ConfigError
from contextlib import suppress
from dataclasses import dataclass, replace
from json import loads
from pathlib import Path
from shutil import which
from typing import Any

from tpuherd.errors import InvalidInput, NoLogin, NotFound, NotReached
from tpuherd.files import make_private_folder
from tpuherd.settings import contexts_file, host_routes, project_settings
from tpuherd.settings.endpoints import HINT, CredentialSource, ServiceUrls
from tpuherd.settings.folders import LocalFolders, logs_folder, resolve_folders
from tpuherd.settings.store_address import StoreAddress, resolve_store_address

GOOGLE = ServiceUrls(tpu="https://tpu.googleapis.com", compute="https://compute.googleapis.com")
SSH_PORT = 22
FALLBACK_LOGIN = "herd"  #: login if the local name is root or not valid on a host
LOGIN = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
OWNER_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
OWNER_LENGTH = 6  #: of new ones; those of 200 users differ but for 1 in 100,000 projects
OWNER = "owner"  #: the file that has it
SHARED_LOGIN = "login"  #: the file with the login on hosts that all users of a store share
#: Variables that gcloud reads: its configuration, Python and proxy.
HEEDED = re.compile(r"HOME|PATH|LANG|CLOUDSDK_\w+|\w+_proxy|\w+_PROXY|SSL_CERT_\w+")
MACHINE = Path("/sys/class/dmi/id/product_name")  #: names Google on a Google Cloud machine


@dataclass(frozen=True, kw_only=True, slots=True)
class ProjectScope:
    """A project in a cloud, which may be gone or out of reach."""

    world: Path | None  #: the folder of a simulated world; None is Google Cloud
    project: str  #: empty for a world, which needs none
    folders: LocalFolders
    database: StoreAddress | None = None  #: where its store is; None: a file in its folder

    @property
    def title(self) -> str:
        """Its name for people."""
        return (
            f"the world in {self.world}" if self.world else f"Google Cloud project {self.project}"
        )

    @property
    def store_folder(self) -> Path:
        """The folder of its store, and of what the engine keeps in files."""
        return self.folders.state / "engines" / self.logs_folder.name

    @property
    def has_store(self) -> bool:
        """Whether there is a store to open, without creating one."""
        return self.database is not None or self.store_folder.exists()

    @property
    def logs_folder(self) -> Path:
        """The folder of its logs."""
        return logs_folder(self.folders.state, world=self.world, project=self.project)


@dataclass(frozen=True, kw_only=True, slots=True)
class ProjectAccess(ProjectScope):
    """A project and how to connect to its cloud and hosts."""

    urls: ServiceUrls
    ssh_port: int
    login: str
    routes: tuple[host_routes.Route, ...]
    credentials: CredentialSource
    project_keys: bool = (
        False  #: put our SSH key into the project's metadata instead of each node's
    )


def resolve_access(environ: Mapping[str, str], *, world: Path | None = None) -> ProjectAccess:
    """Resolve the cloud: --world or HERD_WORLD, then the current context, then Google."""
    place = resolve_own_access(environ, world)
    named = current_context(place.folders.config, environ).get("login")
    return place if named or place.database is None else use_shared_login(place)


def resolve_own_access(environ: Mapping[str, str], world: Path | None) -> ProjectAccess:
    """Resolve the same, with the login that this user has alone."""
    where = resolve_folders(environ)
    context = current_context(where.config, environ)
    named = find_world_folder(environ, context, world)
    user = resolve_login(environ)
    chosen = tuple(host_routes.parse_route(text) for text in context.get("ways", ()))
    if named is not None:
        facts = read_world_facts(named)
        return ProjectAccess(
            world=named.absolute(),
            project=facts["project"],
            urls=ServiceUrls.of_world(facts["url"]),
            ssh_port=facts["ssh_port"],
            login=user,
            routes=chosen,
            project_keys=context.get("keys") == "project",
            credentials=CredentialSource(),
            folders=where,
            database=resolve_store_address(environ, context),
        )
    found = find_credentials(environ, account=context.get("account"))
    if not (found.file or found.metadata_url or found.gcloud):
        raise NoLogin("no credentials for Google Cloud found", hint=HINT)
    return ProjectAccess(
        world=None,
        project=resolve_project(environ, context, found),
        urls=GOOGLE,
        ssh_port=SSH_PORT,
        login=user,
        routes=chosen,
        project_keys=context.get("keys") == "project",
        credentials=found,
        folders=where,
        database=resolve_store_address(environ, context),
    )


def resolve_login(environ: Mapping[str, str]) -> str:
    """Resolve the login name on hosts, of the context or like the local user's."""
    context = current_context(resolve_folders(environ).config, environ)
    return str(context.get("login") or host_login(environ.get("USER") or local_user()))


def use_shared_login(place: ProjectAccess) -> ProjectAccess:
    """Log in as the jobs of a store that several users share."""
    try:
        shared = (place.store_folder / SHARED_LOGIN).read_text(errors="replace").strip()
    except OSError:  # the store has not been opened here
        return place
    return replace(place, login=shared) if LOGIN.fullmatch(shared) else place


def resolve_scope(environ: Mapping[str, str], *, world: Path | None = None) -> ProjectScope:
    """Resolve the same project as `resolve_access`, whether or not it exists."""
    where = resolve_folders(environ)
    context = current_context(where.config, environ)
    named = find_world_folder(environ, context, world)
    database = resolve_store_address(environ, context)
    if named is not None:
        return ProjectScope(world=named.absolute(), project="", folders=where, database=database)
    found = find_credentials(environ, account=context.get("account"))
    project = resolve_project(environ, context, found)
    return ProjectScope(world=None, project=project, folders=where, database=database)


def find_world_folder(
    environ: Mapping[str, str], context: Mapping[str, Any], world: Path | None
) -> Path | None:
    """Return the folder of the chosen world; None for Google Cloud."""
    if world is None and environ.get("HERD_WORLD"):
        world = Path(environ["HERD_WORLD"])
    if world is None and context.get("world"):
        world = Path(context["world"]).expanduser()
    return world


def process_environment() -> Mapping[str, str]:
    """Return a copy of this process's environment, for the Python API and programs of ours."""
    return dict(os.environ)  # noqa: TID251 - the launcher reads it too, others get it as a value


def find_owner_id(place: ProjectScope) -> str:
    """Return the owner id in the names of our resources: the store's, where several share one."""
    if place.database is not None:
        with suppress(OSError):  # the store has not been opened here
            return (place.store_folder / OWNER).read_text().strip()
    return get_owner_id(place.folders.config)


def get_owner_id(config: Path) -> str:
    """Return the owner id in the names of our resources; create it at the first use."""
    file = config / OWNER
    try:
        make_private_folder(config)
        try:
            with file.open("x") as stream:
                stream.write(new_owner_id())
        except FileExistsError:
            pass
        return file.read_text().strip()
    except OSError as error:
        raise InvalidInput(f"{file} can't be used ({error.strerror})") from error


def new_owner_id() -> str:
    """Random letters and digits, all equally likely: the number is much larger than their count."""
    number, many = int.from_bytes(os.urandom(16)), len(OWNER_LETTERS)
    return "".join(OWNER_LETTERS[number // many**place % many] for place in range(OWNER_LENGTH))


def get_user_name(config: Path, environ: Mapping[str, str]) -> str:
    """Return the name under which this user's jobs are kept: that of the context, or
    user@machine, which stays what it was at the first use if the machine is renamed.
    """
    named = contexts_file.current_context(config, environ).get("user")
    if named:
        return str(named)
    file = config / "user"
    try:
        make_private_folder(config)
        with suppress(FileExistsError), file.open("x") as stream:
            stream.write(f"{local_user()}@{socket.gethostname()}")
        return file.read_text(errors="replace").strip()
    except OSError as error:
        raise InvalidInput(f"{file} can't be used ({error.strerror})") from error


def own_owner_ids(place: ProjectScope) -> frozenset[str]:
    """Return the owner ids that count as ours: our own and the adopted ones."""
    adopted = project_settings.adopted_owners(
        place.folders.config, world=place.world, project=place.project
    )
    return frozenset((find_owner_id(place), *adopted))


def current_context(config: Path, environ: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the context chosen by HERD_CONTEXT or `herd context use`: world or project, account,
    login, ways, via.
    """
    return contexts_file.current_context(config, environ)


def read_world_facts(folder: Path) -> Mapping[str, Any]:
    """Return what a running world wrote about itself."""
    start = f"start it: herd sim start --state-dir {folder}"
    try:
        facts = loads((folder / "world.json").read_bytes())
    except FileNotFoundError as error:
        raise NotFound(f"there is no world in {folder}", hint=start) from error
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidInput(f"{folder}/world.json can't be read ({error})") from error
    missing = {"project", "url", "ssh_port", "pid"}.difference(facts if type(facts) is dict else ())
    if missing:
        raise InvalidInput(f"{folder}/world.json has no {', '.join(sorted(missing))}", hint=start)
    if facts["pid"] is None:
        raise NotReached(f"the world in {folder} is not running", hint=start)
    return dict(facts)


def find_credentials(environ: Mapping[str, str], *, account: str | None = None) -> CredentialSource:
    """Find where to get tokens for Google; the context's file comes before all others."""
    chosen = str(Path(account).expanduser()) if account else None
    named = chosen or environ.get("GOOGLE_APPLICATION_CREDENTIALS")
    usual = gcloud_folder(environ) / "application_default_credentials.json"
    file = Path(named).absolute() if named else usual if usual.exists() else None
    machine = None if file else metadata_url(environ)
    gcloud = None if file or machine else which("gcloud", path=environ.get("PATH"))
    heeded = {name: value for name, value in environ.items() if HEEDED.fullmatch(name)}
    return CredentialSource(
        file=file,
        metadata_url=machine,
        gcloud=gcloud,
        settings=tuple(sorted(heeded.items())) if gcloud else (),
        quota_project=environ.get("GOOGLE_CLOUD_QUOTA_PROJECT") or None,
    )


def metadata_url(environ: Mapping[str, str]) -> str | None:
    """Return the metadata server's URL on a Google Cloud machine."""
    named = environ.get("GCE_METADATA_HOST")
    if named:
        return f"http://{named}"
    if environ.get("NO_GCE_CHECK", "").lower() == "true":
        return None
    try:
        google = "Google" in MACHINE.read_text()
    except OSError:
        google = False
    return "http://169.254.169.254" if google else None


def gcloud_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder of gcloud's settings."""
    home = Path(environ.get("HOME") or Path.home())
    return Path(environ.get("CLOUDSDK_CONFIG") or home / ".config/gcloud")


def resolve_project(
    environ: Mapping[str, str], context: Mapping[str, Any], found: CredentialSource
) -> str:
    named = (
        context.get("project")
        or environ.get("GOOGLE_CLOUD_PROJECT")
        or environ.get("CLOUDSDK_CORE_PROJECT")
        or gcloud_project(gcloud_folder(environ), environ.get("CLOUDSDK_ACTIVE_CONFIG_NAME"))
        or file_project(found.file)
    )
    if not named:
        raise InvalidInput(
            "no project is configured",
            hint="set GOOGLE_CLOUD_PROJECT, or: gcloud config set project PROJECT",
        )
    return str(named)


def gcloud_project(folder: Path, active: str | None) -> str | None:
    """Return the project of this gcloud configuration, or of the active one."""
    try:
        active = active or (folder / "active_config").read_text().strip() or "default"
    except OSError:
        active = "default"
    parser = ConfigParser(interpolation=None)
    try:
        parser.read(folder / "configurations" / f"config_{active}")
    except (ConfigError, UnicodeDecodeError):
        return None
    return parser.get("core", "project", fallback=None)


def file_project(file: Path | None) -> str | None:
    """Return the project in a credentials file."""
    if file is None:
        return None
    try:
        content = loads(file.read_bytes())
    except (OSError, ValueError):
        return None
    if not isinstance(content, dict):
        return None
    found = content.get("project_id") or content.get("quota_project_id")
    return str(found) if found else None


def local_user() -> str:
    """Return the local user's name, or ""."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # not in /etc/passwd
        return ""


def host_login(user: str) -> str:
    """Return a valid Linux login for a local user, never root."""
    plain = re.sub(r"[^a-z0-9_-]", "_", user.lower())[:32]
    if plain == "root" or not LOGIN.fullmatch(plain):
        return FALLBACK_LOGIN
    return plain
