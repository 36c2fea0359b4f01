"""The logins of a host, in its own /etc/passwd."""

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.@-]{0,63}\$?")
FIRST, SHELL, EVERYBODY = 1001, "/bin/bash", ("google-sudoers",)


@dataclass(frozen=True, kw_only=True, slots=True)
class Login:
    """A line of /etc/passwd."""

    name: str
    uid: int
    gid: int
    home: str
    shell: str


def find_login(name: str) -> Login | None:
    for line in Path("/etc/passwd").read_text(errors="replace").splitlines():
        parts = line.split(":")
        if len(parts) >= 7 and parts[0] == name and parts[2].isdigit() and parts[3].isdigit():
            return Login(
                name=name, uid=int(parts[2]), gid=int(parts[3]), home=parts[5], shell=parts[6]
            )
    return None


def ensure_login(name: str, *, single_id: bool) -> Login:
    """Return the login; create it with its home at first use."""
    if not NAME.fullmatch(name):
        raise OSError(22, f"{name!r} is not a valid user name")
    login = find_login(name)
    if login is None:
        login = add_alias(name) if single_id else add_login(name)
    home = Path(login.home)
    if not home.is_dir():
        home.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree("/etc/skel", home)
        if not single_id:
            for path in (home, *home.rglob("*")):
                os.chown(path, login.uid, login.gid)
        home.chmod(0o750)
    return login


def add_login(name: str) -> Login:
    """Add a user with its own id, in the groups that may use sudo."""
    taken = {int(line.split(":")[2]) for line in read_table("passwd")}
    number = next(number for number in range(FIRST, 60000) if number not in taken)
    append_line("passwd", f"{name}:x:{number}:{number}::/home/{name}:{SHELL}")
    append_line("shadow", f"{name}:*:19000:0:99999:7:::")
    groups = ""
    for line in read_table("group"):
        parts = line.split(":")
        if parts[0] in EVERYBODY:
            parts[3] = ",".join([*filter(None, parts[3].split(",")), name])
        groups += ":".join(parts) + "\n"
    Path("/etc/group").write_text(f"{groups}{name}:x:{number}:\n")
    return Login(name=name, uid=number, gid=number, home=f"/home/{name}", shell=SHELL)


def add_alias(name: str) -> Login:
    """Add a name for root before the others, so that `whoami` prints it."""
    path = Path("/etc/passwd")
    alias = f"{name}:x:0:0::/home/{name}:{SHELL}\n"
    path.write_text(alias + path.read_text(errors="replace"))
    return Login(name=name, uid=0, gid=0, home=f"/home/{name}", shell=SHELL)


def login_groups(login: Login) -> list[int]:
    found = {login.gid}
    for line in read_table("group"):
        parts = line.split(":")
        if login.name in parts[3].split(","):
            found.add(int(parts[2]))
    return sorted(found)


def read_table(name: str) -> list[str]:
    """Return the well-formed lines of passwd or group."""
    lines = Path("/etc", name).read_text(errors="replace").splitlines()
    return [line for line in lines if line.count(":") >= 3 and line.split(":")[2].isdigit()]


def append_line(name: str, line: str) -> None:
    with Path("/etc", name).open("a") as file:
        file.write(f"{line}\n")
