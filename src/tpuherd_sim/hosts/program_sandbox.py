"""Two kinds of place in which a host's programs run: one of its own, or a corner of the machine."""

import os
import re
import shutil
import socket
from pathlib import Path
from typing import Protocol

from tpuherd_sim.hosts import accounts, devices, seccomp, syscalls
from tpuherd_sim.hosts.accounts import Login
from tpuherd_sim.hosts.bucket_address import storage_environment
from tpuherd_sim.hosts.messages import Message

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/games:/usr/local/games"
SHIFT = 8000  #: added to ports that only root may listen on, where hosts share the machine's

Address = str | tuple[str, int]


class Sandbox(Protocol):
    """What differs between the two."""

    def find_login(self, name: str) -> Login | None:
        """The login of that name, where there is one."""
        ...

    def ensure_login(self, name: str) -> Login:
        """The login of that name, made where there is none."""
        ...

    def session_environment(self, login: Login) -> dict[str, str]:
        """What every session of it starts with."""
        ...

    def switch_user(self, login: Login) -> None:
        """Turn the calling process into one of that login."""
        ...

    def give_terminal(self, terminal: int, login: Login) -> None:
        """Give a terminal to a login."""
        ...

    def connect_socket(self, address: str, port: int) -> socket.socket:
        """A connection to this address, done or under way."""
        ...

    def listen_address(self, address: str, port: int) -> tuple[int, Address]:
        """Where to listen for this address."""
        ...

    def file_path(self, path: str) -> Path:
        """Where a file of that path is kept."""
        ...

    def process_ids(self) -> list[int]:
        """All that run in the host, without its init."""
        ...

    def chip_name(self, path: str) -> str | None:
        """Which chip an open file is."""
        ...


class NamespaceSandbox:
    """A place of its own: what we see is the host's."""

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
    """A corner of the machine: a folder for home and files, an address of the loopback."""

    def __init__(self, plan: Message) -> None:
        self.folder = Path(plan["corner"])
        self.name: str = plan["name"]
        self.external: str = plan["external"] or "127.0.0.1"
        self.settings: dict[str, str] = plan["settings"]
        self.refusals: str = plan["refusals"]
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
            shutil.copytree(Path(__file__).with_name("furniture") / "etc/skel",
                            self.folder / "home" / name)  # fmt: skip
        login = self.find_login(name)
        assert login is not None
        return login

    def session_environment(self, login: Login) -> dict[str, str]:
        return {
            "PATH": f"{self.refusals}:{PATH}",
            **login_variables(login),
            **storage_environment(self.external),
            **self.settings,
            "TMPDIR": str(self.folder / "tmp"),
            "HOSTNAME": self.name,
            "GCE_METADATA_HOST": f"{self.external}:{80 + SHIFT}",
            "GCE_METADATA_IP": f"{self.external}:{80 + SHIFT}",
        }

    def switch_user(self, login: Login) -> None:
        """Nothing: the walls that there are stand around the whole host."""

    def give_terminal(self, terminal: int, login: Login) -> None:
        """Nothing: it is ours."""

    def connect_socket(self, address: str, port: int) -> socket.socket:
        """On the host's own address first, else on the machine's: the loopback answers at once."""
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
    """A connection under way."""
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
    """Who a session is, as programs ask for it."""
    return {
        "HOME": login.home,
        "USER": login.name,
        "LOGNAME": login.name,
        "SHELL": login.shell,
    }


def read_environment_file(path: Path) -> dict[str, str]:
    """What an environment file gives to every session."""
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
    """The address of a host by its own /etc/hosts; an address is its own."""
    if name == "*":
        return "0.0.0.0"
    if ":" in name or name.replace(".", "").isdigit():
        return name
    for line in Path("/etc/hosts").read_text(errors="replace").splitlines():
        address, *names = line.partition("#")[0].split() or [""]
        if name.lower() in names:
            return address
    raise OSError(22, f"this host can't resolve {name}")
