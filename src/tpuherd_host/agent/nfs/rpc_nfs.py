"""The verbs of NFS folders: mount, unmount, export, unexport, and look.

A mount is a line of herd's in /etc/fstab, so it comes back after a reboot, and is made from that
line. Each verb may be repeated, and leaves no line behind if it fails.
"""

import errno
import os
import subprocess
import sys
import threading
from contextlib import suppress
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence

from tpuherd_host.agent.nfs.nfs_tables import (
    ADDRESS,
    FOLDER,
    SOURCE,
    Entry,
    Exports,
    Mount,
    add_clients,
    explain_mount,
    format_exports,
    has_foreign_line,
    is_nfs,
    own_entries,
    parse_exports,
    parse_mounts,
    plain_source,
    remove_clients,
    with_entry,
    without_entry,
)
from tpuherd_host.agent.nfs.root_commands import RootCommands
from tpuherd_host.agent.state_machine.transition import CallRefused, parse_fields
from tpuherd_host.agent.threaded_rpc import ThreadedCall

FSTAB, FSTAB_BEFORE = "/etc/fstab", "/etc/fstab.before-herd"
MAIN_EXPORTS, EXPORTS_FOLDER = "/etc/exports", "/etc/exports.d"
EXPORTS = f"{EXPORTS_FOLDER}/tpuherd.exports"
MOUNT_S = 100.0
ANSWER_S = 5.0  #: a server that takes longer is reported as silent
MOUNTED, STALE, SILENT, BROKEN, ABSENT = "mounted", "stale", "silent", "broken", "not mounted"
SHARED = "shared"
#: In a process of its own: a lost server holds whoever asks for its files.
PROBE = """
import os, sys
try:
    s = os.statvfs(sys.argv[1])
    print(s.f_blocks * s.f_frsize, s.f_bavail * s.f_frsize, int(os.access(sys.argv[1], os.W_OK)))
except OSError as error:
    sys.exit(error.errno)
"""
#: Of two calls that change the same files, one waits.
CHANGING = threading.Lock()


class Probe(NamedTuple):
    """How a folder answers."""

    state: str
    total: int = 0
    free: int = 0
    writable: bool = False


def probe_folder(folder: str) -> Probe:
    """Ask for the folder's size and rights; a silent server costs ANSWER_S."""
    asked = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", PROBE, folder],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
    )
    try:
        said, _ = asked.communicate(timeout=ANSWER_S)
    except subprocess.TimeoutExpired:
        asked.kill()  # not waited for: it may be held until the server answers
        return Probe(SILENT)
    if asked.returncode == 0:
        total, free, writable = map(int, said.split())
        return Probe(MOUNTED, total, free, bool(writable))
    return Probe(STALE if asked.returncode == errno.ESTALE else BROKEN)


