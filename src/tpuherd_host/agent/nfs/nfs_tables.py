"""The tables of a host that are about NFS folders: its mounts, fstab, and herd's exports. Pure."""

import re
from typing import Dict, Iterable, List, NamedTuple, Sequence, Tuple

MARK = "x-tpuherd"  #: an option of herd's lines in fstab; mount ignores what begins with x-
NFS = ("nfs", "nfs4")
#: A lost server is waited for, so no file is torn; a boot does not wait for it.
OPTIONS = ("hard", "noatime", "nosuid", "nodev", "_netdev", "nofail", MARK)
HEAD = "# Written by herd; `herd nfs unmount` removes what it no longer needs.\n"
FOLDER = re.compile(r"(/[A-Za-z0-9_+@=-][A-Za-z0-9._+@=-]*)+")
SOURCE = re.compile(r"([A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9A-Fa-f:]+\]):(/[A-Za-z0-9._+@=/-]*)")
ADDRESS = re.compile(r"[0-9A-Fa-f.:]+")
SAID_BEFORE = r"^mount(\.nfs4?)?: (mounting .*failed, reason given by server: )?"
#: What mount.nfs says, and what to do about it.
ADVICE = (
    (r"access denied", "the server must export it to this host's internal address"),
    (r"No such file", "the server must export this very path to this host"),
    (
        r"timed out|No route to host|Connection refused|not responding",
        "is the server up, and may this host reach its TCP port 2049?",
    ),
    (r"resolve", "is the name right?"),
    (r"not permitted|No such device|unknown filesystem", "this host's kernel has no NFS for you"),
)


class Mount(NamedTuple):
    """A line of /proc/mounts."""

    source: str
    folder: str
    type: str


class Entry(NamedTuple):
    """One of herd's lines in fstab."""

    source: str
    folder: str


def parse_mounts(text: str) -> List[Mount]:
    """Parse /proc/mounts; of several mounts on one folder, only the last one is visible."""
    rows = [line.split(" ") for line in text.splitlines()]
    mounts = {
        unescape_word(row[1]): Mount(
            plain_source(unescape_word(row[0])), unescape_word(row[1]), row[2]
        )
        for row in rows
        if len(row) >= 4
    }
    return list(mounts.values())


def unescape_word(word: str) -> str:
    r"""Return a word of a table with \040 and its like as characters."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found.group(1), 8)), word)


def plain_source(source: str) -> str:
    """Return the source without a slash at its end."""
    return source if source.endswith(":/") else source.rstrip("/")


def is_nfs(mount: Mount) -> bool:
    return mount.type in NFS or SOURCE.fullmatch(mount.source) is not None


def fstab_folder(line: str) -> str:
    """Return the folder of a line in fstab; "" if it has none."""
    words = line.split()
    return unescape_word(words[1]) if len(words) >= 3 and not line.startswith("#") else ""


def is_own_line(line: str) -> bool:
    words = line.split()
    return len(words) >= 4 and not line.startswith("#") and MARK in words[3].split(",")


def own_entries(fstab: str) -> List[Entry]:
    lines = [line.split() for line in fstab.splitlines() if is_own_line(line)]
    return [Entry(plain_source(words[0]), fstab_folder(" ".join(words))) for words in lines]


def has_foreign_line(fstab: str, folder: str) -> bool:
    """Whether a line that is not herd's is about this folder."""
    lines = fstab.splitlines()
    return any(fstab_folder(line) == folder and not is_own_line(line) for line in lines)


def without_entry(fstab: str, folder: str) -> str:
    """Return fstab without herd's line for the folder; all other lines stay as they are."""
    kept = [
        line
        for line in fstab.splitlines(keepends=True)
        if not (is_own_line(line) and fstab_folder(line) == folder)
    ]
    return "".join(kept)


def with_entry(fstab: str, entry: Entry, version: str = "") -> str:
    """Return fstab with herd's line for the folder; `version`: of NFS, default: the newest that
    both sides know.
    """
    options = ",".join([*([f"nfsvers={version}"] if version else []), *OPTIONS])
    rest = without_entry(fstab, entry.folder)
    if rest and not rest.endswith("\n"):
        rest += "\n"
    return f"{rest}{entry.source} {entry.folder} nfs {options} 0 0\n"


Exports = Dict[str, Tuple[str, ...]]  #: the addresses that may use each folder


def parse_exports(text: str) -> Exports:
    """Parse herd's own file of exports."""
    rows = [line.split() for line in text.splitlines() if not line.startswith("#")]
    return {row[0]: tuple(word.partition("(")[0] for word in row[1:]) for row in rows if row}


def format_exports(exports: Exports, uid: int, gid: int) -> str:
    """Return the file: each folder for single addresses only, and all that is written is the
    login's, whoever writes it; root on another host has no more rights than that.
    """
    options = f"rw,sync,no_subtree_check,root_squash,all_squash,anonuid={uid},anongid={gid}"
    lines = [
        " ".join([folder, *(f"{client}({options})" for client in clients)])
        for folder, clients in sorted(exports.items())
        if clients
    ]
    return "".join([HEAD, *(f"{line}\n" for line in lines)]) if lines else ""


def add_clients(
    exports: Exports, folder: str, clients: Sequence[str], alive: Iterable[str] = ()
) -> Exports:
    """Export the folder to these as well. `alive`: addresses of nodes that exist; if given, all
    others lose every export.
    """
    known = set(alive)
    kept = {
        each: tuple(one for one in many if not known or one in known)
        for each, many in exports.items()
    }
    return {**kept, folder: tuple(dict.fromkeys([*kept.get(folder, ()), *clients]))}


def remove_clients(exports: Exports, folder: str, clients: Iterable[str]) -> Exports:
    """Export the folder ("": every folder) to these no more."""
    gone = set(clients)
    return {
        each: many if folder not in ("", each) else tuple(one for one in many if one not in gone)
        for each, many in exports.items()
    }


def explain_mount(source: str, folder: str, output: str) -> str:
    """Return the sentence for what mount.nfs said."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    last = re.sub(SAID_BEFORE, "", lines[-1]) if lines else "mount failed without a word"
    advice = next((word for pattern, word in ADVICE if re.search(pattern, last)), "")
    sentence = f"{source} can't be mounted on {folder}: {last[:200].rstrip('.')}"
    return f"{sentence}; {advice}" if advice else sentence
