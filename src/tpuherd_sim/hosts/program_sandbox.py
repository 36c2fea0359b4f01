"""The two environments for a host's programs: namespaces of its own, or a folder of the machine."""

import os
import re
import shutil
import socket
from pathlib import Path
from typing import Protocol

from tpuherd_sim.hosts import accounts, devices, seccomp, syscalls
from tpuherd_sim.hosts.accounts import Login
from tpuherd_sim.hosts.api_address import api_environment
from tpuherd_sim.hosts.messages import Message

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/games:/usr/local/games"
SHIFT = 8000  #: added to privileged ports where hosts share the machine's network
#: Where Google's libraries and gcloud look up the metadata server.
METADATA = ("GCE_METADATA_HOST", "GCE_METADATA_IP", "GCE_METADATA_ROOT")

Address = str | tuple[str, int]


class Sandbox(Protocol):
    """The differences between the two environments."""

    def find_login(self, name: str) -> Login | None: ...

    def ensure_login(self, name: str) -> Login:
        """Return the login; create it if it does not exist."""
        ...

    def session_environment(self, login: Login) -> dict[str, str]:
        """Return the initial environment of every session."""
        ...

    def switch_user(self, login: Login) -> None:
        """Become that user."""
        ...

    def give_terminal(self, terminal: int, login: Login) -> None: ...

    def connect_socket(self, address: str, port: int) -> socket.socket:
        """Return a connection, which may not be established yet."""
        ...

    def listen_address(self, address: str, port: int) -> tuple[int, Address]:
        """Return the address to listen on for this address."""
        ...

    def file_path(self, path: str) -> Path:
        """Return where a file of that path is stored."""
        ...

    def process_ids(self) -> list[int]:
        """Return all processes of the host except its init."""
        ...

    def chip_name(self, path: str) -> str | None:
        """Return the chip of an open file, if it is one."""
        ...


class NamespaceSandbox:
    """Namespaces of its own: everything visible belongs to the host."""

    def __init__(self, *, single_id: bool) -> None:
        self.single_id = single_id

    def find_login(self, name: str) -> Login | None:
        return accounts.find_login(name)

    def ensure_login(self, name: str) -> Login:
        return accounts.ensure_login(name, single_id=self.single_id)

    def session_environment(self, login: Login) -> dict[str, str]:
        return {
            "PATH": PATH,
            **login_variables(login),
            **read_environment_file(Path("/etc/environment")),
        }

    def switch_user(self, login: Login) -> None:
        if self.single_id:
            seccomp.fake_root()
        elif login.uid or login.gid:
            os.setgroups(accounts.login_groups(login))
            os.setresgid(login.gid, login.gid, login.gid)
            os.setresuid(login.uid, login.uid, login.uid)

    def give_terminal(self, terminal: int, login: Login) -> None:
        if not self.single_id:
            os.fchown(terminal, login.uid, login.gid)
        os.fchmod(terminal, 0o620)

    def connect_socket(self, address: str, port: int) -> socket.socket:
        return start_connect(*self.listen_address(address, port))

    def listen_address(self, address: str, port: int) -> tuple[int, Address]:
        if address.startswith("/"):
            return socket.AF_UNIX, address
        address = resolve_name(address or "*")
        return (socket.AF_INET6 if ":" in address else socket.AF_INET), (address, port)

    def file_path(self, path: str) -> Path:
        return Path(path)

    def process_ids(self) -> list[int]:
        found = (entry.name for entry in Path("/proc").iterdir())
        return [int(name) for name in found if name.isdigit() and name != "1"]

    def chip_name(self, path: str) -> str | None:
        return path if devices.is_chip(path) else None


