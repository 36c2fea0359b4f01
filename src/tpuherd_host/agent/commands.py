"""The verbs for commands: run, attach, list, signal, stop, resize, forget."""

import zlib

from tpuherd_host.agent.state import (
    COMMAND,
    COMMAND_LOG_BYTES,
    KEEP_S,
    STARTING,
    Connection,
    Stage,
    Work,
    shown,
)
from tpuherd_host.agent.thin import Any, Dict, Mapping, Optional, Tuple, json
from tpuherd_host.agent.turn import Refused, Turn, fields
from tpuherd_host.agent.words import Feed, Resize, Signal
from tpuherd_host.agent.works import begin, forget, stop

MARKS = "._-"
LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789" + MARKS)
ID_MAX = 100
SHELL = ("$SHELL", "-c")  #: the daemon puts the login's shell there
SIGNAL_MAX = 64
TITLE_MAX = 200

Content = Mapping[str, Any]


def run(turn: Turn, one: Connection, call: int, content: Content) -> Optional[Content]:
    """Begin a command and follow it; the same asked again only follows."""
    id = named(content, "id")
    work = turn.state.works.get(id)
    if work is None:
        asked = fields(content, stdin=bool, keep_s=float, log_bytes=int, terminal=dict)
        work = Work(
            id=id,
            kind=COMMAND,
            stages=(stage(content),),
            asked=turn.now,
            who=one.who,
            owner=one.owner,
            title=title(content),
            stdin=asked.get("stdin", False) or "terminal" in asked,
            terminal=asked.get("terminal"),
            keep_s=asked.get("keep_s", KEEP_S),
            log_bytes=max(1 << 20, asked.get("log_bytes", COMMAND_LOG_BYTES)),
            signed=signature(content),
        )
        turn.put(work)
        follow(turn, one, call, content)
        begin(turn, turn.state.works[id])
        return None
    if asks_something_else(work, content):
        raise Refused("taken", f"{id} is another command already")
    follow(turn, one, call, content)
    return None


def follow(turn: Turn, one: Connection, call: int, content: Content) -> None:
    """The stream of a piece of work, from an offset; answered at its end."""
    work = worked(turn, content)
    asked = fields(content, stdin=bool, hold=bool, **{"from": int})
    offset = max(0, asked.get("from", 0))
    if offset > work.length:
        raise Refused("unfit", f"the log of {work.id} has {work.length} bytes, not {offset}")
    if work.stdin and (asked.get("stdin") or work.terminal is not None):
        turn.put(work._replace(feeder=(one.id, call)))
    kept = turn.state.connections[one.id].calls[call]
    holds = work.kind == COMMAND and asked.get("hold", True)
    turn.call(
        one.id,
        kept._replace(work=work.id, follows=True, offset=offset, holds=holds),
    )
    turn.pump(one.id)
    return


def listed(turn: Turn, one: Connection, call: int, content: Content) -> Content:
    """Commands that run or are kept."""
    works = turn.state.works.values()
    return {"commands": [shown(work) for work in works if work.kind == COMMAND]}


def send_signal(turn: Turn, one: Connection, call: int, content: Content) -> Content:
    """One signal, to the leader or to all."""
    work = worked(turn, content)
    asked = fields(content, signal=int, whole=bool)
    number = asked.get("signal", 15)
    if not 0 < number <= SIGNAL_MAX:
        raise Refused("unfit", f"there is no signal {number}")
    whole = asked.get("whole", False)
    if work.phase == STARTING:
        turn.put(work._replace(early=(*work.early, (number, whole))))
    elif work.live and work.pid:
        turn.do(Signal(work, number, whole))
    return shown(work)


def stopped(turn: Turn, one: Connection, call: int, content: Content) -> Optional[Content]:
    """TERM, and KILL when the grace is over; answered when it has ended."""
    work = worked(turn, content)
    if work.kind != COMMAND:
        raise Refused("unfit", f"{work.id} is no command")
    grace_s = fields(content, grace_s=float).get("grace_s", work.grace_s)
    if not work.live:
        return shown(work)
    awaited(turn, one, call, work.id)
    stop(turn, work, max(0.0, grace_s), str(content.get("why") or "it was stopped")[:500])
    return None


