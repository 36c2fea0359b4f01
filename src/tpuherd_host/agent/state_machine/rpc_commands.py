"""The verbs for commands: run, attach, list, signal, stop, resize, forget."""

import json
import zlib
from typing import Any, Dict, Mapping, Optional, Tuple

from tpuherd_host.agent.state_machine.messages import FeedInput, ResizeTerminal, SendSignal
from tpuherd_host.agent.state_machine.state import (
    COMMAND,
    COMMAND_LOG_BYTES,
    CURRENT,
    ENVIRONMENT_KEY,
    KEEP_S,
    STARTING,
    Connection,
    Stage,
    Task,
    task_json,
)
from tpuherd_host.agent.state_machine.task_lifecycle import begin_stage, forget_task, stop_task
from tpuherd_host.agent.state_machine.transition import CallRefused, Transition, parse_fields

MARKS = "._-"
LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789" + MARKS)
ID_MAX = 100
SHELL = ("$SHELL", "-c")  #: of a command the login's shell, else bash or sh
SIGNAL_MAX = 64
TITLE_MAX = 200

CallArguments = Mapping[str, Any]


def run_command(
    transition: Transition, one: Connection, call: int, content: CallArguments
) -> Optional[CallArguments]:
    """Start a command and follow it; repeating the same call only follows it."""
    id = require_id(content, "id")
    work = transition.state.works.get(id)
    if work is None:
        asked = parse_fields(content, stdin=bool, keep_s=float, log_bytes=int, terminal=dict)
        work = Task(
            id=id,
            kind=COMMAND,
            stages=(parse_stage(content),),
            asked=transition.now,
            who=one.who,
            owner=one.owner,
            title=display_title(content),
            stdin=asked.get("stdin", False) or "terminal" in asked,
            terminal=asked.get("terminal"),
            keep_s=asked.get("keep_s", KEEP_S),
            log_bytes=max(1 << 20, asked.get("log_bytes", COMMAND_LOG_BYTES)),
            signed=request_signature(content),
        )
        transition.put_task(work)
        transition.send_event({"event": "used", "time": transition.now}, engines=True)
        follow_task(transition, one, call, content)
        begin_stage(transition, transition.state.works[id])
        return None
    if is_different_request(work, content):
        raise CallRefused("taken", f"{id} is the id of another command")
    follow_task(transition, one, call, content)
    return None


def follow_task(transition: Transition, one: Connection, call: int, content: CallArguments) -> None:
    """Stream a task's log from an offset; answer at its end."""
    work = require_task(transition, content)
    asked = parse_fields(content, stdin=bool, hold=bool, **{"from": int})
    offset = max(0, asked.get("from", 0))
    if offset > work.length:
        raise CallRefused("unfit", f"the log of {work.id} has {work.length} bytes, not {offset}")
    if work.stdin and (asked.get("stdin") or work.terminal is not None):
        transition.put_task(work._replace(feeder=(one.id, call)))
    kept = transition.state.connections[one.id].calls[call]
    holds = work.kind == COMMAND and asked.get("hold", True)
    transition.put_call(
        one.id,
        kept._replace(work=work.id, follows=True, offset=offset, holds=holds),
    )
    transition.send_pending_logs(one.id)
    return


def list_commands(
    transition: Transition, one: Connection, call: int, content: CallArguments
) -> CallArguments:
    """List commands that run or are kept, or only the one with this id."""
    id = parse_fields(content, id=str).get("id")
    works = [work for work in transition.state.works.values() if work.kind == COMMAND]
    return {"commands": [task_json(work) for work in works if id in (None, work.id)]}


def send_signal(
    transition: Transition, one: Connection, call: int, content: CallArguments
) -> CallArguments:
    """Signal the leader or all processes of a command."""
    work = require_task(transition, content)
    asked = parse_fields(content, signal=int, whole=bool)
    number = asked.get("signal", 15)
    if not 0 < number <= SIGNAL_MAX:
        raise CallRefused("unfit", f"unknown signal {number}")
    whole = asked.get("whole", False)
    if work.phase == STARTING:
        transition.put_task(work._replace(early=(*work.early, (number, whole))))
    elif work.is_live and work.pid:
        transition.add_effects(SendSignal(work, number, whole))
    return task_json(work)


def stop_command(
    transition: Transition, one: Connection, call: int, content: CallArguments
) -> Optional[CallArguments]:
    """Send TERM, and KILL after the grace period; answer at the command's end."""
    work = require_task(transition, content)
    if work.kind != COMMAND:
        raise CallRefused("unfit", f"{work.id} is not a command")
    grace_s = parse_fields(content, grace_s=float).get("grace_s", work.grace_s)
    if not work.is_live:
        return task_json(work)
    await_task_end(transition, one, call, work.id)
    stop_task(
        transition, work, max(0.0, grace_s), str(content.get("why") or "it was stopped")[:500]
    )
    return None


