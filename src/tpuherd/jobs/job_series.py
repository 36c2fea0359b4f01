"""Reads the series of a job or a slot, or says why there is none."""

from collections.abc import Sequence

from tpuherd.errors import NotFound
from tpuherd.jobs.job_queries import resolve_name
from tpuherd.model.samples import Series
from tpuherd.store.database import Database
from tpuherd.store.sample_store import SampleStore

NAMES_SHOWN = 20


def read_job_series(
    store: Database, name: str, values: Sequence[str], span: tuple[float, float], points: int
) -> list[Series]:
    """Return the series of these values; without any, those that scripts reported."""
    job, slot = resolve_name(store, name)
    samples = SampleStore(store.folder)
    try:
        found = samples.read_series(
            job, values or None, since=span[0], until=span[1], points=points, of=slot or ""
        )
        chosen = [one for one in found if values or not one.name.host]
        if not chosen:
            known = samples.read_series(job, since=span[0], until=span[1], points=1, of=slot or "")
            raise NotFound(nothing_found(name, values), hint=hint_names(known))
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
