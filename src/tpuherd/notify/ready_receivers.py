"""Receivers with their hidden values, ready to be told."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256

from tpuherd.jobfile.notify_fields import (
    hidden_name,
    kind_of_url,
    url_host,
    url_mistake,
    write_receiver,
)
from tpuherd.model.receivers import Receiver, ReceiverKind, WithheldCode
from tpuherd.notify.payloads import secret_parts

MARK = "mark"  #: the name of a receiver's mark among its hidden values
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
    withheld: WithheldCode = WithheldCode.NO

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


def receiver_mark(spec: Receiver) -> str:
    """Return what is kept beside the hidden values: which receiver this account has submitted."""
    return digest_of(write_receiver(spec))


def digest_of(content: object) -> str:
    text = json.dumps(content, sort_keys=True)
    return sha256(text.encode("utf-8", "replace")).hexdigest()


def resolve_receivers(
    specs: Sequence[Receiver], values: Mapping[str, str], *, of_job: bool, others: bool = False
) -> tuple[ReadyReceiver, ...]:
    """Join receivers with their stored values. Those `of_job` come from a store that other accounts
    may write: what this account has not submitted gets no values of it, runs no command, and is
    told if messages of `others` are allowed."""
    found = []
    for place, spec in enumerate(specs):
        mark = values.get(hidden_name(place, MARK))
        own = not of_job or mark == receiver_mark(spec)
        if mark is None and spec.hidden:
            own = True  # its values were given here before there were marks
        one = resolve_receiver(spec, place, values if own else {})
        if not own and one.kind is ReceiverKind.COMMAND:
            one = replace(one, withheld=WithheldCode.COMMAND)
        elif not own and not others:
            one = replace(one, withheld=WithheldCode.OTHERS)
        found.append(one)
    return tuple(found)


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
    key = digest_of([write_receiver(spec), known])[:16]
    return ReadyReceiver(spec=spec, kind=kind, key=key, values=known, problem=problem)
