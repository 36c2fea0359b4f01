"""The job field `notify`: who is told about a job. Addresses are secrets, kept elsewhere."""

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from tpuherd.jobfile.job_spec import Secret
from tpuherd.jobfile.value_types import (
    COMMAND,
    ReportMistake,
    ValueType,
    choice_type,
    duration_type,
    integer_type,
    list_type,
    show_value,
    suggest_name,
    text_type,
)
from tpuherd.model.receivers import HiddenText, Receiver, ReceiverKind, Topic

KEPT, GIVEN = "kept", "given"
SOURCES = ("env", "file", "command")
URL_MAX = 4000
STARTTLS, IMPLICIT, PLAIN_TEXT = "starttls", "implicit", "none"
LOOPBACK = ("localhost", "127.0.0.1", "::1")
#: What an apprise address begins with, and what a web address does.
SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
MAIL = r"[^\s@<>,;]+@[^\s@<>,;]+"
#: Kinds by the host of their address.
KNOWN_HOSTS = {
    "hooks.slack.com": ReceiverKind.SLACK,
    "discord.com": ReceiverKind.DISCORD,
    "discordapp.com": ReceiverKind.DISCORD,
    "ntfy.sh": ReceiverKind.NTFY,
}


def read_hidden(value: Any, wrong: ReportMistake) -> HiddenText | None:
    """Accept a text, or where to get it; what is wrong with a text is said without it."""
    if isinstance(value, str):
        return HiddenText(source=GIVEN, value=value.strip())
    if not isinstance(value, Mapping) or len(value) != 1:
        wrong("write it as text, or where it comes from: {env: NAME}, {file: PATH} or"
              " {command: TEXT}", ())  # fmt: skip
        return None
    source, it = next(iter(value.items()))
    if source not in (*SOURCES, KEPT):
        wrong(f"not a known source: {suggest_name(str(source), SOURCES)}", (str(source),))
        return None
    if not isinstance(it, str) or (not it.strip() and source != KEPT):
        wrong("should be text", (str(source),))
        return None
    return HiddenText(source=str(source), value=it)


def write_hidden(hidden: HiddenText) -> dict[str, str]:
    if hidden.source != GIVEN:
        return {hidden.source: hidden.value}
    return {KEPT: url_host(hidden.value) if SCHEME.match(hidden.value) else ""}


def read_share(value: Any, wrong: ReportMistake) -> float | None:
    """0.8 or 80%"""
    text = str(value).strip()
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if isinstance(value, bool) or not 0 < share <= 1:
        wrong(f"{show_value(value)} is not a share: write 0.8 or 80%", ())
        return None
    return share


