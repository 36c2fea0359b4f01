"""Which environment a job needs: its Python, its requirements, and a key for all of that. Pure."""

import posixpath
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256

from tpuherd.jobfile.job_spec import JobSpec
from tpuherd.model.node_spec import EnvironmentSpec
from tpuherd.model.stored_job import StoredJob

KEY_LENGTH = 16
PROJECT, PROJECT_FILE = "uv.lock", "pyproject.toml"
#: Options of a requirements file that name another such file, or a folder of packages.
MORE_FILES = frozenset(("-r", "--requirement", "-c", "--constraint"))
FOLDERS = frozenset(("-f", "--find-links", "-e", "--editable"))
URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
LOCAL_SOURCE = re.compile(r"(?:path|directory|editable|virtual|registry)\s*=\s*\"([^\"]+)\"")

Files = Mapping[str, str]  #: the content id of each file of the code
ReadText = Callable[[str], str]


class MissingFile(Exception):
    """A file of the requirements is not among the files of the code."""

    def __init__(self, path: str, by: str) -> None:
        super().__init__(path)
        self.path = path
        self.by = by  #: the file that names it; "" if the job does


def find_environment(
    job: JobSpec, stored: StoredJob, files: Files | None, read: ReadText
) -> EnvironmentSpec | None:
    """Return the environment that a job asks for; its key is "" while the code is not here."""
    if not job.python and not job.requirements:
        return None
    path = posixpath.normpath(job.requirements) if job.requirements else ""
    inputs = environment_inputs(path, stored.snapshot, files, read)
    depends = [job.python, path, *inputs] if inputs is not None else []
    key = sha256("\0".join(depends).encode()).hexdigest()[:KEY_LENGTH] if depends else ""
    bucket = job.checkpoint if job.checkpoint.startswith("gs://") else ""
    owner = f"{stored.job}-{sha256(f'{stored.job} {stored.made_at!r}'.encode()).hexdigest()[:16]}"
    return EnvironmentSpec(key=key, python=job.python, requirements=path, bucket=bucket, job=owner)


def environment_inputs(
    path: str, snapshot: str, files: Files | None, read: ReadText
) -> list[str] | None:
    """Return the content ids of all files that the installation reads; None: not known."""
    if not path:
        return []
    if "@" in snapshot:  # a commit never changes
        return [snapshot]
    if files is None:
        return None
    try:
        found = sorted(set(needed_files(path, files, read)))
    except MissingFile:  # reported when the job was submitted; the host reports it again
        return [snapshot]
    return [f"{one}:{files[one]}" for one in found]


def needed_files(path: str, files: Files, read: ReadText) -> Iterator[str]:
    """Yield all files that are read to install these requirements; raises MissingFile."""
    if posixpath.basename(path) == PROJECT:
        yield from project_files(path, files, read)
        return
    waiting, known = [(path, "")], {path}
    while waiting:
        one, by = waiting.pop()
        if one not in files:
            raise MissingFile(one, by)
        yield one
        if posixpath.basename(one) == PROJECT_FILE:  # of TOML
            continue
        for name, is_file in named_paths(read(one), posixpath.dirname(one)):
            below = [each for each in files if each.startswith(f"{name}/") or name == "."]
            if not is_file and below:
                yield from below
            elif not is_file and name in files:
                yield name
            elif name not in known:
                known.add(name)
                waiting.append((name, one))


def named_paths(text: str, folder: str) -> Iterator[tuple[str, bool]]:
    """Yield paths in a requirements file, and whether each is such a file itself.

    Files that `-r` names are relative to the file; folders to where the installer runs, the
    folder of the code.
    """
    for line in text.replace("\\\n", " ").splitlines():
        try:
            words = shlex.split(re.sub(r"(?:^|\s)#.*", "", line))
        except ValueError:
            continue
        words = [part for word in words for part in word.partition("=")[::2] if part] if (
            words and words[0].startswith("--") and "=" in words[0]
        ) else words  # fmt: skip
        match words:
            case [option, name, *_] if option in MORE_FILES and not URL.match(name):
                yield posixpath.normpath(posixpath.join(folder, name)), True
            case [option, name, *_] if option in FOLDERS and not URL.match(name):
                yield posixpath.normpath(name), False
            case [name, *_] if name.startswith((".", "/")) or name.endswith(".whl"):
                yield posixpath.normpath(name.partition("[")[0]), False
            case _:
                pass


def project_files(path: str, files: Files, read: ReadText) -> Iterator[str]:
    """Yield the files that describe uv's project: its lock, and the packages of its own folders."""
    folder = posixpath.dirname(path)
    description = posixpath.join(folder, PROJECT_FILE)
    for one, by in ((path, ""), (description, path)):
        if one not in files:
            raise MissingFile(one, by)
        yield one
    yield from (one for one in (posixpath.join(folder, ".python-version"),) if one in files)
    for local in LOCAL_SOURCE.findall(read(path)):
        below = posixpath.normpath(posixpath.join(folder, local))
        if below != (folder or "."):
            yield from (one for one in files if one == below or one.startswith(f"{below}/"))
