"""Asks git which files to ship and what a commit contains."""

import hashlib
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

from tpuherd.errors import InvalidInput, NotFound, OperationFailed
from tpuherd.files import make_private_folder

HERDIGNORE = ".herdignore"
PIECE = 1 << 20
SHA = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")

#: Set in hooks of another repository; git must ignore them here.
ELSEWHERE = {
    "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_NAMESPACE", "GIT_PREFIX", "GIT_LITERAL_PATHSPECS",
}  # fmt: skip

#: A folder's own settings name no program to run: the folder may be a stranger's.
NO_PROGRAMS = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
FILTERS = r"^filter\..*\.(clean|smudge|process|required)$"
#: Overrides of user settings, so that git compares ctimes and inodes.
STRICT = ("-c", "core.trustctime=true", "-c", "core.checkStat=default")
CHECKSUM = 20  #: bytes at the end of an index file
ITSELF = (b"H 100", b"H 120")  #: tags of files and symlinks that git does compare

Environment = Mapping[str, str]


class Listing(NamedTuple):
    """The files to ship according to git."""

    found: bytes  #: paths, each ending in a zero byte
    left: bytes  #: the same for paths to leave out
    tracked: frozenset[bytes] = frozenset()  #: tracked paths, if `found` does not contain them


class IndexStamp(NamedTuple):
    """Identifies a version of git's index."""

    mtime_ns: int
    ctime_ns: int
    size: int
    inode: int
    device: int
    checksum: bytes


def clean_environment(environment: Environment) -> dict[str, str]:
    """The environment for git: no other repository, English output, no prompts."""
    kept = {name: value for name, value in environment.items() if name not in ELSEWHERE}
    return {**kept, "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0"}