HIDDEN_SCHEMA: Mapping[str, Any] = {
    "anyOf": [{"type": "string"}, *({
        "type": "object", "additionalProperties": False, "required": [source],
        "properties": {source: {"type": "string"}},
    } for source in (*SOURCES, KEPT))],
}  # fmt: skip
HIDDEN = ValueType(read=read_hidden, schema=HIDDEN_SCHEMA, write=write_hidden)
SHARE = ValueType(
    read=read_share,
    schema={"anyOf": [{"type": "number", "exclusiveMinimum": 0, "maximum": 1},
                      {"type": "string", "pattern": "^[0-9.]+ ?%?$"}]},
)  # fmt: skip
TOPICS = list_type(choice_type(*Topic))
FIELD_TYPES: Mapping[str, ValueType] = {
    "kind": choice_type(*ReceiverKind),
    "url": HIDDEN,
    "token": HIDDEN,
    "run": COMMAND,
    "host": text_type(r"[A-Za-z0-9.:_-]+", "a mail server such as smtp.example.com"),
    "port": integer_type(1, 65535),
    "user": text_type(),
    "password": HIDDEN,
    "from": text_type(MAIL, "an e-mail address"),
    "to": list_type(text_type(MAIL, "an e-mail address")),
    "tls": choice_type(STARTTLS, IMPLICIT, PLAIN_TEXT),
    "on": ValueType(
        read=lambda value, wrong: as_topics(TOPICS.read(value, wrong)),
        schema=TOPICS.schema,
        write=lambda value: [str(one) for one in value],
    ),
    "digest": duration_type(0.0),
    "preemptions": integer_type(1, 1_000_000),
    "waiting": duration_type(60.0),
    "cost": SHARE,
}
ATTRIBUTES = {"from": "sender"}  #: where the name of a field is a word of Python
COMMON = ("kind", "on", "digest", "preemptions", "waiting", "cost")
#: The fields of each kind beside the common ones; the first ones are required.
KIND_FIELDS: Mapping[ReceiverKind, tuple[tuple[str, ...], tuple[str, ...]]] = {
    ReceiverKind.WEBHOOK: (("url",), ("token",)),
    ReceiverKind.SLACK: (("url",), ()),
    ReceiverKind.DISCORD: (("url",), ()),
    ReceiverKind.NTFY: (("url",), ("token",)),
    ReceiverKind.EMAIL: (("host", "to"), ("port", "user", "password", "from", "tls")),
    ReceiverKind.COMMAND: (("run",), ()),
    ReceiverKind.APPRISE: (("url",), ()),
}
EXAMPLES = {
    "url": "url: {env: SLACK_URL}",
    "host": "host: smtp.example.com",
    "to": "to: you@example.com",
    "run": "run: notify-send herd",
}
NOBODY = "says nobody to tell: write url, run, or host and to"


def as_topics(names: Sequence[str] | None) -> tuple[Topic, ...] | None:
    return None if names is None else tuple(map(Topic, names))


def read_receiver(value: Any, wrong: ReportMistake) -> Receiver | None:
    """Accept an address, or the fields of a receiver."""
    if isinstance(value, str):
        return read_receiver({"url": value}, lambda said, at: wrong(said, ()))
    if not isinstance(value, Mapping):
        wrong("should be an address, or the fields of a receiver such as url and on", ())
        return None
    found: dict[str, Any] = {}
    whole = True

    def report(sentence: str, at: tuple[str | int, ...]) -> None:
        nonlocal whole
        whole = False
        wrong(sentence, at)

    for key, below in value.items():
        if key not in FIELD_TYPES:
            report(f"unknown field: {suggest_name(str(key), list(FIELD_TYPES))}", (str(key),))
            continue
        read = FIELD_TYPES[key].read(below, lambda said, at, k=key: report(said, (k, *at)))  # type: ignore[misc]
        if read is not None:
            found[key] = read
    if whole:
        check_receiver(found, report)
    if not whole:
        return None
    kind = found.pop("kind", None) or found_kind(found)
    fields = {ATTRIBUTES.get(key, key): it for key, it in found.items()}
    return Receiver(kind=kind and ReceiverKind(kind), **fields)


def found_kind(found: Mapping[str, Any]) -> ReceiverKind | None:
    """Return the kind that the fields say; None: the address will say it."""
    if "run" in found:
        return ReceiverKind.COMMAND
    if "host" in found or "to" in found:
        return ReceiverKind.EMAIL
    url = found.get("url")
    return kind_of_url(url.value) if url is not None and url.source == GIVEN else None


def check_receiver(found: Mapping[str, Any], wrong: ReportMistake) -> None:
    """Check its fields against each other."""
    ways = [name for name in ("url", "run", "host") if name in found]
    if len(ways) > 1:
        said = f"{' and '.join(ways)} can't be combined: each is a receiver of its own"
        wrong(said, (ways[1],))
        return
    named = found.get("kind")
    kind = ReceiverKind(named) if named else found_kind(found)
    if kind is None and not ways:
        wrong(NOBODY, ())
        return
    needed, others = KIND_FIELDS[kind or ReceiverKind.NTFY]
    for name in needed:
        if name not in found:
            of = (
                "an e-mail receiver" if kind is ReceiverKind.EMAIL else f"a receiver of kind {kind}"
            )
            wrong(f"{of} needs {name}: write {EXAMPLES[name]}", ())
    for name in found:
        if name not in (*COMMON, *needed, *others):
            wrong(f"is not a field of a receiver of kind {kind or ReceiverKind.WEBHOOK}", (name,))
    url = found.get("url")
    if url is not None and url.source == GIVEN and (said := url_mistake(url.value, kind)):
        wrong(said, ("url",))
    check_login(found, wrong)


