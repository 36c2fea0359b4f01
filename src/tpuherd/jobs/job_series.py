"""Reads the series of a job or a slot, or says why there is none."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tpuherd.errors import NotFound
from tpuherd.model.samples import Series
from tpuherd.store.sample_store import SampleStore

NAMES_SHOWN = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class SeriesQuestion:
    """What to read."""

    name: str  #: of the job or slot, as the user wrote it
    job: str
    slot: str | None
    values: Sequence[str]  #: none: those that scripts reported
    since: float
    until: float
    points: int


def read_job_series(folder: Path, asked: SeriesQuestion) -> list[Series]:
    """Return the series; NotFound if there is none. It may take seconds."""
    samples = SampleStore(folder)
    read = partial(
        samples.read_series,
        asked.job,
        since=asked.since,
        until=asked.until,
        of=asked.slot or "",
    )
    try:
        found = read(asked.values or None, points=asked.points)
        chosen = [one for one in found if asked.values or not one.name.host]
        if not chosen:
            known = read(points=1)
            raise NotFound(nothing_found(asked.name, asked.values), hint=hint_names(known))
        return chosen
    finally:
        samples.close()


def nothing_found(name: str, values: Sequence[str]) -> str:
    what = f"no values of {', '.join(values)}" if values else "no values that its script reported"
    return f"there are {what} for {name} in this time"


def hint_names(known: Sequence[Series]) -> str:
    names = sorted({one.name.name for one in known})
    more = ", …" if len(names) > NAMES_SHOWN else ""
    if names:
        return f"there are {', '.join(names[:NAMES_SHOWN])}{more}"
    return "values are kept while its hosts are connected; --since goes back further than a day"