def resize(turn: Turn, one: Connection, call: int, content: Content) -> Content:
    """The size of a terminal."""
    work = worked(turn, content)
    asked = fields(content, rows=int, columns=int)
    rows, columns = asked.get("rows", 24), asked.get("columns", 80)
    if work.terminal is None:
        raise Refused("unfit", f"{work.id} has no terminal")
    if not (0 < rows < 1 << 16 and 0 < columns < 1 << 16):
        raise Refused("unfit", f"no terminal is {rows} x {columns}")
    turn.put(work._replace(terminal={**work.terminal, "rows": rows, "columns": columns}))
    turn.do(Resize(work.id, rows, columns))
    return {}


def end_input(turn: Turn, one: Connection, call: int, content: Content) -> Content:
    """Whoever fed it, its standard input ends."""
    work = worked(turn, content)
    turn.do(Feed(work.id, None))
    return {}


def forgotten(turn: Turn, one: Connection, call: int, content: Content) -> Content:
    """Its record and log go at once."""
    work = turn.state.works.get(named(content, "id"))
    if work is not None and work.live:
        raise Refused("busy", f"{work.id} still runs; stop it first")
    if work is not None:
        forget(turn, work)
    return {}


# ---- arguments -----------------------------------------------------------------------------------


def named(content: Content, field: str) -> str:
    """An id, fit to be the name of a folder."""
    id = content.get(field)
    if isinstance(id, str) and LETTERS.issuperset(id) and id[:1] not in MARKS and id[ID_MAX:] == "":
        return id
    raise Refused("unfit", f"{field} is a word of letters, digits, dots and dashes")


def worked(turn: Turn, content: Content) -> Work:
    """The piece of work that is meant."""
    id = named(content, "attempt" if "attempt" in content else "id")
    work = turn.state.works.get(id)
    if work is None:
        raise Refused("unknown", f"this host has no {id}")
    return work


def awaited(turn: Turn, one: Connection, call: int, work: str) -> None:
    """The call is answered when the work is over."""
    kept = turn.state.connections[one.id].calls[call]
    turn.call(one.id, kept._replace(work=work))


def stage(content: Content) -> Stage:
    """What is to be executed, as a call or a step says it."""
    asked = fields(
        content, argv=list, shell=str, env=dict, directory=str, name=str, hash=str, delay_s=float,
        apt=bool, preload=bool,
    )  # fmt: skip
    env: Dict[str, str] = asked.get("env", {})
    argv: Tuple[str, ...] = tuple(asked.get("argv", ()))
    if ("shell" in asked) == bool(argv):
        raise Refused("unfit", "give either argv or shell")
    words = [*argv, *env, *env.values(), asked.get("shell", ""), asked.get("directory", "")]
    if not all(isinstance(word, str) and "\0" not in word for word in words):
        raise Refused("unfit", "argv, env and directory are texts without zero bytes")
    if any("=" in name or not name for name in env):
        raise Refused("unfit", "a variable has a name without =")
    return Stage(
        argv=argv or (*SHELL, asked["shell"]),
        name=asked.get("name", "")[:TITLE_MAX],
        env=env,
        directory=asked.get("directory"),
        stamp=asked.get("hash", ""),
        delay_s=max(0.0, asked.get("delay_s", 0.0)),
        apt=asked.get("apt", False),
        preload=asked.get("preload", True),
    )


def title(content: Content) -> str:
    """How a list shows it."""
    words = content.get("shell") or " ".join(map(str, content.get("argv") or ()))
    return str(words)[:TITLE_MAX]


def asks_something_else(work: Work, content: Content) -> bool:
    """Whether another thing was asked under this id. Of work whose records were lost nobody knows
    what was asked, and it has no signature: it is shown as it stands.
    """
    return work.signed not in ("", signature(content))


def signature(content: Content) -> str:
    """The same asked again has the same."""
    keys = ("argv", "shell", "env", "directory", "terminal", "steps", "setup")
    meant = {key: content.get(key) for key in keys}
    text = json.dumps(meant, sort_keys=True).encode()
    return f"{len(text)}.{zlib.crc32(text):08x}.{zlib.adler32(text):08x}"
