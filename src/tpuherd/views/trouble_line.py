"""Problems as text and JSON."""

from collections.abc import Iterable, Mapping
from typing import Any

from tpuherd.model.trouble import BACKUP, CLOUD, ENGINE, LOGIN, NOTIFY, STORE, TroubleRecord
from tpuherd.views.format_text import format_span

TITLES = {
    CLOUD: "the cloud",
    STORE: "the job store",
    BACKUP: "the store's backup",
    ENGINE: "the engine",
    LOGIN: "your login",
    NOTIFY: "messages to you",
}


def trouble_line(trouble: TroubleRecord, now: float) -> str:
    hint = f"; {trouble.hint}" if trouble.hint else ""
    title = TITLES.get(trouble.source, trouble.source)
    when = f"for {format_span(max(0.0, now - trouble.since))}"
    if trouble.times > 1:
        last = format_span(max(0.0, now - trouble.at))
        when += f", seen {trouble.times} times, last {last} ago"
    return f"Problem with {title}, {when}: {trouble.sentence}{hint}"


def problem_rows(troubles: Iterable[TroubleRecord]) -> list[dict[str, Any]]:
    return [
        {
            "source": one.source,
            "message": one.sentence,
            "hint": one.hint,
            "since": one.since,
            "at": one.at,
            "count": one.times,
        }
        for one in troubles
    ]


def read_problem(row: Mapping[str, Any]) -> TroubleRecord:
    return TroubleRecord(
        source=row["source"],
        sentence=row["message"],
        hint=row["hint"],
        since=row["since"],
        at=row["at"],
        times=row["count"],
    )