def check_login(found: Mapping[str, Any], wrong: ReportMistake) -> None:
    """A password needs a user, and must not travel in the clear."""
    if ("password" in found) != ("user" in found):
        absent = "user" if "password" in found else "password"
        wrong(f"user and password belong together: {absent} is missing", ())
    elif found.get("tls") == PLAIN_TEXT and "password" in found and found["host"] not in LOOPBACK:
        wrong("would send the password in the clear: use starttls or implicit", ("tls",))


def url_mistake(url: str, kind: ReceiverKind | None) -> str:
    """Return what is wrong with an address, without showing it; "" if nothing."""
    if not SCHEME.match(url):
        return "has no scheme: an address begins with https://, such as https://ntfy.sh/my-topic"
    if len(url) > URL_MAX or re.search(r"[\s\0-\x1f\x7f]", url):
        return f"is not an address: it has spaces, or more than {URL_MAX} characters"
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return "is not an address: its host or port can't be read"
    if kind is ReceiverKind.APPRISE:
        return ""
    if parts.scheme.lower() not in ("http", "https"):
        return (
            "begins with a scheme that is not https: write kind: apprise if it is one of apprise's"
        )
    if not parts.hostname:
        return "names no host"
    if kind is ReceiverKind.NTFY and not parts.path.strip("/"):
        return "names no topic: write https://ntfy.sh/TOPIC"
    return ""


def kind_of_url(url: str) -> ReceiverKind:
    """Return the kind that an address belongs to."""
    return KNOWN_HOSTS.get(url_host(url), ReceiverKind.WEBHOOK)


def url_host(url: str) -> str:
    """Return the host of an address, which is no secret; "" without one."""
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""


def write_receiver(receiver: Receiver) -> dict[str, Any]:
    """Return its fields without hidden values; `read_receiver` reads them."""
    plain = Receiver()
    found = {}
    for name, kind in FIELD_TYPES.items():
        value = getattr(receiver, ATTRIBUTES.get(name, name))
        if value != getattr(plain, ATTRIBUTES.get(name, name)):
            found[name] = str(value) if name == "kind" else kind.write(value)
    return found


RECEIVER = ValueType(
    read=read_receiver,
    schema={"anyOf": [{"type": "string"}, {
        "type": "object", "additionalProperties": False,
        "properties": {name: kind.schema for name, kind in FIELD_TYPES.items()},
    }]},
    write=write_receiver,
)  # fmt: skip
RECEIVERS = list_type(RECEIVER, repeats=True, none=True)
#: Always a list, so that the numbers of receivers mean the same everywhere.
NOTIFY = ValueType(
    read=RECEIVERS.read,
    schema=RECEIVERS.schema,
    write=lambda value: [write_receiver(one) for one in value or ()],
)


def hidden_name(place: int, field: str) -> str:
    """Return the name under which a receiver's hidden value is stored."""
    return f"notify-{place}-{field}"


def hidden_secrets(receivers: Sequence[Receiver]) -> tuple[Secret, ...]:
    """Return the hidden values that have to be read; those that herd has already are left out."""
    return tuple(
        Secret(name=hidden_name(place, field), source=hidden.source, value=hidden.value)
        for place, receiver in enumerate(receivers)
        for field, hidden in receiver.hidden.items()
        if hidden.source != KEPT
    )


def notify_secrets(raw: Any) -> tuple[Secret, ...]:
    """Return the hidden values that a raw `notify` names; none where it has mistakes."""
    return hidden_secrets(NOTIFY.read(raw, lambda *_: None) or ()) if raw else ()
