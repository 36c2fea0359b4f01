"""The script that `exec_command` returns: it prepares a host and starts a program there."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

#: On hosts: the lock that what start_fn started holds, and the program's process group and output.
FOLDER = ".tpucare"
BUSY, GROUP, LOG = f"{FOLDER}/busy", f"{FOLDER}/model.group", "model.log"
WANDB_HOST = "api.wandb.ai"
OTHERS_HOME = "/home/ubuntu/"  #: the only login of scripts for TPU Care; here it is yours


@dataclass(frozen=True, kw_only=True, slots=True)
class SetupOptions:
    """What to install and run."""

    repository: str
    wandb_key: str | None
    branch: str
    setup_command: str
    run_command: str
    install_python: bool
    pkilled: Sequence[str]


def build_script(asked: SetupOptions) -> str:
    """Return a script for bash that stops at the first step that fails."""
    folder = repository_folder(asked.repository)
    steps = [
        *(install_steps() if asked.install_python else ()),
        stop_step(folder),
        f"git clone --quiet --depth 1 --branch {shlex.quote(asked.branch)}"
        f" {shlex.quote(asked.repository)}",
        f"cd {shlex.quote(folder)}",
        *(wandb_steps(asked.wandb_key) if asked.wandb_key is not None else ()),
        with_own_home(asked.setup_command),
        start_step(folder, asked),
    ]
    return " &&\\\n".join(steps) + "\n"


def repository_folder(repository: str) -> str:
    """Return the folder that git clones into."""
    name = repository.rstrip("/").rpartition("/")[2]
    return name.removesuffix(".git").removesuffix(".bundle")


def install_steps() -> list[str]:
    """Install git and pip where they are missing, as most images have both."""
    there = "command -v git && command -v python3 && python3 -m pip --version"
    apt = "sudo apt-get -o DPkg::Lock::Timeout=-1"
    install = f"{apt} update && {apt} install -y git python3 python3-pip"
    return [f"{{ ( {there} ) >/dev/null 2>&1 || {{ {install} ; }} ; }}"]


def stop_step(folder: str) -> str:
    """End what the last script started; no other program of the host is touched."""
    group = f"$(cat ~/{GROUP} 2>/dev/null)"
    gone = f"{{ kill -- -{group} 2>/dev/null && sleep 1 && kill -9 -- -{group} 2>/dev/null ; }}"
    return f"{{ {gone} ; rm -rf {shlex.quote(folder)} ~/{GROUP} ; mkdir -p ~/{FOLDER} ; }}"


def wandb_steps(key: str) -> list[str]:
    """Install wandb, and write the key where it looks for it.

    `printf` is a builtin of bash: the key never stands in a process's arguments.
    """
    have = "python3 -c 'import wandb' 2>/dev/null"
    install = "python3 -m pip install --quiet --upgrade wandb typer click"
    line = shlex.quote(f"machine {WANDB_HOST}\n  login user\n  password {key}\n")
    other = f"grep -q {WANDB_HOST} ~/.netrc 2>/dev/null"
    return [
        f"{{ {have} || {install} ; }}",
        f"{{ {other} || ( umask 077 && printf %s {line} >> ~/.netrc ) ; }}",
    ]


def start_step(folder: str, asked: SetupOptions) -> str:
    """Start the program in a session of its own, where it outlives this script."""
    kills = "".join(f"pkill -f {shlex.quote(one)} ; " for one in asked.pkilled)
    # exec'd by setsid: its process id is that of its group
    run = f"echo $$ > ~/{GROUP} ; cd ~/{shlex.quote(folder)} ; git pull --quiet ; "
    program = shlex.quote(run + with_own_home(asked.run_command))
    return f"{{ {kills}setsid bash -c {program} > ~/{LOG} 2>&1 < /dev/null & }}"


def with_own_home(command: str) -> str:
    return re.sub(re.escape(OTHERS_HOME), "$HOME/", command)


def hold_busy(command: str) -> str:
    """Make a command, and all that it leaves running, hold the lock of BUSY."""
    return f"mkdir -p ~/{FOLDER} && exec 9>>~/{BUSY} && flock -s 9\n{command}"


BUSY_STATUS = 75
#: Exits with BUSY_STATUS while something holds the lock.
CHECK_BUSY = f"mkdir -p ~/{FOLDER} && flock -n -x -E {BUSY_STATUS} ~/{BUSY} true"
