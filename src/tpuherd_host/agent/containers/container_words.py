"""The words by which a container is started: like the host, but for its files. Pure."""

import os
import re
from typing import Dict, List, Mapping, NamedTuple, Sequence, Tuple

#: Of the login, for programs in the container too: the way out, and the world's APIs.
FROM_LOGIN = re.compile(
    r"(?:https?|no|all)_proxy|GOOGLE_APPLICATION_CREDENTIALS|GCE_METADATA_\w+|TZ"
    r"|STORAGE_EMULATOR_HOST|TENSORSTORE_GCS_HTTP_URL|CLOUD_STORAGE_EMULATOR_ENDPOINT|GCSFS_\w+"
    r"|CLOUDSDK_API_\w+",
    re.I,
)
PATHS = "PYTHONPATH"
LINE_MAX = 32_000  #: engines read files of variables by lines, which must not be longer
FOLDERS = ("/tmp", "/mnt")  #: libtpu's lock and logs; disks
SYSTEM = "/sys"  #: where programs look for the chips
SHELL = 'command -v bash >/dev/null 2>&1 && exec bash -c "$0"; exec sh -c "$0"'


class ContainerPlan(NamedTuple):
    """What the job says."""

    image: str
    names: Sequence[str]  #: of the job's variables
    mounts: Sequence[str]  #: folders
    shell: bool = False  #: the command is one text, for the image's shell


class HostPlace(NamedTuple):
    """What the container shares with the login on the host."""

    home: str
    user: str
    uid: int
    gids: Sequence[int]  #: the first is the login's own
    directory: str
    devices: Sequence[str]
    folders: Sequence[str]  #: those of FOLDERS and of the job that exist
    limits: Mapping[str, Tuple[int, int]]  #: nofile and so on
    rootless: bool = False


def container_variables(
    plan: ContainerPlan, place: HostPlace, environ: Mapping[str, str]
) -> Dict[str, str]:
    """Return the variables in the container: the job's, herd's, and few of the login."""
    found = {"HOME": place.home, "USER": place.user, "LOGNAME": place.user}
    # The home is the host's, and so are the packages that a user has installed in it.
    found["PYTHONNOUSERSITE"] = "1"
    for name, value in environ.items():
        if name in plan.names or name.startswith("HERD_") or FROM_LOGIN.fullmatch(name):
            found[name] = value
    archive = environ.get(PATHS, "").split(":")[0]
    if archive.endswith(".pyz") and PATHS not in plan.names:
        found[PATHS] = archive
    return found


def split_variables(variables: Mapping[str, str]) -> Tuple[str, List[str]]:
    """Return a file of those that fit on a line, and the names of the others."""
    fits = {
        name: value
        for name, value in variables.items()
        if len(value) < LINE_MAX and not re.search(r"[\n\r\0]", value) and is_text(value)
    }
    text = "".join(f"{name}={value}\n" for name, value in fits.items())
    return text, sorted(set(variables) - set(fits))


def is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:  # bytes that are not UTF-8
        return False
    return True


def container_arguments(
    plan: ContainerPlan, place: HostPlace, name: str, passed: Sequence[str], command: Sequence[str]
) -> List[str]:
    """Return the arguments of docker or podman; the variables' file is its standard input."""
    program, *rest = ["sh", "-c", SHELL, command[0]] if plan.shell else command
    gid, *more = place.gids
    who = [f"--user={place.uid}:{gid}"]
    if place.rootless:
        who.append("--userns=keep-id")
    else:
        who += [f"--group-add={one}" for one in more]
    shared = [place.home, *place.folders, SYSTEM]
    mounts = [path for path in dict.fromkeys(shared) if path != "/" and ":" not in path]
    return [
        "run", "--rm", "--init", f"--name={name}", "--label=tpuherd", "--pull=never",
        "--privileged", "--network=host", "--ipc=host", "--log-driver=none", *who,
        *(f"--ulimit={what}={soft}:{hard}" for what, (soft, hard) in place.limits.items()),
        *(f"--volume={path}:{path}" for path in [*mounts, *place.devices]),
        f"--workdir={place.directory}",
        "--env-file=/dev/stdin", *(f"--env={one}" for one in passed),
        f"--entrypoint={program}", plan.image, *rest,
    ]  # fmt: skip


def existing_folders(mounts: Sequence[str]) -> List[str]:
    """Return the folders that a container gets; the job's are made if they are missing."""
    wanted = [os.path.expanduser(path) for path in mounts]
    for path in wanted:
        os.makedirs(path, exist_ok=True)
    return [*(path for path in FOLDERS if os.path.isdir(path)), *wanted]
