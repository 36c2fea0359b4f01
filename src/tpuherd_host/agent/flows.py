"""What flows through a piece of work: output into its log, input, and what is kept of it."""

from tpuherd_host.agent import words
from tpuherd_host.agent.logs import Log
from tpuherd_host.agent.outlet import Outlet
from tpuherd_host.agent.state import COMMAND, ENDED, Work
from tpuherd_host.agent.thin import TYPE_CHECKING

if TYPE_CHECKING:
    from tpuherd_host.agent.daemon import Daemon


def outlet_of(daemon: "Daemon", work: Work, fresh: bool = True) -> Outlet:
    """Its pipes and log."""
    outlet = daemon.outlets.get(work.id)
    if outlet is None:
        folder = daemon.shelf.place(work)
        log = Log(folder, work.log_bytes, raw=work.terminal is not None, fresh=fresh)
        outlet = Outlet(
            folder,
            log,
            daemon.files.watch,
            daemon.files.unwatch,
            lambda: readable(daemon, work.id),
        )
        daemon.outlets[work.id] = outlet
    return outlet


def readable(daemon: "Daemon", id: str) -> None:
    """Its output has something, or its input takes something."""
    outlet = daemon.outlets[id]
    if outlet.fed:
        took = outlet.pass_on()
        if took:
            daemon.happen(words.Took(id, took))
    if not outlet.paused and outlet.outputs:
        last = outlet.take(daemon.now())
        daemon.grown.add(id)
        if last:
            daemon.grow(id)
            daemon.happen(words.Drained(id))
            lay_down(daemon, daemon.state.works[id])


def began(daemon: "Daemon", outlet: Outlet, id: str) -> None:
    """Its process has its ends, and may have what came before."""
    try:
        outlet.began()
        if outlet.input is not None:
            feed(daemon, words.Feed(id, b""))
    except OSError:
        pass  # its pipes are gone: somebody emptied our folder. It runs, unheard


def read_on(daemon: "Daemon", id: str) -> None:
    """It has ended: what it wrote before is in its pipes now."""
    outlet = daemon.outlets.get(id)
    if outlet is None:
        return
    outlet.process_ended = True
    if outlet.outputs and not outlet.paused:
        readable(daemon, id)
        daemon.grow(id)


def feed(daemon: "Daemon", deed: words.Feed) -> None:
    """Bytes for its standard input."""
    outlet = daemon.outlets.get(deed.work)
    took = len(deed.piece or b"") if outlet is None else outlet.feed(deed.piece)
    if took:
        daemon.happen(words.Took(deed.work, took))


def resize(daemon: "Daemon", deed: words.Resize) -> None:
    """Its terminal."""
    outlet = daemon.outlets.get(deed.work)
    if outlet is not None:
        outlet.resize(deed.rows, deed.columns)


def note(daemon: "Daemon", deed: words.Note) -> None:
    """A line of the agent's own."""
    try:
        log = outlet_of(daemon, deed.work).log
    except OSError:
        return  # the state says it too
    log.append(daemon.now(), deed.port, f"herd: {deed.sentence}\n".encode())
    daemon.grow(deed.work.id)


def pause(daemon: "Daemon", deed: words.Pause) -> None:
    """Read its output no more, or again."""
    outlet = daemon.outlets.get(deed.work)
    if outlet is not None:
        outlet.pause(deed.on)


def tail(daemon: "Daemon", deed: words.Tail) -> None:
    """Its last lines."""
    work = daemon.state.works[deed.work]
    try:
        lines = outlet_of(daemon, work).log.tail()
    except OSError:
        lines = []
    daemon.happen(words.Tailed(deed.work, tuple(lines)))


def note_down(daemon: "Daemon", deed: words.Save) -> None:
    """How it stands: at once, but for a command's end."""
    if deed.work.live or deed.hard:
        save(daemon, deed.work, deed.hard)
    else:
        daemon.later.append(deed.work.id)


def rest(daemon: "Daemon", id: str) -> None:
    """It is over, and all is said that is to be said."""
    work = daemon.state.works.get(id)
    if work is None or work.live:
        return  # it is forgotten already
    if written(daemon, work):
        lay_down(daemon, work)
    else:
        save(daemon, work, hard=False)


def written(daemon: "Daemon", work: Work) -> bool:
    """Whether its nurse has written down all that is to be known of its end."""
    seen = work.phase == ENDED and work.pid and work.drained and not work.adopted
    more = work.why or work.lost_bytes or work.id in daemon.shelf.unsaved
    return bool(work.kind == COMMAND and seen and not more)


def save(daemon: "Daemon", work: Work, hard: bool) -> None:
    """Into its file; what is over has no pipes any more."""
    try:
        daemon.shelf.place(work)
    except OSError:
        return
    daemon.save(work, hard)
    lay_down(daemon, work)


def lay_down(daemon: "Daemon", work: Work) -> None:
    """What is over has no pipes any more."""
    outlet = daemon.outlets.get(work.id)
    if outlet is not None and not work.live:
        if outlet.outputs:
            outlet.log.close()  # something that it left behind still writes
        else:
            outlet.close()
            daemon.heard_out.append(work.id)


def forget(daemon: "Daemon", deed: words.Forget) -> None:
    """All of it."""
    outlet = daemon.outlets.pop(deed.work.id, None)
    if outlet is not None:
        outlet.close()
        daemon.heard_out.append(deed.work.id)
    daemon.shelf.forget(deed.work)


def keep(daemon: "Daemon", deed: words.Keep) -> None:
    """The epochs."""
    try:
        daemon.shelf.keep(deed.epochs)
    except OSError:
        pass  # a full disk: this agent knows them all the same


def stamp(daemon: "Daemon", deed: words.Stamp) -> None:
    """A step went well."""
    try:
        daemon.shelf.stamp(deed.stamp, deed.name)
    except OSError:
        pass  # a full disk: it will be done again
