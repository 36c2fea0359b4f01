"""A message in the form that each kind of receiver takes."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from tpuherd.model.receivers import ReceiverKind
from tpuherd.notify.compose import Message

DISCORD_MAX, SLACK_MAX, NTFY_MAX = 1900, 3500, 3500  #: characters
HIDDEN = "***"
SHORT = 6  #: shorter values would hide words that mean something else


@dataclass(frozen=True, kw_only=True, slots=True)
class WebRequest:
    """A POST."""

    url: str = field(repr=False)
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


def build_request(kind: ReceiverKind, url: str, token: str, message: Message) -> WebRequest:
    """Return what to send to a web address."""
    headers = {"Content-Type": "application/json", "User-Agent": "tpuherd"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    if kind is ReceiverKind.NTFY:
        url, content = ntfy_content(url, message)
    else:
        content = CONTENTS[kind](message)
    body = json.dumps(content, ensure_ascii=False).encode("utf-8", "replace")
    return WebRequest(url=url, body=body, headers=headers)


def webhook_content(message: Message) -> dict[str, Any]:
    """Everything, for programs."""
    return {
        "id": message.id,
        "title": message.title,
        "text": message.text,
        "origin": message.origin,
        "at": message.at,
        "urgent": message.urgent,
        "topics": [str(topic) for topic in message.topics],
        "events": [
            {
                "topic": str(note.topics[0]),
                "title": note.title,
                "text": note.text,
                "at": note.at,
                "job": note.job,
                "slot": note.slot,
                "seq": note.seq or None,
            }
            for note in message.notes
        ],
        "more": message.more,
    }


def slack_content(message: Message) -> dict[str, Any]:
    text = f"*{escape_slack(message.title)}*\n{escape_slack(message.text)}"
    return {"text": f"{shorten_text(text, SLACK_MAX)}\n_{escape_slack(message.origin)}_"}


def escape_slack(text: str) -> str:
    """Slack reads these as links and mentions."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def discord_content(message: Message) -> dict[str, Any]:
    """No mention in it wakes anybody."""
    text = shorten_text(f"**{message.title}**\n{message.text}", DISCORD_MAX)
    return {"content": f"{text}\n-# {message.origin[:90]}", "allowed_mentions": {"parse": []}}


def ntfy_content(url: str, message: Message) -> tuple[str, dict[str, Any]]:
    """ntfy takes JSON at its root, with the topic in it."""
    parts = urlsplit(url)
    above, _, topic = parts.path.rstrip("/").rpartition("/")
    root = urlunsplit((parts.scheme, parts.netloc, above or "/", parts.query, ""))
    text = shorten_text(f"{message.text}\n{message.origin}", NTFY_MAX)
    return root, {
        "topic": unquote(topic),
        "title": message.title[:200],
        "message": text,
        "priority": 4 if message.urgent else 3,
    }


CONTENTS = {
    ReceiverKind.WEBHOOK: webhook_content,
    ReceiverKind.SLACK: slack_content,
    ReceiverKind.DISCORD: discord_content,
}


def shorten_text(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def plain_text(message: Message) -> str:
    """For e-mails and commands."""
    return f"{message.text}\n\n{message.origin}\n"


def command_variables(message: Message) -> dict[str, str]:
    """The variables that a command gets."""
    jobs = dict.fromkeys(note.job for note in message.notes if note.job)
    slots = dict.fromkeys(note.slot for note in message.notes if note.slot)
    return {
        "HERD_EVENT": str(message.topics[0]),
        "HERD_EVENTS": " ".join(map(str, message.topics)),
        "HERD_TITLE": message.title.replace("\0", ""),
        "HERD_JOB": next(iter(jobs), ""),
        "HERD_JOBS": " ".join(jobs),
        "HERD_SLOTS": " ".join(slots),
        "HERD_ORIGIN": message.origin,
        "HERD_MESSAGE_ID": message.id,
    }


def hide_values(text: str, values: Iterable[str]) -> str:
    """Replace secret values, as they are and as a part of an address."""
    for value in sorted(set(values), key=len, reverse=True):
        if len(value) < SHORT:
            continue
        for form in {value, quote(value, safe=""), *value.split("\n")}:
            if len(form) >= SHORT:
                text = text.replace(form, HIDDEN)
    return text


def secret_parts(url: str) -> list[str]:
    """Return an address and the parts of it that may be secret."""
    try:
        parts = urlsplit(url)
        names = (parts.path.strip("/"), parts.query, parts.username, parts.password)
    except ValueError:
        return [url]
    pieces = [piece for piece in parts.path.split("/") if piece]
    return [url, *(name for name in names if name), *pieces]
