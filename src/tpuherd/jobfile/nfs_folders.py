"""The job field `nfs`: which folders all hosts of a node share, and who serves them. Pure."""

import posixpath
import re
from collections.abc import Mapping
from typing import Any

from tpuherd.jobfile.value_types import ReportMistake, ValueType, show_value

WORKER_0 = "w0"  #: the first host of the node serves its own folder
FOLDER = re.compile(r"(/[A-Za-z0-9_+@=-][A-Za-z0-9._+@=-]*)+")
SERVER = re.compile(
    r"(?P<address>[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:]+\])"
    r":(?P<path>/[A-Za-z0-9._+@=/-]*)"
)
#: Folders that a host needs itself: nothing is mounted on them.
NEEDED = frozenset("/bin /boot /dev /etc /home /lib /lib64 /media /mnt /opt /proc /root /run /sbin"
                   " /srv /sys /tmp /usr /var".split())  # fmt: skip
#: Nor below these.
SYSTEM = ("/bin/", "/boot/", "/dev/", "/etc/", "/lib/", "/lib64/", "/proc/", "/run/", "/sbin/",
          "/sys/", "/usr/")  # fmt: skip
EXAMPLE = "10.0.0.2:/share"


def folder_mistake(folder: str) -> str:
    """Return what is wrong with a folder to mount on; "" if nothing."""
    if not FOLDER.fullmatch(folder) or posixpath.normpath(folder) != folder:
        return f"{show_value(folder)} is not a folder's full path, such as /data"
    if folder in NEEDED or folder.startswith(SYSTEM):
        return f"hosts need {folder} themselves: choose another folder, such as /data"
    return ""


def server_mistake(server: str) -> str:
    """Return what is wrong with a server and its path; "" if nothing."""
    found = SERVER.fullmatch(server)
    if not found or ".." in found["path"].split("/"):
        return f"{show_value(server)} is not a server and its path, such as {EXAMPLE}"
    return ""


def read_nfs_folders(value: Any, wrong: ReportMistake) -> dict[str, str] | None:
    """Accept a mapping from folders to servers."""
    if not isinstance(value, Mapping) or not value:
        said = f"should map folders to servers, such as {{/data: {EXAMPLE}}}"
        wrong(f"{said}, not {show_value(value)}", ())
        return None
    for folder, server in value.items():
        if mistake := folder_mistake(folder if isinstance(folder, str) else show_value(folder)):
            wrong(mistake, (str(folder),))
        elif server != WORKER_0 and (mistake := server_mistake(str(server))):
            also = f", or {WORKER_0} for a folder of worker 0"
            wrong(mistake + also, (folder,))
    folders = sorted(map(str, value))
    for above in folders:
        for below in folders:
            if below.startswith(f"{above}/"):
                wrong(f"{below} is inside {above}: choose folders beside each other", (below,))
    return {str(folder): str(server) for folder, server in value.items()}


NFS_FOLDERS = ValueType(
    read=read_nfs_folders,
    schema={
        "type": "object", "minProperties": 1,
        "propertyNames": {"pattern": f"^{FOLDER.pattern}$"},
        "additionalProperties": {
            "anyOf": [{"const": WORKER_0}, {"type": "string", "pattern": "^[^:]+:/"}],
        },
    },
    write=dict,
)  # fmt: skip


def find_nfs_folder(folders: Mapping[str, str], path: str) -> str:
    """Return the shared folder that a path is in; "" if it is in none."""
    return next((one for one in folders if path == one or path.startswith(f"{one}/")), "")
