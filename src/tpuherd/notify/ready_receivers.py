"""Receivers with their hidden values, ready to be told."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from tpuherd.jobfile.notify_fields import (
    hidden_name,
    kind_of_url,
    url_host,
    url_mistake,
    write_receiver,
)
from tpuherd.model.receivers import Receiver, ReceiverKind
from tpuherd.notify.payloads import secret_parts

LONG = 16  #: a part of an address that is so long is no common word
MISSING = (
    "its {} is missing on this machine: give it again with `herd run FILE` or `herd notify set`"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadyReceiver:
    """A receiver with its hidden values."""

    spec: Receiver
    kind: ReceiverKind
    key: str  #: the same for equal receivers of several jobs
    values: Mapping[str, str] = field(repr=False)  #: by field: url, token, password
    problem: str = ""  #: why it can't be told

    @property
    def title(self) -> str:
        """Its name for people, without secrets."""
        if self.kind is ReceiverKind.EMAIL:
            return f"email to {', '.join(self.spec.to)}"
        if self.kind is ReceiverKind.COMMAND:
            run = self.spec.run
            words = run.split() if isinstance(run, str) else run
            return f"command {words[0]}" if words else "command"
        url = self.values.get("url", "")
        if self.kind is ReceiverKind.APPRISE:
            return f"apprise {url.partition('://')[0]}"
        return f"{self.kind} at {url_host(url) or '?'}"

    @property
    def secrets(self) -> Iterator[str]:
        """What no message may contain."""
        for name, value in self.values.items():
            parts = secret_parts(value) if name == "url" else [value]
            yield from (part for part in parts if part == value or len(part) >= LONG)


def resolve_receivers(
    specs: Sequence[Receiver], values: Mapping[str, str]
) -> tuple[ReadyReceiver, ...]:
    """Join receivers with their stored values."""
    return tuple(resolve_receiver(spec, place, values) for place, spec in enumerate(specs))


def resolve_receiver(spec: Receiver, place: int, values: Mapping[str, str]) -> ReadyReceiver:
    known = {
        name: values[stored]
        for name in spec.hidden
        if (stored := hidden_name(place, name)) in values
    }
    lacking = [name for name in spec.hidden if name not in known]
    kind = spec.kind or kind_of_url(known.get("url", ""))
    problem = MISSING.format(lacking[0]) if lacking else ""
    if not problem and "url" in known and (said := url_mistake(known["url"], kind)):
        problem = f"its url {said}"
    text = json.dumps([write_receiver(spec), known], sort_keys=True)
    key = sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
    return ReadyReceiver(spec=spec, kind=kind, key=key, values=known, problem=problem)
