"""Sends one message to one receiver of any kind, in bounded time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING

from tpuherd.model.receivers import WITHHELD_REASONS, ReceiverKind
from tpuherd.notify.compose import Message
from tpuherd.notify.outbox import SendProblem
from tpuherd.notify.payloads import build_request, hide_values, secret_parts, shorten_text
from tpuherd.notify.ready_receivers import ReadyReceiver
from tpuherd.senders.post_message import open_web_client, post_message
from tpuherd.senders.run_notifier import run_notifier
from tpuherd.senders.send_mail import send_mail
from tpuherd.senders.use_apprise import use_apprise

if TYPE_CHECKING:
    import httpx2

SHOWN = 240  #: characters of a problem that people see
THREAD_S = 90.0  #: for an e-mail or apprise; then its thread is left alone


@dataclass
class Deliverer:
    """Sends messages; holds the connections to web addresses."""

    environ: Mapping[str, str]  #: of commands
    _http: httpx2.AsyncClient | None = field(default=None, repr=False)

    async def send(self, receiver: ReadyReceiver, message: Message) -> SendProblem | None:
        """Send it; None: it was accepted. The sentence of a problem contains no secret."""
        if receiver.withheld:
            why = WITHHELD_REASONS[receiver.withheld].format(engine="this account")
            return SendProblem(sentence=why, final=True)
        if receiver.problem:
            return SendProblem(sentence=receiver.problem, final=True)
        try:
            problem = await self._send_by_kind(receiver, message)
        except Exception as error:  # noqa: BLE001 - a surprise of a library must not end the engine
            problem = SendProblem(sentence=f"it failed: {type(error).__name__}: {error}")
        if problem is None:
            return None
        url = receiver.values.get("url", "")
        hidden = [*secret_parts(url), *receiver.values.values()]
        sentence = shorten_text(hide_values(problem.sentence, hidden), SHOWN)
        return replace(problem, sentence=sentence)

    async def _send_by_kind(self, receiver: ReadyReceiver, message: Message) -> SendProblem | None:
        spec, values = receiver.spec, receiver.values
        match receiver.kind:
            case ReceiverKind.COMMAND:
                return await run_notifier(spec.run, message, self.environ)
            case ReceiverKind.EMAIL:
                password = values.get("password", "")
                return await run_in_thread(partial(send_mail, spec, password, message))
            case ReceiverKind.APPRISE:
                return await run_in_thread(partial(use_apprise, values["url"], message))
        if self._http is None:
            self._http = open_web_client()
        token = values.get("token", "")
        request = build_request(receiver.kind, values["url"], token, message)
        return await post_message(self._http, request, message.at)

    async def close(self) -> None:
        if self._http is not None:
            await self._http.aclose()


async def run_in_thread(work: Callable[[], SendProblem | None]) -> SendProblem | None:
    """Run it in a thread of its own, which does not hold the process up if it hangs."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[SendProblem | None] = loop.create_future()

    def settle(result: SendProblem | None, error: Exception | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(result)
        else:
            done.set_exception(error)

    def run() -> None:
        result, failure = None, None
        try:
            result = work()
        except Exception as error:  # noqa: BLE001 - the waiting task raises it
            failure = error
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, result, failure)

    Thread(target=run, daemon=True, name="notify").start()
    try:
        async with asyncio.timeout(THREAD_S):
            return await done
    except TimeoutError:
        return SendProblem(sentence=f"it did not finish within {THREAD_S:.0f} s")
