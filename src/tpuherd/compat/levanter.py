"""Translates the options of Levanter's scripts into a job."""

import re
import secrets
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tpuherd.errors import InvalidInput

HOME_FOLDER = "~/.levanter"  #: on hosts: the scripts, and where the environment is
SCRIPTS = Path(__file__).parent / "levanter_scripts"
VENV_SETUP, NFS_SETUP = "setup-tpu-vm.sh", "setup-tpu-vm-nfs.sh"
NFS_VARIABLES = ("NFS_SERVER", "MOUNT_POINT")
MOUNT_POINT = "/files"  #: unless the variable says another
ID_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
ID_LENGTH = 8
ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
#: Variables whose values are kept out of job files, logs and events.
SECRET = re.compile(r".*(KEY|TOKEN|SECRET|PASSWORD|CREDENTIALS)")
JOB_NAME = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")
END_OF_FILE = "END_OF_LEVANTER_FILE"


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeOptions:
    """The node, as spin-up-vm.sh and launch.py describe it."""

    name: str
    type: str
    zone: str = ""  #: "": where grants allow
    tier: str = "on-demand"
    runtime: str = ""
    subnetwork: str = ""
    slices: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoteCommand:
    """A command with the variables that were written before it."""

    words: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)  #: without secrets
    secrets: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class CodeAndSetup:
    """Which code a host gets, and the script that prepares it."""

    workdir: str = ""
    repo: str = ""
    setup: str = ""  #: shell text
    in_code: bool = False  #: where commands begin, instead of the home folder
    nfs: Mapping[str, str] = field(default_factory=dict)  #: folders that all hosts mount


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    """What follows a failure and the end."""

    failures: int | None  #: restarts after a failure; None: without end
    keep: bool  #: the node, when the command has ended


def new_run_id() -> str:
    """Return a new id as W&B likes it: eight of a-z and 0-9."""
    return "".join(secrets.choice(ID_LETTERS) for _ in range(ID_LENGTH))


def job_name_for_node(node: str) -> str:
    """Return the name of the job that holds a node of this name; slots' names end in a number."""
    name = f"{node}-run" if re.search(r"-[0-9]+$", node) else node
    if not JOB_NAME.fullmatch(name):
        raise InvalidInput(f"{node!r} can't be a TPU's name: use a-z, 0-9 and -, a letter first")
    return name


def parse_command(words: Sequence[str]) -> RemoteCommand:
    """Take the assignments off the front of a command; a shell needs no part in it."""
    env: dict[str, str] = {}
    rest = list(words)
    while rest and (match := ASSIGNMENT.fullmatch(rest[0])):
        env[match[1]] = match[2]
        rest.pop(0)
    if not rest:
        raise InvalidInput("give the command after --, such as -- python3 train.py")
    return split_secrets(RemoteCommand(words=tuple(rest), env=env))


def split_secrets(command: RemoteCommand) -> RemoteCommand:
    """Keep the values of keys and tokens apart."""
    hidden = {name: value for name, value in command.env.items() if SECRET.fullmatch(name)}
    open_ = {name: value for name, value in command.env.items() if name not in hidden}
    return RemoteCommand(words=command.words, env=open_, secrets={**command.secrets, **hidden})


def build_job(
    node: NodeOptions,
    code: CodeAndSetup,
    command: RemoteCommand | None,
    ending: Ending,
    run_id: str,
) -> dict[str, Any]:
    """Return the job as a document; without a command, a node to keep."""
    # All attempts have the same id, and so continue one run in W&B and in the bucket.
    env = {**(command.env if command else {}), **({"RUN_ID": run_id} if run_id else {})}
    fields: dict[str, Any] = {
        "name": job_name_for_node(node.name),
        "accelerator": node.type,
        "zones": node.zone or None,
        "tier": node.tier,
        "runtime": node.runtime or None,
        "slices": node.slices if node.slices > 1 else None,
        "network": {"subnetwork": node.subnetwork} if node.subnetwork else None,
        "node_name": node.name,
        "workdir": code.workdir or None,
        "repo": code.repo or None,
        "nfs": dict(code.nfs),
        "setup": code.setup or None,
        "env": env or None,
        "secrets": {name: {"env": name} for name in sorted(command.secrets)} if command else None,
        "run": command_text(command.words, in_code=code.in_code) if command else None,
        "retry": {"failures": "unlimited" if ending.failures is None else ending.failures},
        "node": {"done": "keep", "failed": "keep"} if ending.keep else None,
    }
    return {name: value for name, value in fields.items() if value not in (None, {})}


def command_text(words: Sequence[str], *, in_code: bool) -> str:
    """Return the shell text of a command, which begins in the code or in the home folder."""
    text = f"exec bash {HOME_FOLDER}/run.sh {shlex.join(words)}"
    return text if in_code else f"cd && {text}"


def setup_text(script: str) -> str:
    """Return the setup step that puts our scripts on a host, and runs one of the set-ups."""
    steps = read_script("prepare-host.sh") + read_script(script)
    return "\n".join((
        f"# Levanter: {script}",
        f"mkdir -p {HOME_FOLDER}",
        write_file("run.sh", read_script("run.sh")),
        write_file(script, steps),
        f"bash {HOME_FOLDER}/{script}",
    ))  # fmt: skip


def own_setup_text(name: str, content: str, *, branch: str, repo: str) -> str:
    """Return the step that runs the user's own script as spin-up-vm.sh does."""
    arguments = shlex.join(["--branch", branch, "--repo", repo])
    return "\n".join((
        f"# Levanter: {name}",
        f"mkdir -p {HOME_FOLDER}",
        write_file("run.sh", read_script("run.sh")),
        write_file("own-setup.sh", content),
        f"cd && bash {HOME_FOLDER}/own-setup.sh {arguments}",
    ))  # fmt: skip


def read_script(name: str) -> str:
    return (SCRIPTS / name).read_text(encoding="utf-8")


def write_file(name: str, content: str) -> str:
    """Return shell text that writes a file into our folder on a host."""
    end = END_OF_FILE
    while f"\n{end}\n" in f"\n{content}\n":
        end += "_"
    text = content if content.endswith("\n") else content + "\n"
    return f"cat >{HOME_FOLDER}/{name} <<'{end}'\n{text}{end}"


def https_address(remote: str) -> str:
    """Return a repository's address for hosts, which have no key: git@HOST:PATH as https."""
    match = re.fullmatch(r"(?:ssh://)?git@([^:/]+)[:/](.+)", remote)
    return f"https://{match[1]}/{match[2]}" if match else remote
