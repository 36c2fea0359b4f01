"""How each deed is done: what goes to connections and processes; the rest is in flows."""

import os
import sys

from tpuherd_host.agent import flows, nurse, processes, shelf, threads, words
from tpuherd_host.agent.frames import data
from tpuherd_host.agent.reports import VARIABLE, place
from tpuherd_host.agent.state import COMMAND, Ending, Work
from tpuherd_host.agent.thin import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    List,
    Mapping,
    Optional,
    Type,
    import_module,
    signal,
)
from tpuherd_host.agent.verbs import THREADED

if TYPE_CHECKING:
    from tpuherd_host.agent.daemon import Daemon

UNSEEN_S = 2.0  #: how long its nurse may take to write down how a process ended
FAILED = {  # of an exec, by its errno: exit status, and what is told
    2: (127, "{}: command not found"),
    20: (127, "{}: command not found"),
    13: (126, "{}: not allowed to execute it"),
    8: (126, "{}: not a program"),
    7: (126, "{}: its arguments and environment are too long"),
}
LINE = "; a line for the shell goes after -c"
NO_DIRECTORY = (125, "no such directory on the host: {}")


# ---- connections ---------------------------------------------------------------------------------


def send(daemon: "Daemon", deed: words.Send) -> None:
    """A frame."""
    daemon.doors.say(deed.connection, deed.frame)


def pour(daemon: "Daemon", deed: words.Pour) -> None:
    """A piece of a log."""
    work = daemon.state.works.get(deed.work)
    if work is not None:
        piece = flows.outlet_of(daemon, work).log.read(deed.offset, deed.many)
        daemon.doors.say(deed.connection, data(deed.call, deed.port, piece))


def hang(daemon: "Daemon", deed: words.Hang) -> None:
    """Close it."""
    daemon.doors.hang(deed.connection)


def thread(daemon: "Daemon", deed: words.Thread) -> None:
    """Begin a threaded verb."""
    talk = threads.Talk(daemon.house, deed.content, deed.connection, deed.call)
    daemon.talks[deed.connection, deed.call] = talk
    threads.begin(THREADED[deed.verb], talk)


def hand(daemon: "Daemon", deed: words.Hand) -> None:
    """Bytes for it."""
    talk = daemon.talks.get((deed.connection, deed.call))
    if talk is not None:
        talk.hand(deed.port, deed.piece)


def grant(daemon: "Daemon", deed: words.Grant) -> None:
    """It may send more."""
    talk = daemon.talks.get((deed.connection, deed.call))
    if talk is not None:
        talk.grant(deed.many)


def drop(daemon: "Daemon", deed: words.Drop) -> None:
    """Nobody waits for it, or it is through."""
    talk = daemon.talks.pop((deed.connection, deed.call), None)
    if talk is not None:
        talk.drop()


# ---- processes -----------------------------------------------------------------------------------


def spawn(daemon: "Daemon", deed: words.Spawn) -> None:
    """Make its folder and pipes, and ask the nurse for its process."""
    work = deed.work
    stage = work.stages[work.stage]
    try:
        folder = daemon.shelf.place(work)
        daemon.shelf.save(work, False)
        daemon.shelf.save_env(work)
        ends = flows.outlet_of(daemon, work).ready(work.stdin, work.terminal)
    except OSError as error:
        why = f"{os.strerror(error.errno) if error.errno else error}"
        daemon.happen(words.Unborn(work.id, 125, f"the host could not begin it: {why}"))
        return
    env = environment(daemon, work)
    shell = env.get("SHELL", daemon.house.environment.get("SHELL")) or "/bin/sh"
    order = {
        "id": work.id,
        "argv": [shell if word == "$SHELL" else word for word in stage.argv],
        "env": env,
        "directory": os.path.join(daemon.house.home, os.path.expanduser(stage.directory or "")),
        "folder": folder,
        "let": daemon.heard_out,
        "hush": work.kind == COMMAND and not work.stdin,
        **ends,
    }
    assert daemon.nurse is not None
    daemon.nurse.sendall(nurse.packed(order))
    daemon.heard_out.clear()


#: Where the hosts of a gang find each other: what an image or a login has of it is another's.
GANG = ("MEGASCALE_", "JAX_COORDINATOR_")


def environment(daemon: "Daemon", work: Work) -> Dict[str, Optional[str]]:
    """What was asked for, and by what a process is known as ours; the rest is the login's, but for
    what is None."""
    stage = work.stages[work.stage]
    login = daemon.house.environment
    marks = {processes.AGENT: daemon.house.folder, processes.MARK: work.id}
    env: Dict[str, Optional[str]] = {**marks}
    if not stage.preload:
        env["LD_PRELOAD"] = None  # the image's tcmalloc breaks some tools
    if work.terminal is not None:
        env["TERM"] = str(work.terminal.get("term") or "xterm")
    if work.kind == "attempt":
        env.update((name, None) for name in login if name.startswith(GANG))
        env["HERD_ATTEMPT"] = str(work.number)
        env[VARIABLE] = place(daemon.house.folder)
    env.update(stage.env)
    archive = os.path.dirname(sys.modules["tpuherd_host"].__path__[0])
    if work.kind == "attempt" and archive.endswith(".pyz"):
        # tpuherd_host.train lies in the agent's own file: scripts import it, nothing is installed.
        asked = env.get("PYTHONPATH", login.get("PYTHONPATH"))
        env["PYTHONPATH"] = ":".join(filter(None, (archive, asked)))
    return env