def read_table(path: str) -> str:
    """Return the text of a table; "" if there is none."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def find_mount(folder: str) -> Optional[Mount]:
    mounts = parse_mounts(read_table("/proc/mounts"))
    return next((one for one in mounts if one.folder == folder), None)


def look_at_nfs(call: ThreadedCall) -> Mapping[str, Any]:
    """Return what is mounted, what should be, and what this host exports."""
    mounts = [one for one in parse_mounts(read_table("/proc/mounts")) if is_nfs(one)]
    own = own_entries(read_table(FSTAB))
    there = {one.folder for one in mounts}
    absent = [Mount(one.source, one.folder, "") for one in own if one.folder not in there]
    exports = parse_exports(read_table(EXPORTS))
    return {
        **describe_login(),
        "folders": [describe_mount(one, own) for one in [*mounts, *absent]],
        "exports": [describe_export(folder, clients) for folder, clients in exports.items()],
    }


def describe_login() -> Dict[str, Any]:
    return {"uid": os.getuid(), "gid": os.getgid()}


def describe_mount(mount: Mount, own: Sequence[Entry]) -> Dict[str, Any]:
    found = probe_folder(mount.folder) if mount.type else Probe(ABSENT)
    ours = any(one.folder == mount.folder for one in own)
    row = {"folder": mount.folder, "source": mount.source, "type": mount.type, "ours": ours}
    return {**row, **describe_probe(found)}


def describe_export(folder: str, clients: Sequence[str]) -> Dict[str, Any]:
    row = describe_probe(probe_folder(folder))
    state = SHARED if row["state"] == MOUNTED else row["state"]
    return {"folder": folder, "clients": list(clients), **row, "state": state}


def describe_probe(found: Probe) -> Dict[str, Any]:
    return {
        "state": found.state,
        "total": found.total,
        "free": found.free,
        "writable": found.writable,
    }


def mount_nfs(call: ThreadedCall) -> Mapping[str, Any]:
    """Mount a folder now and after each boot; nothing happens if it is mounted and answers."""
    asked = parse_fields(call.content, source=str, folder=str, version=str)
    entry = Entry(plain_source(asked.get("source", "")), asked.get("folder", ""))
    if not SOURCE.fullmatch(entry.source) or not FOLDER.fullmatch(entry.folder):
        raise CallRefused("unfit", f"{entry.source} on {entry.folder} is not a mount")
    root = RootCommands(call.paths.environment)
    with CHANGING:
        there = find_mount(entry.folder)
        found = probe_folder(entry.folder) if there is not None else Probe(ABSENT)
        if there is not None and there.source == entry.source and found.state == MOUNTED:
            return {"again": True, **describe_login(), **describe_probe(found)}
        if parse_exports(read_table(EXPORTS)).get(entry.folder):
            raise CallRefused("busy", f"this host shares {entry.folder} itself: unmount that first")
        if there is not None:
            detach_own(root, there, found)
        try:
            require_empty(entry)
            root.install("mount.nfs", "nfs-common")
            attach(root, entry, asked.get("version", ""))
        except CallRefused:
            if found.state == MOUNTED and there is not None:
                with suppress(CallRefused):  # nothing is lost that worked
                    attach(root, Entry(there.source, there.folder), "")
            raise
        return {"again": False, **describe_login(), **describe_probe(probe_folder(entry.folder))}


def detach_own(root: RootCommands, there: Mount, found: Probe) -> None:
    """Unmount what herd has mounted there before; anything else stays."""
    if all(one.folder != there.folder for one in own_entries(read_table(FSTAB))):
        what = f"{there.source} is mounted on {there.folder}"
        state = "" if found.state == MOUNTED else f" ({found.state})"
        raise CallRefused(
            "busy", f"{what}{state}, and herd did not mount it: choose another folder"
        )
    detach(root, there.folder, found)


def detach(root: RootCommands, folder: str, found: Probe) -> None:
    """Unmount a folder; one whose server is lost at once, for those who use it wait for ever."""
    words = ("umount", folder) if found.state == MOUNTED else ("umount", "-f", "-l", folder)
    done = root.run(*words)
    if done.status and find_mount(folder) is not None:
        if "busy" in done.output:
            raise CallRefused("busy", f"{folder} is in use: end the programs that use it first")
        raise CallRefused("broken", f"{folder} can't be unmounted: {done.last_line}")


def require_empty(entry: Entry) -> None:
    """A mount would hide the files of a folder, and a line of the user's is not replaced."""
    if has_foreign_line(read_table(FSTAB), entry.folder):
        raise CallRefused("busy", f"/etc/fstab has a line for {entry.folder} that is not herd's")
    if not os.path.lexists(entry.folder):
        return
    if os.path.islink(entry.folder) or not os.path.isdir(entry.folder):
        raise CallRefused("busy", f"{entry.folder} is not a folder on this host")
    with suppress(PermissionError):  # root's own, and mounted over at the user's word
        if os.listdir(entry.folder):
            sentence = f"{entry.folder} has files on this host, which a mount would hide: move them"
            raise CallRefused("busy", sentence)


def attach(root: RootCommands, entry: Entry, version: str) -> None:
    """Write the line into fstab and mount it; if that fails, the line goes again."""
    before = read_table(FSTAB)
    is_new = not os.path.isdir(entry.folder)
    root.require("mkdir", "-p", entry.folder)
    if not os.path.exists(FSTAB_BEFORE):
        root.write_file(FSTAB_BEFORE, before)
    root.write_file(FSTAB, with_entry(before, entry, version))
    done = root.run("mount", entry.folder, seconds=MOUNT_S)
    there = find_mount(entry.folder)
    if there is not None and there.source == entry.source:
        return  # now, or by the boot at the same moment
    root.write_file(FSTAB, without_entry(read_table(FSTAB), entry.folder))
    if is_new:
        root.run("rmdir", entry.folder)
    said = f"timed out after {MOUNT_S:g} s" if done.status == 124 else done.output
    raise CallRefused("broken", explain_mount(entry.source, entry.folder, said))


