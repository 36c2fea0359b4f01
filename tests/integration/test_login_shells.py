"""The agent starts below any login shell, whatever its start files print or start."""

import asyncio
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.integration.agents import Agents
from tpuherd.commands.host_script import run_on_host
from tpuherd.ports import Host
from tpuherd.remote.agent_bootstrap import (
    BootstrapSession,
    bootstrap_command,
    wait_for_hello,
)
from tpuherd.remote.agent_bundle import current_agent
from tpuherd.remote.agent_link import AgentLink
from tpuherd.remote.shell_line import quote_for_any_shell
from tpuherd_host.agent.frames import PROTOCOL

pytestmark = pytest.mark.real
HELLO = {"protocol": PROTOCOL, "who": "test", "owner": "me", "epoch": 0}
HOST = Host(node="n", zone="z", worker=0, incarnation="1", internal_ip="", external_ip=None)
NOISE = "echo 'Welcome!'"
#: A shell that refuses what csh refuses: a line break in quotes, and an event that is not found.
FUSSY = """#!/bin/sh
echo "Welcome to $0"
case "$2" in
    *"
"*) echo "Unmatched '." >&2; exit 1 ;;
    *!*) echo "Event not found." >&2; exit 1 ;;
esac
[ "$1" = -c ] && exec /bin/sh -c "$2"
exec /bin/sh
"""


class Pipe:
    """Stands in for the channel of SSH: the ends of a process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    def write(self, piece: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(piece)

    def is_closing(self) -> bool:
        return False

    def abort(self) -> None:
        if self.process.returncode is None:
            self.process.kill()


async def start_below(shell: str, home: Path) -> str:
    """Start the agent as sshd starts a command with this login shell; return what it says."""
    environ = {
        "PATH": os.environ["PATH"], "HOME": str(home), "SHELL": shell, "USER": "me",
        "SSH_CLIENT": "1", "SSH2_CLIENT": "1", "GCE_METADATA_HOST": "127.0.0.1:9",
    }  # fmt: skip
    process = await asyncio.create_subprocess_exec(
        shell, "-c", bootstrap_command(current_agent()),
        stdin=-1, stdout=-1, stderr=-1, env=environ, cwd=home,
    )  # fmt: skip
    session = BootstrapSession(current_agent(), HELLO)
    session.connection_made(Pipe(process))
    session.session_started()

    async def pump(stream: Any, kind: int | None) -> None:
        while piece := await stream.read(1 << 16):
            session.data_received(piece, kind)
        if kind is None:
            session.exit_status_received(await process.wait())
            session.connection_lost(None)

    pumps = [
        asyncio.create_task(pump(*one)) for one in ((process.stderr, 1), (process.stdout, None))
    ]
    hello: Any = {}
    try:
        hello = await asyncio.wait_for(wait_for_hello(session), 30)
        link = AgentLink(HOST, hello, session.multiplexer)
        return (await run_on_host(link, ("printenv", "HOME"))).out
    finally:
        if hello:
            os.kill(hello["pid"], signal.SIGKILL)
        session.close()
        await asyncio.gather(*pumps)


def check(shell: str, home: Path) -> None:
    for _ in ("the agent is sent", "it is there"):
        assert asyncio.run(start_below(shell, home)) == f"{home}\n"


def test_one_line_holds_for_every_shell() -> None:
    line = bootstrap_command(current_agent())
    assert line.isprintable()
    assert "!" not in line
    assert quote_for_any_shell("it's \\a\n!ü") == r"'it\0047s \0134a\0012\0041\0303\0274'"


def test_a_shell_like_csh_that_prints_something(tmp_path: Path) -> None:
    shell = tmp_path / "fussy"
    shell.write_text(FUSSY)
    shell.chmod(0o755)
    check(str(shell), tmp_path)


def test_a_start_file_that_becomes_another_shell(tmp_path: Path) -> None:
    shell = tmp_path / "becomes"
    shell.write_text(f"#!/bin/sh\n{NOISE}\nexec sh\n")
    shell.chmod(0o755)
    check(str(shell), tmp_path)


def test_a_start_file_that_reads_the_input(tmp_path: Path) -> None:
    shell = tmp_path / "reads"
    shell.write_text('#!/bin/sh\nread line\nexec sh "$@"\n')
    shell.chmod(0o755)
    check(str(shell), tmp_path)


@pytest.mark.parametrize(
    "then", [NOISE, f"{NOISE}; exec bash", f"{NOISE}; exec sh", f"{NOISE}; bash"]
)
@pytest.mark.parametrize(
    ("shell", "file"),
    [
        pytest.param("bash", ".bashrc", id="bash"),
        pytest.param("zsh", ".zshenv", id="zsh", marks=pytest.mark.needs("zsh")),
        pytest.param(
            "fish", ".config/fish/config.fish", id="fish", marks=pytest.mark.needs("fish")
        ),
        pytest.param("tcsh", ".tcshrc", id="tcsh", marks=pytest.mark.needs("tcsh")),
    ],
)
def test_shells_and_their_start_files(shell: str, file: str, then: str, tmp_path: Path) -> None:
    write_start_file(tmp_path / file, then)
    check(shutil.which(shell) or shell, tmp_path)


@pytest.mark.parametrize(
    "other", [pytest.param(name, marks=pytest.mark.needs(name)) for name in ("zsh", "tcsh")]
)
def test_bash_that_becomes_another_shell(other: str, tmp_path: Path) -> None:
    write_start_file(tmp_path / ".bashrc", f"exec {other}")
    check(shutil.which("bash") or "bash", tmp_path)


def write_start_file(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{content}\n")


def test_jobs_do_the_same_for_every_login_shell(home: Agents) -> None:
    shell = home.home / "fussy"
    shell.write_text(FUSSY)
    shell.chmod(0o755)
    home.environment["SHELL"] = str(shell)
    client = home.attach(epoch=1)
    line = "x=(a b); [[ ${x[1]} = b ]] || exit 3"
    client.call("start", attempt="a", slot="gpt-0", number=1, shell=line, setup=[{"shell": line}])
    work, records = client.records(client.ask("follow", attempt="a"))
    assert work["exit"] == 0, records
    work, records = client.run("b", shell="exit 4")
    assert work["exit"] == 4
    assert b"Welcome" in b"".join(record.piece for record in records), "a user's own line"
