"""What follows from a virtual agent's judgement: frames, logs, processes, and a disk."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tests.simulated.engine_programs import KILL
from tpuherd.errors import NotReached
from tpuherd_host.agent import frames, words
from tpuherd_host.agent.state import Ending

if TYPE_CHECKING:
    from tests.simulated.engine_hosts import Machine

SPAWN_S = 0.05
THREAD_S = 0.1
UNSEEN_S = 2.0


def ignored(machine: "Machine", deed: Any) -> None:
    """It means nothing here: terminals, input."""


def send(machine: "Machine", deed: words.SendFrame) -> None:
    """A frame."""
    line = machine.lines.get(deed.connection)
    if line is not None and not line.broken:
        line.down.send(deed.frame)


def pour(machine: "Machine", deed: words.SendLog) -> None:
    """A piece of a log."""
    log = machine.disk.logs.get(deed.work, bytearray())
    piece = bytes(log[deed.offset : deed.offset + deed.many])
    line = machine.lines.get(deed.connection)
    if line is not None and not line.broken:
        line.down.send(frames.pack_data(deed.call, deed.port, piece))


def hang(machine: "Machine", deed: words.CloseConnection) -> None:
    """Close the connection."""
    line = machine.lines.get(deed.connection)
    if line is not None:
        machine.later(0.1, line.cut, NotReached("the agent hung up"))


def spawn(machine: "Machine", deed: words.SpawnProcess) -> None:
    """Begin the current stage."""
    if machine.view.disk_full:
        why = "the host could not begin it: No space left on device"
        machine.later(0.0, machine.happen, words.SpawnFailed(deed.work.id, 125, why))
        return
    machine.save(deed.work, False)
    machine.later(SPAWN_S, machine.begin, deed.work, machine.view.boot)


def send_signal(machine: "Machine", deed: words.SendSignal) -> None:
    """To its leader, or to all of it."""
    process = machine.processes.get(deed.work.id)
    if process is not None:
        if deed.number == KILL and deed.whole:
            process.kill_all()
        else:
            process.signal(deed.number)


def sweep(machine: "Machine", deed: words.SweepProcesses) -> None:
    """To all that is left of it, and count."""
    process = machine.processes.get(deed.work.id)
    left = 0
    if process is not None:
        if deed.number == KILL:
            process.kill_all()
        elif deed.number:
            process.signal(deed.number)
        left = int(process.alive) + process.left
    machine.later(0.0, machine.happen, words.ProcessesCounted(deed.work.id, left))


def look_at_chips(machine: "Machine", deed: words.FindChipUsers) -> None:
    """Who has them."""
    rows = () if machine.free() else ({"device": "/dev/accel0", "pid": 1, "command": "python3"},)
    machine.later(0.01, machine.happen, words.ChipUsersFound(deed.work, rows))


def look_for_end(machine: "Machine", deed: words.CheckAdopted) -> None:
    """An adopted one: does it still run, and how did it end?"""
    work = deed.work
    told = machine.disk.exits.get(work.id)
    if told is not None and told["pid"] != work.pid:
        told = None
    process = machine.processes.get(work.id)
    if told is None and process is not None and process.alive:
        return
    since = machine.unseen.setdefault(work.id, machine.now())
    if told is not None:
        ending = Ending(told["exit"], told["signal"])
        machine.later(0.0, machine.happen, words.ProcessEnded(work.id, ending, told["at"]))
        machine.later(0.0, machine.happen, words.OutputsClosed(work.id))
    elif machine.now() > since + UNSEEN_S:
        machine.later(0.0, machine.happen, words.ProcessEnded(work.id, Ending(), machine.now()))


def tail(machine: "Machine", deed: words.ReadLogTail) -> None:
    """Its last lines."""
    lines = machine.disk.lines.get(deed.work, [])[-20:]
    machine.later(0.0, machine.happen, words.LogTailRead(deed.work, tuple(lines)))


def forget(machine: "Machine", deed: words.ForgetTask) -> None:
    """All of it."""
    for kept in (machine.disk.works, machine.disk.before, machine.disk.logs, machine.disk.lines):
        kept.pop(deed.work.id, None)


def stamp(machine: "Machine", deed: words.SaveStamp) -> None:
    """A step went well."""
    machine.disk.stamps.add(deed.stamp)


def keep(machine: "Machine", deed: words.SaveEpochs) -> None:
    """The epochs."""
    machine.disk.epochs = dict(deed.epochs)


def thread(machine: "Machine", deed: words.StartThread) -> None:
    """A verb that reads files or waits: what it says on a virtual host."""
    answer = ANSWERS.get(deed.verb, nothing)(machine, deed.content)
    machine.later(
        THREAD_S, machine.happen, words.ThreadAnswered(deed.connection, deed.call, answer)
    )


def nothing(machine: "Machine", content: Mapping[str, Any]) -> Mapping[str, Any]:
    """A verb that has nothing to say here."""
    return {}


def holders(machine: "Machine", content: Mapping[str, Any]) -> Mapping[str, Any]:
    """Who has the chips."""
    rows = [] if machine.free() else [{"device": "/dev/accel0", "pid": 1, "ours": True}]
    return {"holders": rows, "devices": ["/dev/accel0"]}


def facts(machine: "Machine", content: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the host is."""
    return {"boot": machine.boot, "host": machine.view.name, "time": machine.now()}


def stacks(machine: "Machine", content: Mapping[str, Any]) -> Mapping[str, Any]:
    """Where the processes of an attempt are."""
    process = machine.processes.get(str(content.get("attempt", "")))
    if process is None or not process.alive:
        return {"processes": []}
    text = "File train.py, line 7, in wait"
    return {"processes": [{"pid": process.pid, "command": "python3 train.py", "text": text}]}


ANSWERS: Mapping[str, Callable[["Machine", Mapping[str, Any]], Mapping[str, Any]]] = {
    "facts": facts,
    "holders": holders,
    "clean": lambda machine, content: {
        "ended": [], "left": [], "removed": [], "mended": [], "holders": [],
    },
    "stacks": stacks,
}  # fmt: skip
DEEDS: Mapping[type[Any], Callable[["Machine", Any], None]] = {
    words.SendFrame: send,
    words.SendLog: pour,
    words.CloseConnection: hang,
    words.SpawnProcess: spawn,
    words.SendSignal: send_signal,
    words.SweepProcesses: sweep,
    words.FindChipUsers: look_at_chips,
    words.CheckAdopted: look_for_end,
    words.FindAptHolder: lambda machine, deed: machine.happen(words.AptHolderFound(deed.work, "")),
    words.FeedInput: lambda machine, deed: machine.happen(
        words.InputConsumed(deed.work, len(deed.piece or b""))
    ),
    words.AppendNote: lambda machine, deed: machine.write(deed.work.id, deed.port, deed.sentence),
    words.ReadLogTail: tail,
    words.SaveTask: lambda machine, deed: machine.save(deed.work, deed.hard),
    words.ForgetTask: forget,
    words.SaveEpochs: keep,
    words.SaveStamp: stamp,
    words.StartThread: thread,
}
