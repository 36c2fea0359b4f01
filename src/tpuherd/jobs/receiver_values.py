"""Reads and checks the hidden values of receivers: addresses, tokens and passwords."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from tpuherd.jobfile.notify_fields import (
    KEPT,
    NOTIFY,
    hidden_name,
    hidden_secrets,
    kind_of_url,
    url_mistake,
)
from tpuherd.jobfile.yaml_with_lines import FieldPath, YamlDocument
from tpuherd.jobs.open_project import Session
from tpuherd.jobs.secret_values import collect_secrets
from tpuherd.model.receivers import Receiver
from tpuherd.notify.ready_receivers import MARK, receiver_mark
from tpuherd.store.notify_secrets import notify_key

FORGOTTEN = "herd does not have it any longer: write it again, or where it comes from"


async def check_receivers(page: YamlDocument, base: Path, here: Session) -> dict[str, str]:
    """Return the hidden values of a job's receivers, and a mark that this account submits each;
    what is wrong is added to the page."""
    raw, name = page.value.get("notify"), page.value.get("name")
    receivers = NOTIFY.read(raw, lambda *_: None) if raw is not None else None
    if not receivers or not isinstance(name, str):
        return {}
    kept = here.store.secrets.get(notify_key(name))
    places = [("notify", at) for at in range(len(receivers))]
    paths: Sequence[FieldPath] = places if isinstance(raw, list | tuple) else [("notify",)]
    values = await read_values(receivers, base, here.prompter.environ, kept, (page, paths))
    marks = {hidden_name(at, MARK): receiver_mark(one) for at, one in enumerate(receivers)}
    return values | marks


async def read_values(
    receivers: Sequence[Receiver],
    base: Path,
    environ: Mapping[str, str],
    kept: Mapping[str, str],
    where: tuple[YamlDocument, Sequence[FieldPath]],
) -> dict[str, str]:
    """Return the values of receivers; mistakes are added to the page, below the given paths."""
    page, paths = where
    values, missing = await collect_secrets(hidden_secrets(receivers), base, environ)
    for place, receiver in enumerate(receivers):
        for field, hidden in receiver.hidden.items():
            name = hidden_name(place, field)
            if hidden.source == KEPT and name in kept:
                values[name] = kept[name]
            said = missing.get(name) or ("" if name in values else FORGOTTEN)
            if not said and field == "url":
                said = url_mistake(values[name], receiver.kind or kind_of_url(values[name]))
            if said:
                page.add_mistake((*paths[place], field), said)
    return values