def nursed(daemon: "Daemon", told: Mapping[str, Any]) -> None:
    """What the nurse says of a process."""
    id = told["id"]
    work = daemon.state.works.get(id)
    outlet = daemon.outlets.get(id)
    if work is None or outlet is None:
        return
    if "failed" in told:
        where, number = told["failed"]
        stage = work.stages[work.stage]
        exit, sentence = FAILED.get(number, (126, "{}: " + os.strerror(number)))
        if where == "directory":
            exit, sentence = NO_DIRECTORY
        elif where == "fork":
            exit, sentence = 125, f"the host could not begin it: {os.strerror(number)}"
        name = stage.directory if where == "directory" else stage.argv[0]
        hint = LINE if exit == 127 and " " in str(name) else ""
        daemon.happen(words.Unborn(id, exit, sentence.format(name) + hint))
        outlet.close()
    elif "unwritten" in told:
        daemon.shelf.unsaved[id] = work
        daemon.later.append(id)
    else:
        if "began" in told:
            flows.began(daemon, outlet, id)
            daemon.happen(words.Began(id, told["began"], told["ticks"]))
        if "ended" in told:
            flows.read_on(daemon, id)
            daemon.happen(ending(id, told))
        outlet.listen()


def ending(id: str, told: Mapping[str, Any]) -> words.Ended:
    """How a process ended, as its nurse tells."""
    return words.Ended(id, shelf.ending(told), told["ended"])


def orphaned(daemon: "Daemon") -> None:
    """The nurse was killed: watch by ourselves what it began."""
    for work in list(daemon.state.works.values()):
        if work.mortal and work.pid:
            adopted = work._replace(adopted=True, due=daemon.now())
            daemon.state = daemon.state._replace(works={**daemon.state.works, work.id: adopted})
        elif work.mortal:
            daemon.happen(words.Unborn(work.id, 125, "the agent's nurse was killed"))


def take_up(daemon: "Daemon", work: Work) -> Work:
    """What an earlier agent left, with its log as long as it really is."""
    try:
        outlet = flows.outlet_of(daemon, work, fresh=False)
        if work.live and work.terminal is None:
            outlet.adopt()
    except OSError:
        return work
    log = outlet.log
    log.close()
    return work._replace(first=log.first, length=log.length)


def look_for_end(daemon: "Daemon", deed: words.LookForEnd) -> None:
    """Does an adopted process still run, and how did it end?"""
    work = deed.work
    told = daemon.shelf.ending(work)
    if told is None and processes.alive(work.pid, work.ticks):
        return
    since = daemon.unseen.setdefault(work.id, daemon.now())
    if told is not None:
        flows.read_on(daemon, work.id)
        daemon.happen(ending(work.id, told))
    elif daemon.now() > since + UNSEEN_S:
        flows.read_on(daemon, work.id)
        daemon.happen(words.Ended(work.id, Ending(), daemon.now()))
    else:
        return
    daemon.unseen.pop(work.id, None)


def send_signal(daemon: "Daemon", deed: words.Signal) -> None:
    """To its leader, or to all of it."""
    work = deed.work
    if not deed.whole:
        if processes.alive(work.pid, work.ticks):
            kill(work.pid, deed.number)
        return
    for one in members(daemon, work):
        kill(one.pid, deed.number)


def sweep(daemon: "Daemon", deed: words.Sweep) -> None:
    """To all that is left of it, and count."""
    found = members(daemon, deed.work)
    for one in found:
        if deed.number:
            kill(one.pid, deed.number)
    if deed.number == signal.SIGKILL:
        found = members(daemon, deed.work)
    daemon.happen(words.Swept(deed.work.id, len(found)))


def members(daemon: "Daemon", work: Work) -> List[processes.Process]:
    """Its processes, never ourselves."""
    return processes.members(
        daemon.house.folder, work.id, work.pid, (os.getpid(), daemon.nurse_pid)
    )


def kill(pid: int, number: int) -> None:
    """A signal; it may be gone already, or another user's."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def look_at_chips(daemon: "Daemon", deed: words.LookAtChips) -> None:
    """Who has them: of those we may look into, which are all of ours."""
    holders = later("holders")
    rows = holders.told(holders.raw(daemon.house.home))
    daemon.happen(words.Seen(deed.work, tuple(rows)))


def look_at_apt(daemon: "Daemon", deed: words.LookAtApt) -> None:
    """Who has its locks."""
    daemon.happen(words.AptSeen(deed.work, later("apt").lock_holder()))


def later(module: str) -> Any:
    """A module that most agents never need."""
    return import_module(f"{__package__}.{module}")


DEEDS: Dict[Type[Any], Callable[["Daemon", Any], None]] = {
    words.Send: send,
    words.Pour: pour,
    words.Hang: hang,
    words.Thread: thread,
    words.Hand: hand,
    words.Grant: grant,
    words.Drop: drop,
    words.Spawn: spawn,
    words.LookForEnd: look_for_end,
    words.Signal: send_signal,
    words.Sweep: sweep,
    words.LookAtChips: look_at_chips,
    words.LookAtApt: look_at_apt,
    words.Feed: flows.feed,
    words.Resize: flows.resize,
    words.Note: flows.note,
    words.Pause: flows.pause,
    words.Tail: flows.tail,
    words.Save: flows.note_down,
    words.Forget: flows.forget,
    words.Keep: flows.keep,
    words.Stamp: flows.stamp,
}