def unmount_nfs(call: ThreadedCall) -> Mapping[str, Any]:
    """Unmount what herd has mounted: one folder, or all; fstab and empty folders go with it."""
    folder = parse_fields(call.content, folder=str).get("folder", "")
    root = RootCommands(call.paths.environment)
    gone: List[Dict[str, str]] = []
    with CHANGING:
        for entry in own_entries(read_table(FSTAB)):
            if folder in ("", entry.folder):
                if find_mount(entry.folder) is not None:
                    detach(root, entry.folder, probe_folder(entry.folder))
                root.write_file(FSTAB, without_entry(read_table(FSTAB), entry.folder))
                root.run("rmdir", entry.folder)  # stays if it is not empty
                gone.append({"folder": entry.folder, "source": entry.source})
    return {"gone": gone}


def export_nfs(call: ThreadedCall) -> Mapping[str, Any]:
    """Let these addresses mount a folder of this host; without any, only make the folder."""
    asked = parse_fields(call.content, folder=str, clients=list, alive=list)
    folder, clients = asked.get("folder", ""), read_addresses(asked.get("clients", []))
    if not FOLDER.fullmatch(folder):
        raise CallRefused("unfit", f"{folder} is not a folder")
    root = RootCommands(call.paths.environment)
    with CHANGING:
        there = find_mount(folder)
        if there is not None and is_nfs(there):
            raise CallRefused("busy", f"{folder} is itself mounted here, from {there.source}")
        if not os.path.isdir(folder):
            root.require("mkdir", "-p", folder)
            root.require("chown", f"{os.getuid()}:{os.getgid()}", folder)
        if clients:
            root.install("exportfs", "nfs-kernel-server")
            alive = read_addresses(asked.get("alive", []))
            before = parse_exports(read_table(EXPORTS))
            write_exports(root, add_clients(before, folder, clients, alive))
            if os.path.isdir("/run/systemd/system"):
                root.require("systemctl", "enable", "--now", "nfs-server", seconds=60.0)
        return {**describe_login(), **describe_probe(probe_folder(folder))}


def read_addresses(words: Sequence[Any]) -> List[str]:
    wrong = [one for one in words if not isinstance(one, str) or not ADDRESS.fullmatch(one)]
    if wrong:
        raise CallRefused("unfit", f"{wrong[0]!r} is not an address")
    return list(words)


def write_exports(root: RootCommands, exports: Exports) -> None:
    """Put the exports into force; the earlier ones stay if the server refuses them."""
    before, text = read_table(EXPORTS), format_exports(exports, os.getuid(), os.getgid())
    root.require("mkdir", "-p", EXPORTS_FOLDER)
    if not os.path.exists(MAIN_EXPORTS):  # without it, exportfs fails although it reads ours
        root.require("touch", MAIN_EXPORTS)
    replace_exports(root, text)
    done = root.run("exportfs", "-ra")
    if done.status:
        replace_exports(root, before)
        raise CallRefused("broken", f"exportfs: {done.last_line}")


def replace_exports(root: RootCommands, text: str) -> None:
    if text:
        root.write_file(EXPORTS, text)
    else:
        root.require("rm", "-f", EXPORTS)


def unexport_nfs(call: ThreadedCall) -> Mapping[str, Any]:
    """Export a folder, or all, to these addresses no more; the files stay."""
    asked = parse_fields(call.content, folder=str, clients=list)
    clients = read_addresses(asked.get("clients", []))
    with CHANGING:
        before = parse_exports(read_table(EXPORTS))
        after = remove_clients(before, asked.get("folder", ""), clients)
        if after != before:
            write_exports(RootCommands(call.paths.environment), after)
    gone = [folder for folder, many in after.items() if not many]
    return {"gone": gone, "left": {folder: list(many) for folder, many in after.items() if many}}
