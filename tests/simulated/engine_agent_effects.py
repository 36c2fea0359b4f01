"""Effects of a virtual agent's decisions: frames, logs, processes, and a disk."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tests.simulated.engine_programs import KILL
from tpuherd.errors import NotReached
from tpuherd_host.agent import frames
from tpuherd_host.agent.state_machine import messages
from tpuherd_host.agent.state_machine.state import UNBORN, Ending

if TYPE_CHECKING:
    from tests.simulated.engine_hosts import Machine

SPAWN_S = 0.05
THREAD_S = 0.1
UNSEEN_S = 2.0


def ignored(machine: "Machine", effect: Any) -> None:
    """It means nothing here: terminals, input."""


def send(machine: "Machine", effect: messages.SendFrame) -> None:
    """A frame."""
    line = machine.lines.get(effect.connection)
    if line is not None and not line.broken:
        line.down.send(effect.frame)


def pour(machine: "Machine", effect: messages.SendLog) -> None:
    """A piece of a log."""
    log = machine.disk.logs.get(effect.work, bytearray())
    piece = bytes(log[effect.offset : effect.offset + effect.many])
    line = machine.lines.get(effect.connection)
    if line is not None and not line.broken:
        line.down.send(frames.pack_data(effect.call, effect.port, piece))


def hang(machine: "Machine", effect: messages.CloseConnection) -> None:
    """Close the connection."""
    line = machine.lines.get(effect.connection)
    if line is not None:
        machine.later(0.1, line.cut, NotReached("the agent hung up"))


def spawn(machine: "Machine", effect: messages.SpawnProcess) -> None:
    """Begin the current stage."""
    if machine.view.disk_full:
        why = "the host could not begin it: No space left on device"
        failed = messages.SpawnFailed(effect.work.id, 125, why, UNBORN)
        machine.later(0.0, machine.handle_event, failed)
        return
    machine.save(effect.work, False)
    machine.later(SPAWN_S, machine.begin, effect.work, machine.view.boot)


def send_signal(machine: "Machine", effect: messages.SendSignal) -> None:
    """To its leader, or to all of it."""
    process = machine.processes.get(effect.work.id)
    if process is not None:
        if effect.number == KILL and effect.whole:
            process.kill_all()
        else:
            process.signal(effect.number)


def sweep(machine: "Machine", effect: messages.SweepProcesses) -> None:
    """To all that is left of it, and count."""
    process = machine.processes.get(effect.work.id)
    left = 0
    if process is not None:
        if effect.number == KILL:
            process.kill_all()
        elif effect.number:
            process.signal(effect.number)
        left = int(process.alive) + process.left
    machine.later(0.0, machine.handle_event, messages.ProcessesCounted(effect.work.id, left))


def look_at_chips(machine: "Machine", effect: messages.FindChipUsers) -> None:
    """Who has them."""
    rows = () if machine.free() else ({"device": "/dev/accel0", "pid": 1, "command": "python3"},)
    machine.later(0.01, machine.handle_event, messages.ChipUsersFound(effect.work, rows))


def look_for_end(machine: "Machine", effect: messages.CheckAdopted) -> None:
    """An adopted one: does it still run, and how did it end?"""
    work = effect.work
    told = machine.disk.exits.get(work.id)
    if told is not None and told["pid"] != work.pid:
        told = None
    process = machine.processes.get(work.id)
    if told is None and process is not None and process.alive:
        return
    since = machine.unseen.setdefault(work.id, machine.now())
    if told is not None:
        ending = Ending(told["exit"], told["signal"])
        machine.later(0.0, machine.handle_event, messages.ProcessEnded(work.id, ending, told["at"]))
        machine.later(0.0, machine.handle_event, messages.OutputsClosed(work.id))
    elif machine.now() > since + UNSEEN_S:
        machine.later(
            0.0, machine.handle_event, messages.ProcessEnded(work.id, Ending(), machine.now())
        )


def tail(machine: "Machine", effect: messages.ReadLogTail) -> None:
    """Its last lines."""
    lines = machine.disk.lines.get(effect.work, [])[-20:]
    machine.later(0.0, machine.handle_event, messages.LogTailRead(effect.work, tuple(lines)))


def forget(machine: "Machine", effect: messages.ForgetTask) -> None:
    """All of it."""
    for kept in (machine.disk.works, machine.disk.before, machine.disk.logs, machine.disk.lines):
        kept.pop(effect.work.id, None)


def stamp(machine: "Machine", effect: messages.SaveStamp) -> None:
    """A step went well."""
    machine.disk.stamps.add(effect.stamp)


def keep(machine: "Machine", effect: messages.SaveEpochs) -> None:
    """The epochs."""
    machine.disk.epochs = dict(effect.epochs)


def sample(machine: "Machine", effect: messages.ReadSample) -> None:
    """What the host does now, if that is set."""
    if machine.sample is not None:
        machine.later(THREAD_S, machine.handle_event, messages.HostSampled(machine.sample))


def thread(machine: "Machine", effect: messages.StartThread) -> None:
    """A verb that reads files or waits: what it says on a virtual host."""
    answer = ANSWERS.get(effect.verb, nothing)(machine, effect.content)
    machine.later(
        THREAD_S,
        machine.handle_event,
        messages.ThreadAnswered(effect.connection, effect.call, answer),
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
    "chips.free": lambda machine, content: {"ended": [], "held": machine.used_by},
    "stacks": stacks,
    "environment.look": lambda machine, content: {
        "platform": "linux", "snapshot": "a" * 64, "placed": True,
    },
    "image.look": lambda machine, content: {"engine": "docker", "id": "sha256:1"},
}  # fmt: skip
EFFECTS: Mapping[type[Any], Callable[["Machine", Any], None]] = {
    messages.SendFrame: send,
    messages.SendLog: pour,
    messages.CloseConnection: hang,
    messages.SpawnProcess: spawn,
    messages.SendSignal: send_signal,
    messages.SweepProcesses: sweep,
    messages.FindChipUsers: look_at_chips,
    messages.CheckAdopted: look_for_end,
    messages.FeedInput: lambda machine, effect: machine.handle_event(
        messages.InputConsumed(effect.work, len(effect.piece or b""))
    ),
    messages.AppendNote: lambda machine, effect: machine.write(
        effect.work.id, effect.port, effect.sentence
    ),
    messages.ReadLogTail: tail,
    messages.SaveTask: lambda machine, effect: machine.save(effect.work, effect.hard),
    messages.ForgetTask: forget,
    messages.SaveEpochs: keep,
    messages.SaveStamp: stamp,
    messages.ReadSample: sample,
    messages.StartThread: thread,
}
