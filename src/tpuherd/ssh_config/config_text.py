"""The text of our ssh configuration, and of the lines that include it in the user's own."""

import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tpuherd.errors import InvalidInput

BEGIN = "# >>> herd ssh --config >>>"
END = "# <<< herd ssh --config <<<"
NOTE = "# These lines are herd's; `herd ssh --config remove` deletes them."
HEAD = "# Written by herd, which changes it as your jobs change: see `herd ssh --config --help`.\n"
ODD_PATH = re.compile(r"[\x00-\x1f\"\\$%*?\[\]]")  #: ssh would read them as something else
HOST_LINE = re.compile(r"[ \t]*Host(?:[ \t]*=[ \t]*|[ \t]+)(.*)", re.I)
#: A socket's path has at most 104 bytes on macOS, ssh first binds one with 17 more, and %C is 40.
SOCKET_ROOM = 104 - 17 - 40 - 1
PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,200}")  #: a word of ssh's configuration
OPTIONS = """\
    IdentitiesOnly yes
    StrictHostKeyChecking yes
    UpdateHostKeys no
    Port 22
    ServerAliveInterval 5
    ServerAliveCountMax 3
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class SshProject:
    """A project or world whose hosts have names for ssh."""

    suffix: str  #: tells apart equal names of two projects: gpt-0.SUFFIX
    key: str  #: identifies the project
    title: str  #: the same for people
    herd: tuple[str, ...]  #: the program, with its first arguments
    login: str
    environ: Mapping[str, str]  #: what `herd` needs to find the project again
    jobs: tuple[str, ...] = ()  #: names of the hosts of jobs
    nodes: tuple[str, ...] = ()  #: names of the hosts of existing nodes

    @property
    def names(self) -> tuple[str, ...]:
        known = dict.fromkeys((*self.jobs, *self.nodes))
        return tuple(name for name in known if PLAIN_NAME.fullmatch(name))


@dataclass(frozen=True, kw_only=True, slots=True)
class SshFiles:
    """Where our files for ssh are."""

    folder: Path
    key: Path  #: our private key

    @property
    def config(self) -> Path:
        return self.folder / "config"

    def project_file(self, suffix: str) -> Path:
        return self.folder / f"{suffix}.json"

    def known_hosts(self, suffix: str) -> Path:
        return self.folder / f"{suffix}.known_hosts"

    def control_path(self, project: SshProject) -> str | None:
        """Return where shared connections listen; None if the folder's path is too long."""
        path = str(self.folder / project.key[-4:])
        return f"{path}%C" if len(path.encode()) <= SOCKET_ROOM else None


@dataclass(frozen=True, kw_only=True, slots=True)
class NamePlan:
    """Which names lead where."""

    names: Mapping[str, tuple[str, ...]]  #: by project
    shared: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  #: in several projects
    taken: tuple[str, ...] = ()  #: the user's own configuration has these names


def plan_names(projects: Sequence[SshProject], taken: Collection[str]) -> NamePlan:
    """Decide whose each name is. One that two projects have belongs to neither.

    With several projects, all names are also there with the project's suffix.
    """
    owners: dict[str, list[str]] = {}
    for project in projects:
        for name in project.names:
            owners.setdefault(name, []).append(project.suffix)
    free = {name: whose for name, whose in owners.items() if name not in taken}
    names = {
        project.suffix: (
            *(name for name in project.names if free.get(name) == [project.suffix]),
            *(f"{name}.{project.suffix}" for name in project.names if len(projects) > 1),
        )
        for project in projects
    }
    return NamePlan(
        names=names,
        shared={name: tuple(whose) for name, whose in free.items() if len(whose) > 1},
        taken=tuple(name for name in owners if name in taken),
    )


def write_config(projects: Sequence[SshProject], plan: NamePlan, files: SshFiles) -> str:
    """Return the whole of our configuration."""
    text = HEAD
    for project in projects:
        if plan.names[project.suffix]:
            title, names = " ".join(project.title.split()), " ".join(plan.names[project.suffix])
            text += f"\n# {title}\nHost {names}\n"
            text += "".join(f"    {line}\n" for line in host_lines(project, files)) + OPTIONS
    for name, suffixes in plan.shared.items():
        choice = " or ".join(f"{name}.{suffix}" for suffix in suffixes)
        sentence = f"{name} is in {len(suffixes)} projects: write {choice}"
        command = shlex.join((*projects[0].herd, "ssh-proxy", "--refuse", sentence))
        text += f"\nHost {name}\n    ProxyCommand {command}\n"
    return text


def host_lines(project: SshProject, files: SshFiles) -> Iterator[str]:
    """Yield the options that depend on the project."""
    yield f"User {project.login}"
    own = shlex.join((*project.herd, "ssh-proxy", str(files.project_file(project.suffix))))
    yield f"ProxyCommand {own} %h %r"
    yield f'IdentityFile "{files.key}"'
    yield f'UserKnownHostsFile "{files.known_hosts(project.suffix)}"'
    control = files.control_path(project)
    if control is not None:
        yield "ControlMaster auto"
        yield f'ControlPath "{control}"'
        yield "ControlPersist 10m"


def require_plain_words(project: SshProject, files: SshFiles) -> None:
    """Refuse what no quotes carry through every version of ssh."""
    for path in (str(files.folder), *project.herd):
        if ODD_PATH.search(path):
            raise InvalidInput(
                f"{path!r} has characters that ssh does not accept in its configuration",
                hint="set XDG_CONFIG_HOME to another folder, or install herd in another one",
            )
    if not PLAIN_NAME.fullmatch(project.login):
        raise InvalidInput(f"{project.login!r} is not a login name")


def own_host_names(text: str) -> frozenset[str]:
    """Return the names that a configuration has besides our lines; patterns are not among them."""
    found: set[str] = set()
    for line in replace_block(text, None).splitlines():
        match = HOST_LINE.fullmatch(line)
        for word in match[1].replace('"', " ").split() if match else ():
            if not set(word) & set("*?!"):
                found.add(word)
    return frozenset(found)


def replace_block(text: str, include: Path | None) -> str:
    """Return the user's configuration with our lines first, or without them.

    Lines after a `Host` would belong to that host, so ours must come before all others.
    """
    lines = text.splitlines(keepends=True)
    marks = [at for at, line in enumerate(lines) if line.strip() in (BEGIN, END)]
    if marks:
        if [lines[at].strip() for at in marks] != [BEGIN, END]:
            raise InvalidInput(
                f"the lines between {BEGIN!r} and {END!r} are damaged",
                hint="delete these lines and what is between them, then try again",
            )
        first, last = marks
        after = lines[last + 1 :]
        if after and not after[0].strip():
            after = after[1:]  # the empty line that we added
        lines = [*lines[:first], *after]
    if include is None:
        return "".join(lines)
    block = f'{BEGIN}\n{NOTE}\nInclude "{include}"\n{END}\n'
    return block + ("\n" if lines else "") + "".join(lines)
