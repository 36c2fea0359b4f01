"""What stands in the way of all jobs at once: the cloud, the store, or the engine itself."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from tpuherd.core.view_text import span

#: Sources of trouble, and how they are called to people.
CLOUD, STORE, ENGINE, LOGIN = "cloud", "store", "engine", "login"
TITLES = {
    CLOUD: "the cloud",
    STORE: "the store of jobs",
    ENGINE: "the engine",
    LOGIN: "your login",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Trouble:
    """The last trouble of one source. A good answer ends it."""

    source: str
    sentence: str
    hint: str = ""
    since: float  #: when the first of an unbroken row was met
    at: float  #: when the last was
    times: int = 1


def trouble_line(trouble: Trouble, now: float) -> str:
    """One line for people."""
    hint = f"; {trouble.hint}" if trouble.hint else ""
    title = TITLES.get(trouble.source, trouble.source)
    when = f"for {span(max(0.0, now - trouble.since))}"
    if trouble.times > 1:
        last = span(max(0.0, now - trouble.at))
        when += f", met {trouble.times} times, last {last} ago"
    return f"Trouble with {title}, {when}: {trouble.sentence}{hint}"


def trouble_rows(troubles: Iterable[Trouble]) -> list[dict[str, Any]]:
    """As JSON tells them."""
    return [asdict(one) for one in troubles]
