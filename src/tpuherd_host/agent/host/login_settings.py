"""Finds settings that a login or the image gives to every program: variables, preloads, keys."""

import glob
import os
import re
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional

#: What shells and logins read; `{home}` is the login's.
FILES = (
    "/etc/environment", "/etc/profile", "/etc/profile.d/*.sh", "/etc/bash.bashrc",
    "{home}/.profile", "{home}/.bash_profile", "{home}/.bashrc", "{home}/.zshenv",
    "{home}/.zshrc", "{home}/.pam_environment",
)  # fmt: skip
LOGIN = "login"  #: where a variable is that a command here gets, wherever it was set
NAMES = re.compile(
    r"MEGASCALE_\w+|JAX_COORDINATOR_\w+|JAX_PLATFORMS|XLA_FLAGS|LIBTPU_INIT_ARGS|LD_PRELOAD"
    r"|TPU_(LOAD_LIBRARY|SKIP_MDS_QUERY|VISIBLE_(CHIPS|DEVICES)|WORKER_(ID|HOSTNAMES)"
    r"|PROCESS_(ADDRESSES|BOUNDS)|CHIPS_PER_(PROCESS|HOST)_BOUNDS|LIBRARY_PATH)"
    r"|ALLOW_MULTIPLE_LIBTPU_LOAD"
)
ASSIGNMENT = re.compile(r"\s*(?:export\s+)?([A-Za-z_]\w*)=(.*)")
FILE_MAX, VALUE_MAX, ROWS_MAX = 1 << 18, 300, 100
LIBRARIES = "/lib", "/lib64", "/lib/*-linux-gnu", "/usr/lib", "/usr/lib64", "/usr/lib/*-linux-gnu"
PRELOAD_FILE = "/etc/ld.so.preload"
MAGIC = b"\x7fELF"
WANDB_KEY = "WANDB_API_KEY"
WANDB_SERVER = "api.wandb.ai"
SERVER = re.compile(r"https?://([^/:]+)")


class Setting(NamedTuple):
    """A variable, and where it is set."""

    name: str
    value: str
    where: str


def read_limited(path: str) -> Optional[str]:
    """Return the text of a file; None if there is none that we may read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(FILE_MAX)
    except OSError:
        return None


def parse_assignments(text: str, where: str) -> Iterator[Setting]:
    """Find the plain assignments of a shell script or /etc/environment, outside comments."""
    for line in text.splitlines():
        found = ASSIGNMENT.match(line)
        if found and NAMES.fullmatch(found[1]):
            value = found[2].strip()
            if value[:1] in ("'", '"'):
                value = value[1:].partition(value[0])[0]
            yield Setting(found[1], value[:VALUE_MAX], where)


def find_settings(home: str, login: Mapping[str, str]) -> List[Setting]:
    """Return the variables that matter to a TPU program, of the login and of each file."""
    found = [
        Setting(name, value[:VALUE_MAX], LOGIN)
        for name, value in sorted(login.items())
        if NAMES.fullmatch(name)
    ]
    for pattern in FILES:
        for path in sorted(glob.glob(pattern.format(home=glob.escape(home)))):
            found += parse_assignments(read_limited(path) or "", path)
    return found[:ROWS_MAX]


def find_preloads(settings: List[Setting]) -> List[Dict[str, str]]:
    """Return each library that programs preload: where it is set, and its state."""
    rows = [one for one in settings if one.name == "LD_PRELOAD"]
    text = read_limited(PRELOAD_FILE)
    if text:
        rows.append(Setting("", text, PRELOAD_FILE))
    return [
        {"file": file[:VALUE_MAX], "where": one.where, "state": library_state(file)}
        for one in rows
        for file in re.split(r"[\s:]+", one.value)
        if file
    ][:ROWS_MAX]


def library_state(file: str) -> str:
    """Return fine, missing, or broken for a file that is no library."""
    found = [file] if "/" in file else [os.path.join(folder, file) for folder in LIBRARIES]
    paths = [path for pattern in found for path in sorted(glob.glob(pattern))]
    if not paths:
        return "missing"
    for path in paths:
        try:
            with open(path, "rb") as library:
                if library.read(len(MAGIC)) == MAGIC:
                    return "fine"
        except OSError:
            continue
    return "broken"


def wandb_logins(home: str, login: Mapping[str, str]) -> List[str]:
    """Return where Weights & Biases finds a key; the key itself is never read out."""
    found = [WANDB_KEY] if login.get(WANDB_KEY) else []
    netrc = login.get("NETRC") or os.path.join(home, ".netrc")
    own = SERVER.match(login.get("WANDB_BASE_URL", ""))
    server = own[1] if own else WANDB_SERVER
    machines = re.findall(r"(?:^|\s)machine\s+(\S+)", read_limited(netrc) or "")
    return [*found, netrc] if server in machines else found


def has_wandb_key(environ: bytes) -> bool:
    """Whether a process has a key, from its /proc/PID/environ."""
    name = WANDB_KEY.encode() + b"="
    return any(word.startswith(name) and word != name for word in environ.split(b"\0"))


def settings_rows(settings: List[Setting]) -> List[Dict[str, Any]]:
    return [one._asdict() for one in settings if one.name != "LD_PRELOAD"]