def run_git(*words: str | Path, folder: Path, environment: Environment) -> bytes:
    """Git's output; OperationFailed with the line that names the cause if it fails."""
    try:
        done = subprocess.run(
            ["git", *NO_PROGRAMS, *words],
            cwd=folder,
            env=clean_environment(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
        )
    except FileNotFoundError:
        hint = "install git"
        raise InvalidInput("herd needs git to find out which files to ship", hint=hint) from None
    stderr = done.stderr.decode(errors="replace").strip()
    if done.returncode:
        raise OperationFailed(f"git: {error_cause(stderr) or done.returncode}")
    if "could not open directory" in stderr:
        raise InvalidInput(f"some folders in {folder} can't be read: {stderr.splitlines()[-1]}")
    return done.stdout


def error_cause(stderr: str) -> str:
    """The cause among git's complaints: the first line that is neither warning nor hint."""
    lines = [line for line in stderr.splitlines() if not line.startswith(("warning:", "hint:"))]
    return lines[0].removeprefix("fatal: ") if lines else stderr


def is_work_tree(folder: Path) -> bool:
    """Whether the folder is inside a git work tree."""
    return any((above / ".git").exists() for above in (folder, *folder.parents))


def split_paths(listed: bytes) -> set[bytes]:
    """The paths of a list in which each ends in a zero byte."""
    return {path for path in listed.split(b"\0") if path}


def listed_paths(listing: Listing) -> set[bytes]:
    """The paths of a listing; those of nested repositories may end in "/"."""
    return (split_paths(listing.found) | listing.tracked) - split_paths(listing.left)


def list_files(folder: Path, empty: Path, environment: Environment, kinds: str = "-co") -> Listing:
    """The paths to ship: those git does not ignore, or all outside of git, without .herdignore's.

    `empty` is the path for an empty repository; `kinds` is "-o" to leave out tracked files.
    """
    ignore = folder / HERDIGNORE
    excluded: list[str | Path] = ["-X", HERDIGNORE] if ignore.is_file() else []
    if is_work_tree(folder):
        words: list[str | Path] = ["ls-files", kinds, "--exclude-standard", "-z"]
        found, left = run_git(*words, folder=folder, environment=environment), b""
        if excluded:
            words = ["ls-files", "-coi", "-z", *excluded]
            left = run_git(*words, folder=folder, environment=environment)
        return Listing(found, left)
    ensure_bare_repo(empty, environment)
    words = [f"--git-dir={empty}", f"--work-tree={folder}", "ls-files", "-o", "-z", *excluded]
    return Listing(run_git(*words, folder=folder, environment=environment), b"")


def index_path(folder: Path, environment: Environment) -> Path:
    """The path of git's index."""
    output = run_git("rev-parse", "--git-path", "index", folder=folder, environment=environment)
    return folder / os.fsdecode(output.removesuffix(b"\n"))


def stamp_index(index: Path) -> IndexStamp | None:
    """The stamp of the index as it is now; None if it has no checksum."""
    try:
        with index.open("rb") as file:
            file.seek(-CHECKSUM, os.SEEK_END)
            checksum, found = file.read(), os.fstat(file.fileno())
    except OSError:  # not written yet
        return None
    if not any(checksum):  # with index.skipHash
        return None
    times = found.st_mtime_ns, found.st_ctime_ns
    return IndexStamp(*times, found.st_size, found.st_ino, found.st_dev, checksum)


def tracked_paths(
    folder: Path, environment: Environment
) -> tuple[frozenset[bytes], frozenset[bytes]]:
    """The paths of the index, and those of them that git compares with the work tree: no submodules
    and no paths marked assume-unchanged or skip-worktree.
    """
    output = run_git("ls-files", "-s", "-v", "-z", folder=folder, environment=environment)
    lines = output.split(b"\0")[:-1]
    start = lines[0].index(b"\t") + 1 if lines else 0
    looked_at = frozenset(line[start:] for line in lines if line.startswith(ITSELF))
    return frozenset(line[start:] for line in lines), looked_at


def changed_paths(folder: Path, environment: Environment) -> set[bytes]:
    """The paths whose files differ from the index."""
    words = [*STRICT, "diff-files", "--name-only", "-z", "--relative", "--ignore-submodules=all"]
    without = turn_filters_off(folder, environment)
    return split_paths(run_git(*words, "--", ".", folder=folder, environment=without))


def turn_filters_off(folder: Path, environment: Environment) -> Environment:
    """The environment in which no filter of git's settings runs; files then differ at most more."""
    words = "config", "-z", "--name-only", "--get-regexp", FILTERS
    try:
        names = split_paths(run_git(*words, folder=folder, environment=environment))
    except OperationFailed:
        return environment  # there is none
    first = int(environment.get("GIT_CONFIG_COUNT") or 0)
    found = {**environment, "GIT_CONFIG_COUNT": str(first + len(names))}
    for number, name in enumerate(sorted(names), first):
        found[f"GIT_CONFIG_KEY_{number}"] = os.fsdecode(name)
        found[f"GIT_CONFIG_VALUE_{number}"] = "false" if name.endswith(b".required") else ""
    return found


def ensure_bare_repo(folder: Path, environment: Environment) -> None:
    """Create a bare repository if it does not exist."""
    if not (folder / "HEAD").exists():
        make_private_folder(folder)
        run_git("init", "-q", "--bare", folder, folder=folder, environment=environment)


def redact_url(url: str) -> str:
    """The URL without user name and password."""
    return re.sub(r"(?<=://)[^/@]*@", "", url)


def fetch_commit(
    url: str, ref: str, repositories: Path, environment: Environment
) -> tuple[Path, str]:
    """A local repository that has the commit, and the commit's full hash."""
    if ref.startswith("-") or url.startswith("-") or not ref:
        raise InvalidInput(f"{ref or url!r} is not a commit")
    folder = repositories / hashlib.sha256(url.encode()).hexdigest()[:16]
    ensure_bare_repo(folder, environment)

    def ask(*words: str) -> str | None:
        try:
            return run_git(*words, folder=folder, environment=environment).decode().strip()
        except OperationFailed:
            return None

    if SHA.fullmatch(ref) and (found := ask("rev-parse", "-q", "--verify", f"{ref}^{{commit}}")):
        return folder, found
    wanted = "refs/herd/wanted"
    if ask("fetch", "-q", "--depth=1", "--no-tags", "--force", url, f"{ref}:{wanted}") is not None:
        found = ask("rev-parse", "-q", "--verify", f"{wanted}^{{commit}}")
        if found:
            return folder, found
    every = ["+refs/heads/*:refs/remotes/it/*", "+refs/tags/*:refs/tags/*"]
    try:
        run_git("fetch", "-q", "--prune", url, *every, folder=folder, environment=environment)
    except OperationFailed as error:
        raise OperationFailed(
            f"can't fetch {redact_url(url)}: {redact_url(error.sentence)}"
        ) from None
    for name in (f"refs/remotes/it/{ref}", f"refs/tags/{ref}", ref):
        if found := ask("rev-parse", "-q", "--verify", f"{name}^{{commit}}"):
            return folder, found
    raise NotFound(f"{redact_url(url)} has no {ref}", hint="push it or choose another commit")


class CommitEntry(NamedTuple):
    """A file or submodule of a commit."""

    path: bytes
    mode: int
    name: str  #: git's hash of the content
    size: int


def list_commit(folder: Path, commit: str, environment: Environment) -> list[CommitEntry]:
    """All entries of a commit, sorted by path."""
    found = []
    words = ["ls-tree", "-r", "-l", "-z", "--full-tree", commit]
    for each in split_paths(run_git(*words, folder=folder, environment=environment)):
        facts, _, path = each.partition(b"\t")
        mode, _, name, size = facts.decode().split()
        found.append(CommitEntry(path, int(mode, 8), name, 0 if size == "-" else int(size)))
    return sorted(found)


@contextmanager
def read_contents(
    folder: Path, wanted: Sequence[str], environment: Environment
) -> Iterator[Iterator[Iterator[bytes]]]:
    """The contents of these objects, one after the other; read each to its end."""
    with tempfile.TemporaryFile() as asked:
        asked.write("".join(f"{name}\n" for name in wanted).encode())
        asked.seek(0)
        words = ["git", *NO_PROGRAMS, "cat-file", "--batch"]
        with subprocess.Popen(
            words,
            cwd=folder,
            env=clean_environment(environment),
            stdin=asked,
            stdout=subprocess.PIPE,
        ) as process:
            assert process.stdout is not None
            try:
                yield (read_object(process.stdout) for _ in wanted)
            finally:
                process.kill()


def read_object(stream: IO[bytes]) -> Iterator[bytes]:
    """The next content in pieces."""
    head = stream.readline().split()
    if len(head) != 3:
        raise OperationFailed("git does not have all contents of the commit")
    left = int(head[2])
    while left:
        piece = stream.read(min(left, PIECE))
        if not piece:
            raise OperationFailed("git ended unexpectedly")
        left -= len(piece)
        yield piece
    stream.read(1)
