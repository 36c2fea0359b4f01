"""What the model serves, learned from its tour: fields by message and state, errors by method."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

from tpuherd_sim.compare.model_tour import ModelReply, tour_model
from tpuherd_sim.compare.seen_messages import (
    VERSIONS,
    Json,
    SeenMessage,
    split_message,
    split_reply,
    type_name,
)
from tpuherd_sim.handle import world_router
from tpuherd_sim.tpu.request_schemas import method_schemas

#: What differs from case to case: placeholders, support ids, states.
STANDIN = re.compile(r"<[^>]*>|\[EID:[^\]]*\]|\b[A-Z][A-Z0-9_]+\b")
WORD = re.compile(r"[a-z]+(?:'[a-z]+)?")
Words = tuple[str, ...]


@dataclass(kw_only=True)
class LearnedMessage:
    """A message as the model serves it in one state."""

    count: int = 0
    fields: Counter[str] = field(default_factory=Counter)

    def always_served(self) -> frozenset[str]:
        return frozenset(name for name, times in self.fields.items() if times == self.count)

    def add_message(self, fields: Json) -> None:
        self.count += 1
        self.fields.update(fields.keys())


@dataclass(kw_only=True)
class LearnedModel:
    """All that the tour showed."""

    messages: dict[tuple[str, str], LearnedMessage] = field(default_factory=dict)  #: by kind, state
    kinds: dict[str, LearnedMessage] = field(default_factory=dict)  #: in any state
    requested: dict[str, set[str]] = field(default_factory=dict)  #: fields that users may set
    types: dict[str, dict[str, set[str]]] = field(default_factory=dict)  #: by kind and field
    errors: dict[str, set[tuple[int, str]]] = field(default_factory=dict)  #: by method
    reasons: set[str] = field(default_factory=set)
    codes: set[int] = field(default_factory=set)  #: of operations and queued resources
    texts: dict[str, set[Words]] = field(default_factory=dict)  #: by status or code


@cache
def learn_model() -> LearnedModel:
    """Make the tour and return what it showed; takes about half a second."""
    model = LearnedModel()
    for one in tour_model():
        learn_reply(model, one)
    return model


def learn_reply(model: LearnedModel, one: ModelReply) -> None:
    found = world_router().find(one.method, f"/{one.path}")
    version = one.path.partition("/")[0]
    method = found.name if found else ""
    if one.status >= 400:
        error = error_of(one.reply)
        status = str(error.get("status", ""))
        model.errors.setdefault(f"{version} {method}", set()).add((one.status, status))
        learn_text(model, status, error.get("message"))
    for message in split_reply(version, method, one.status, one.reply):
        learn_message(model, message)
    schema = method_schemas(version)[method].body if found and version in VERSIONS else None
    for message in split_message(version, schema or "", one.body or {}, 0):
        model.requested.setdefault(message.kind, set()).update(message.fields)


def always_served(model: LearnedModel, kind: str, state: str) -> frozenset[str]:
    """Return the fields that a message has in this state; one that users may set must be there in
    every state, as it depends on them.
    """
    here, anywhere = model.messages.get((kind, state)), model.kinds.get(kind)
    if here is None or anywhere is None:
        return frozenset()
    own = here.always_served() - model.requested.get(kind, set())
    return own | (here.always_served() & anywhere.always_served())


def learn_message(model: LearnedModel, message: SeenMessage) -> None:
    state = (message.kind, message.state)
    model.messages.setdefault(state, LearnedMessage()).add_message(message.fields)
    model.kinds.setdefault(message.kind, LearnedMessage()).add_message(message.fields)
    types = model.types.setdefault(message.kind, {})
    for name, value in message.fields.items():
        types.setdefault(name, set()).add(type_name(value))
    reason, code = message.fields.get("reason"), message.fields.get("code")
    if isinstance(reason, str):
        model.reasons.add(reason)
    if message.kind == "Status" and isinstance(code, int):
        model.codes.add(code)
        learn_text(model, f"code {code}", message.fields.get("message"))


def learn_text(model: LearnedModel, key: str, text: object) -> None:
    model.texts.setdefault(key, set()).add(text_words(str(text)))


def error_of(reply: Json) -> Mapping[str, object]:
    error = reply.get("error")
    return error if isinstance(error, dict) else {}


def text_words(text: str) -> Words:
    """Return the words of a message without names, numbers and placeholders."""
    return tuple(WORD.findall(STANDIN.sub(" ", text).lower()))


def is_known_text(model: LearnedModel, key: str, text: str) -> bool:
    """Whether the words are those of a text of the model, of which a transcript may lack some."""
    shown = text_words(text)
    return any(is_part(shown, known) for known in model.texts.get(key, ()))


def is_part(shown: Words, known: Words) -> bool:
    """Whether all words occur in the other text, in this order."""
    rest = iter(known)
    return all(word in rest for word in shown)