class SharedSandbox:
    """A part of the machine: a folder for home and files, and a loopback address."""

    def __init__(self, plan: Message) -> None:
        self.folder = Path(plan["corner"])
        self.name: str = plan["name"]
        self.external: str = plan["external"] or "127.0.0.1"
        self.settings: dict[str, str] = plan["settings"]
        self.refusals: str = plan["refusals"]
        self.skel: str = plan["skel"]
        for name in ("home", "dev", "etc", "tmp"):
            (self.folder / name).mkdir(exist_ok=True)
        for name in devices.chip_files(plan):
            path = self.folder / "dev" / name
            path.parent.mkdir(exist_ok=True)
            path.touch()

    def find_login(self, name: str) -> Login | None:
        if not re.fullmatch(accounts.NAME, name):
            raise OSError(22, f"{name!r} is not a valid user name")
        home = self.folder / "home" / name
        if not home.is_dir() and name != "root":
            return None
        home.mkdir(exist_ok=True)
        return Login(
            name=name, uid=os.getuid(), gid=os.getgid(), home=str(home), shell=accounts.SHELL
        )

    def ensure_login(self, name: str) -> Login:
        if self.find_login(name) is None:
            shutil.copytree(self.skel, self.folder / "home" / name)
        login = self.find_login(name)
        assert login is not None
        return login

    def session_environment(self, login: Login) -> dict[str, str]:
        return {
            "PATH": f"{self.refusals}:{PATH}",
            **login_variables(login),
            **api_environment(self.external),
            **self.settings,
            "TMPDIR": str(self.folder / "tmp"),
            "HOSTNAME": self.name,
            **dict.fromkeys(METADATA, f"{self.external}:{80 + SHIFT}"),
        }

    def switch_user(self, login: Login) -> None:
        """Do nothing: the restrictions apply to the whole host."""

    def give_terminal(self, terminal: int, login: Login) -> None:
        """Do nothing: the terminal is already ours."""

    def connect_socket(self, address: str, port: int) -> socket.socket:
        """Connect to the host's own address first, else to the machine's: loopback
        answers at once.
        """
        family, place = self.listen_address(address, port)
        link = socket.socket(family, socket.SOCK_STREAM)
        if link.connect_ex(place) == 0:
            return link
        link.close()
        return start_connect(family, place if family == socket.AF_UNIX else ("127.0.0.1", port))

    def listen_address(self, address: str, port: int) -> tuple[int, Address]:
        if address.startswith("/"):
            return socket.AF_UNIX, address
        return socket.AF_INET, (self.external, port + SHIFT if 0 < port < 1024 else port)

    def file_path(self, path: str) -> Path:
        if Path(path).is_relative_to(self.folder):
            return Path(path)
        return self.folder / path.lstrip("/")

    def process_ids(self) -> list[int]:
        return syscalls.process_family(os.getpid())[1:]

    def chip_name(self, path: str) -> str | None:
        path = path.removeprefix(str(self.folder))
        return path if devices.is_chip(path) else None


def start_connect(family: int, address: Address) -> socket.socket:
    link = socket.socket(family, socket.SOCK_STREAM)
    link.setblocking(False)
    try:
        link.connect(address)
    except BlockingIOError:
        pass
    except OSError:
        link.close()
        raise
    return link


def login_variables(login: Login) -> dict[str, str]:
    """Return the identity variables of a session."""
    return {
        "HOME": login.home,
        "USER": login.name,
        "LOGNAME": login.name,
        "SHELL": login.shell,
    }


def read_environment_file(path: Path) -> dict[str, str]:
    """Return the variables of an environment file."""
    found = {}
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return {}
    for line in lines:
        name, equals, value = line.partition("=")
        if equals and name.isidentifier():
            found[name] = value.strip("\"'")
    return found


def resolve_name(name: str) -> str:
    """Resolve a name by the host's own /etc/hosts."""
    if name == "*":
        return "0.0.0.0"
    if ":" in name or name.replace(".", "").isdigit():
        return name
    for line in Path("/etc/hosts").read_text(errors="replace").splitlines():
        address, *names = line.partition("#")[0].split() or [""]
        if name.lower() in names:
            return address
    raise OSError(22, f"this host can't resolve {name}")