def resize_terminal(
    transition: Transition, one: Connection, call: int, content: CallArguments
) -> CallArguments:
    work = require_task(transition, content)
    asked = parse_fields(content, rows=int, columns=int)
    rows, columns = asked.get("rows", 24), asked.get("columns", 80)
    if work.terminal is None:
        raise CallRefused("unfit", f"{work.id} has no terminal")
    if not (0 < rows < 1 << 16 and 0 < columns < 1 << 16):
        raise CallRefused("unfit", f"a terminal can't be {rows} x {columns}")
    transition.put_task(work._replace(terminal={**work.terminal, "rows": rows, "columns": columns}))
    transition.add_effects(ResizeTerminal(work.id, rows, columns))
    return {}


def end_input(
    transition: Transition, one: Connection, call: int, content: CallArguments
) -> CallArguments:
    """Close the command's standard input, whichever connection fed it."""
    work = require_task(transition, content)
    transition.add_effects(FeedInput(work.id, None))
    return {}


def forget_command(
    transition: Transition, one: Connection, call: int, content: CallArguments
) -> CallArguments:
    """Delete the command's record and log at once."""
    work = transition.state.works.get(require_id(content, "id"))
    if work is not None and work.is_live:
        raise CallRefused("busy", f"{work.id} still runs; stop it first")
    if work is not None:
        forget_task(transition, work)
    return {}


# ---- arguments -----------------------------------------------------------------------------------


def require_id(content: CallArguments, field: str) -> str:
    """Return the argument as an id that can name a folder."""
    id = content.get(field)
    if isinstance(id, str) and LETTERS.issuperset(id) and id[:1] not in MARKS and id[ID_MAX:] == "":
        return id
    raise CallRefused("unfit", f"{field} must consist of letters, digits, dots and dashes")


def require_task(transition: Transition, content: CallArguments) -> Task:
    id = require_id(content, "attempt" if "attempt" in content else "id")
    work = transition.state.works.get(id)
    if work is None:
        raise CallRefused("unknown", f"this host has no {id}")
    return work


def await_task_end(transition: Transition, one: Connection, call: int, work: str) -> None:
    """Have the call answered when the task is over."""
    kept = transition.state.connections[one.id].calls[call]
    transition.put_call(one.id, kept._replace(work=work))


def parse_stage(content: CallArguments) -> Stage:
    """Return what a call or a setup step executes."""
    asked = parse_fields(
        content, argv=list, shell=str, env=dict, directory=str, name=str, hash=str, delay_s=float,
        preload=bool, environment=str, code=str,
    )  # fmt: skip
    env: Dict[str, str] = asked.get("env", {})
    argv: Tuple[str, ...] = tuple(asked.get("argv", ()))
    if ("shell" in asked) == bool(argv):
        raise CallRefused("unfit", "give either argv or shell")
    texts = (asked.get(name, "") for name in ("shell", "directory", "code"))
    words = [*argv, *env, *env.values(), *texts]
    if not all(isinstance(word, str) and "\0" not in word for word in words):
        raise CallRefused("unfit", "argv, env and folders must be text without zero bytes")
    if any("=" in name or not name for name in env):
        raise CallRefused("unfit", "the name of a variable must not contain =")
    return Stage(
        argv=argv or (*SHELL, asked["shell"]),
        name=asked.get("name", "")[:TITLE_MAX],
        env=env,
        directory=asked.get("directory"),
        stamp=asked.get("hash", ""),
        delay_s=max(0.0, asked.get("delay_s", 0.0)),
        preload=asked.get("preload", True),
        environment=parse_environment(asked.get("environment", "")),
        code=asked.get("code", ""),
    )


def parse_environment(name: str) -> str:
    """Return the name of an environment: a key, `current`, or "" for none."""
    if name not in ("", CURRENT) and not ENVIRONMENT_KEY.fullmatch(name):
        raise CallRefused("unfit", f"{name!r} is not an environment"[:300])
    return name


def display_title(content: CallArguments) -> str:
    """Return how a list shows the command."""
    words = content.get("shell") or " ".join(map(str, content.get("argv") or ()))
    return str(words)[:TITLE_MAX]


def is_different_request(work: Task, content: CallArguments) -> bool:
    """Whether this id was used for another request. A task whose records were lost has no
    signature: its original request is unknown, and it is shown as it is.
    """
    return work.signed not in ("", request_signature(content))


def request_signature(content: CallArguments) -> str:
    """Return a hash of the request; the same request has the same hash."""
    keys = ("argv", "shell", "env", "directory", "terminal", "steps", "setup")
    meant = {key: content.get(key) for key in keys}
    if content.get("environment"):
        meant["environment"] = content["environment"]
    text = json.dumps(meant, sort_keys=True).encode()
    return f"{len(text)}.{zlib.crc32(text):08x}.{zlib.adler32(text):08x}"
