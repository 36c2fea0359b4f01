"""What failed on hosts during preparation, and the message about it."""

from collections.abc import Sequence
from dataclasses import dataclass

from tpuherd.engine.agent_updates import end_code
from tpuherd.engine.host_messages import AttemptStatus
from tpuherd.engine.host_watcher import HostWatcher
from tpuherd.model.observed import EndCode
from tpuherd.targets import fold_names, node_title

LINES, LINE_MAX = 3, 160  #: of the last output of a setup step


@dataclass(frozen=True, kw_only=True, slots=True)
class HostFailure:
    host: str
    sentence: str
    unknown: bool = False  #: no answer came: it may have been done anyway
    missing: bool = False  #: only the user can provide what is missing
    unfit: bool = False  #: no other try can help
    full: bool = False  #: what came would have filled the disk here
    exit: int | None = None  #: of the user's setup step, or the signal that ended it
    signal: int | None = None  #: that ended the step
    tail: tuple[str, ...] = ()


def unreached_failure(watch: HostWatcher) -> HostFailure:
    return HostFailure(host=watch.status.name, sentence=watch.status.trouble or "it is unreachable")


def setup_failure(watch: HostWatcher, status: AttemptStatus) -> HostFailure:
    number, _, command = status.stage_name.partition(" ")
    ending = f"signal {status.signal}" if status.exit is None else f"status {status.exit}"
    why = status.why or f"setup step {number} ({command}) ended with {ending}"
    return HostFailure(
        host=watch.status.name,
        sentence=why,
        # A step that could not even begin is the host's failure, not the user's.
        exit=None if end_code(status) is EndCode.UNBORN else status.exit or status.signal,
        signal=None if status.exit else status.signal,
        tail=status.tail,
    )


def failure_message(failures: Sequence[HostFailure]) -> str:
    """List the failures with their last lines, grouped by cause."""
    by_cause: dict[str, list[str]] = {}
    for one in failures:
        node, _, worker = one.host.partition("/")
        cause = ": ".join([one.sentence, *filter(None, [last_lines(one.tail)])])
        by_cause.setdefault(cause, []).append("/".join(filter(None, [node_title(node), worker])))
    return "; ".join(f"{fold_names(hosts)}: {cause}" for cause, hosts in by_cause.items())


def last_lines(tail: Sequence[str]) -> str:
    """The last lines as a part of a sentence, without those of the agent itself."""
    return " / ".join(line[:LINE_MAX] for line in own_lines(tail)[-LINES:])


def own_lines(tail: Sequence[str]) -> list[str]:
    """The printable lines of a program, without those of the agent."""
    plain = ("".join(c if c.isprintable() else " " for c in line).strip() for line in tail)
    return [line for line in plain if line and not line.startswith("herd: ")]
