"""What an agent's supervisor keeps open, and what it and the agent record."""

import json
import os
import signal
from pathlib import Path

import pytest

from tests.integration.agents import Agents, say, sleeps, status, text, until

pytestmark = pytest.mark.real

FILES_MAX = 20  #: that a supervisor with nothing to do has open
KEYS = ("phase", "exit", "pid", "ended", "rusage", "length")


def test_a_task_whose_output_was_read_is_released(home: Agents) -> None:
    """Else a host took no more commands after the five hundredth: too many open files."""
    client = home.attach()
    for number in range(FILES_MAX):
        assert client.run(f"a-{number}", shell="echo one; echo two >&2")[0]["exit"] == 0
    assert client.run("b", argv=["no-such-program"])[0]["exit"] == 127
    assert len(list(Path(f"/proc/{home.supervisor_pid(client)}/fd").iterdir())) < FILES_MAX


def test_a_signal_reaches_a_command_that_was_just_started(home: Agents) -> None:
    client = home.attach()
    id = client.ask("run", id="a", argv=["sleep", "1000"])
    client.call("signal", id="a", signal=int(signal.SIGTERM))
    assert client.stream(id)[0]["signal"] == signal.SIGTERM


def test_a_process_is_reported_as_soon_as_it_runs(home: Agents) -> None:
    client = home.attach()
    id = client.ask("run", id="a", argv=["sleep", "1000"])
    pid = until(lambda: client.call("commands")["commands"][0]["pid"])
    os.kill(pid, signal.SIGKILL)
    assert client.stream(id)[0]["signal"] == signal.SIGKILL


def test_a_command_waits_while_the_supervisor_is_paused(home: Agents) -> None:
    client = home.attach()
    assert client.run("a", argv=["true"])[0]["exit"] == 0
    os.kill(supervisor := home.supervisor_pid(client), signal.SIGSTOP)
    try:
        id = client.ask("run", id="b", argv=["sleep", "1000"])
        [work] = client.call("commands", id="b")["commands"]
        assert (work["id"], work["phase"]) == ("b", "starting")
        client.ask("stop", id="b", grace_s=0.0)
        assert len(client.call("commands")["commands"]) == 2
        assert client.call("commands", id="c")["commands"] == []
    finally:
        os.kill(supervisor, signal.SIGCONT)
    assert client.stream(id)[0]["signal"] in (signal.SIGTERM, signal.SIGKILL)


def test_another_agent_knows_how_a_command_ended(home: Agents) -> None:
    client = home.attach()
    told, records = client.run("a", shell="echo one; exit 5")
    home.kill(client)
    again = home.attach()
    [work] = again.call("commands")["commands"]
    assert [work[key] for key in KEYS] == [told[key] for key in KEYS]
    assert text(again.records(again.ask("attach", id="a"))[1]) == text(records) == b"one\n"


def test_an_end_that_only_the_supervisor_recorded_is_known(home: Agents) -> None:
    """An earlier version's agent left the end of a command to the supervisor's file."""
    client = home.attach()
    os.mkfifo(home.home / "go")
    id = client.ask("run", id="a", shell="echo one; read x <go; exit 5")
    client.data(id, 5)
    folder = home.folder / "commands" / "a"
    begun = (folder / "status.json").read_bytes()
    say(home.home / "go", "\n")
    told = client.stream(id)[0]
    until((folder / "exit").exists)
    home.kill(client)
    assert not (folder / "out").exists()
    (folder / "status.json").write_bytes(begun)
    again = home.attach()
    work, records = again.records(again.ask("attach", id="a"))
    assert [work[key] for key in KEYS] == [told[key] for key in KEYS]
    assert (text(records), status(folder)["phase"]) == (b"one\n", "ended")


@pytest.mark.root
def test_the_agent_records_what_the_supervisor_could_not(small: Agents) -> None:
    client = small.attach()
    os.mkfifo(small.home / "go")
    id = client.ask("run", id="a", shell="echo one; read x <go; exit 5")
    client.data(id, 5)
    folder = small.folder / "commands" / "a"
    filler = small.home / "filler"
    with pytest.raises(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 12))
    say(small.home / "go", "\n")
    assert client.stream(id)[0]["exit"] == 5
    # The supervisor reports the end before it writes it down: it has tried when it sleeps again.
    until(lambda: (folder / "exit").exists() and sleeps(small.supervisor_pid(client)))
    assert (folder / "exit").stat().st_size == 0
    filler.unlink()
    until(lambda: status(folder).get("phase") == "ended")
    assert json.loads((folder / "status.json").read_text())["ending"]["exit"] == 5
    small.kill(client)
    [work] = small.attach().call("commands")["commands"]
    assert (work["phase"], work["exit"]) == ("ended", 5)
