"""Sends a message by apprise, which knows many more services. It blocks: run it in a thread."""

import logging
from importlib import import_module
from typing import Any

from tpuherd.notify.compose import Message
from tpuherd.notify.outbox import SendProblem
from tpuherd.notify.payloads import plain_text

MISSING = "apprise is not installed where the engine runs: pip install 'tpuherd[notify]'"


def use_apprise(url: str, message: Message) -> SendProblem | None:
    """Send it; None: it was accepted."""
    try:
        apprise: Any = import_module("apprise")
    except ImportError:
        return SendProblem(sentence=MISSING, final=True)
    silent = logging.getLogger("apprise")  # its warnings name addresses
    silent.propagate = False
    silent.handlers = [logging.NullHandler()]
    sender = apprise.Apprise()
    if not sender.add(url):
        return SendProblem(sentence="apprise does not understand the address", final=True)
    if not sender.notify(title=message.title, body=plain_text(message)):
        return SendProblem(sentence="apprise could not send it")
    return None
