"""The agent's facts for `herd check`, on a host with something of everything."""

import fcntl
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.agents import Agents, agents, until
from tpuherd.checks.host_facts import parse_host_facts

pytestmark = pytest.mark.real
HOLD = """
import fcntl, sys
file = open(sys.argv[1], "w")
fcntl.lockf(file, fcntl.LOCK_EX)
sys.stdin.read()
"""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Agents]:
    with agents(tmp_path, "3.8") as made:
        yield made


def test_check_tells_what_is_there_and_changes_nothing(home: Agents) -> None:
    home.environment |= {"WANDB_API_KEY": "s3cret", "MEGASCALE_NUM_SLICES": "2"}
    client = home.attach()
    lock = home.home / ".libtpu_lockfile"
    words = [sys.executable, "-c", HOLD, str(lock)]
    client.ask("run", id="holder", argv=words, stdin=True)
    client.ask("run", id="left", shell="sleep 987 & exit 0")
    client.ask("run", id="keyed", shell="exec sleep 986", env={"WANDB_API_KEY": "s3cret"})
    until(lambda: client.call("holders")["holders"])
    until(lambda: [work["phase"] for work in client.call("commands")["commands"]].count("ended"))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        told = client.call("check", ports=[port], pythons=[sys.executable, "no/such/python"])
    assert "s3cret" not in repr(told)
    facts = parse_host_facts(told)
    assert facts.failed == {}
    assert facts.disks[0].path == "/" and facts.host.memory.total > facts.host.memory.available > 0
    [mine] = [one for one in facts.locks if one.path == str(lock)]
    assert (mine.held, mine.usable, mine.ours, mine.work) == (True, True, True, "holder")
    assert [one.command for one in facts.leftovers] == ["sleep 987"]
    assert {task.id for task in facts.tasks} == {"holder", "keyed"}
    assert [(one.port, one.address, bool(one.pid)) for one in facts.ports] == [
        (port, "127.0.0.1", True)
    ]
    assert facts.load.threads > 3 and facts.load.biggest[0].bytes > 0
    [slices] = [row for row in facts.settings.variables if row.name == "MEGASCALE_NUM_SLICES"]
    assert (slices.value, slices.where) == ("2", "login")
    assert facts.wandb.logins == ("WANDB_API_KEY",) and "keyed" in facts.wandb.tasks
    assert facts.pythons[0].path == sys.executable and facts.pythons[0].version.startswith("3.")
    assert client.call("check", ports=[])["ports"] == []
    with lock.open("r+") as file, pytest.raises(BlockingIOError):
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # it is still held
