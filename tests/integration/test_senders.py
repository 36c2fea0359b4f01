"""Sending to real servers and commands: bounded, without redirects, and without showing secrets."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tpuherd.jobfile.notify_fields import NOTIFY, hidden_secrets
from tpuherd.model.receivers import Topic
from tpuherd.notify.compose import Message
from tpuherd.notify.notes import Note
from tpuherd.notify.outbox import SendProblem
from tpuherd.notify.ready_receivers import ReadyReceiver, resolve_receivers
from tpuherd.senders import deliver, post_message, run_notifier, send_mail
from tpuherd.senders.post_message import wait_of_header

pytestmark = pytest.mark.real
NOW = 1_800_000_000.0
NOTE = Note(topics=(Topic.DONE,), title="gpt is done", text="gpt is done.", at=NOW, job="gpt")
MESSAGE = Message(
    id="m1", title=NOTE.title, text=f"{NOTE.text} ☺", origin="here", at=NOW, notes=(NOTE,)
)
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def receiver(**fields: Any) -> ReadyReceiver:
    specs = NOTIFY.read(fields, lambda said, at: pytest.fail(f"{at}: {said}")) or ()
    values = {one.name: one.value for one in hidden_secrets(specs)}
    return resolve_receivers(specs, values, of_job=False)[0]


def send(one: ReadyReceiver) -> SendProblem | None:
    return asyncio.run(send_async(one))


async def send_async(one: ReadyReceiver) -> SendProblem | None:
    deliverer = deliver.Deliverer({"PATH": os.environ["PATH"]})
    try:
        return await deliverer.send(one, MESSAGE)
    finally:
        await deliverer.close()


@asynccontextmanager
async def serve(talk: Talk) -> AsyncIterator[int]:
    """A server on a free port of this machine."""

    talks: set[asyncio.Task[Any]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        talks.add(task)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await talk(reader, writer)
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in talks:
            task.cancel()
        await asyncio.gather(*talks, return_exceptions=True)


def answering(answer: bytes, seen: list[bytes]) -> Talk:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(line.split(b":")[1]) for line in head.lower().splitlines()
                      if line.startswith(b"content-length"))  # fmt: skip
        seen.append(head + await reader.readexactly(length))
        writer.write(answer)
        await writer.drain()

    return talk


def post_to(answer: bytes, **fields: Any) -> tuple[SendProblem | None, list[bytes]]:
    """Post the message to a server that answers so."""
    seen: list[bytes] = []

    async def main() -> SendProblem | None:
        async with serve(answering(answer, seen)) as port:
            url = f"http://127.0.0.1:{port}/services/canary-of-the-address"
            return await send_async(receiver(url=url, **fields))

    return asyncio.run(main()), seen


def test_a_webhook_gets_json_and_a_token() -> None:
    problem, (seen,) = post_to(b"HTTP/1.1 204 No Content\r\n\r\n", token="canary-token")
    assert problem is None
    head, _, body = seen.partition(b"\r\n\r\n")
    assert b"authorization: bearer canary-token" in head.lower()
    assert json.loads(body)["text"] == MESSAGE.text


def test_a_redirect_is_not_followed() -> None:
    other: list[bytes] = []

    async def main() -> SendProblem | None:
        async with serve(answering(b"HTTP/1.1 204 No Content\r\n\r\n", other)) as elsewhere:
            moved = f"HTTP/1.1 307 Moved\r\nLocation: http://localhost:{elsewhere}/x\r\n\r\n"
            async with serve(answering(moved.encode(), [])) as port:
                return await send_async(receiver(url=f"http://127.0.0.1:{port}/c", token="canary"))

    problem = asyncio.run(main())
    assert problem is not None and problem.final and "redirect" in problem.sentence
    assert other == []


@pytest.mark.parametrize(
    ("answer", "wait_s", "final", "said"),
    [
        (b"429 Slow\r\nRetry-After: 90\r\n\r\n", 90.0, False, "HTTP 429"),
        (b"503 No\r\nContent-Length: 4\r\n\r\nbusy", 0.0, False, "HTTP 503: busy"),
        (b"404 No\r\nContent-Length: 10\r\n\r\nno_service", 0.0, True, "HTTP 404: no_service"),
        (b"400 No\r\n\r\nno /services/canary-of-the-address", 0.0, True, "HTTP 400: no /***"),
        (b"400 No\r\n\r\n" + b"x" * 210 + b"/services/canary-of-the-address", 0.0, True, "HTTP"),
        (b"400 No\r\n\r\n\x1b[31mred\xff", 0.0, True, "HTTP 400: [31mred\ufffd"),
    ],
)  # fmt: skip
def test_a_refusal_says_what_came_back(
    answer: bytes, wait_s: float, final: bool, said: str
) -> None:
    problem, _ = post_to(b"HTTP/1.1 " + answer)
    assert problem is not None
    assert (problem.retry_after_s, problem.final) == (wait_s, final)
    assert problem.sentence.startswith(said) and "canary" not in problem.sentence


def test_retry_after_may_be_a_date() -> None:
    assert wait_of_header("Fri, 15 Jan 2027 08:01:00 GMT", NOW) == 60.0
    for strange in ("", "soon", "-5", "9" * 400, "Fri, 99 Jan 2027", "\u0663"):
        assert wait_of_header(strange, NOW) >= 0.0


def test_an_endless_answer_is_read_to_a_limit_and_silence_has_an_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(post_message, "TIMEOUT_S", 0.3)
    problem, _ = post_to(b"HTTP/1.1 500 No\r\nContent-Length: 99999999\r\n\r\n" + b"x" * 100_000)
    assert problem is not None and len(problem.sentence) < 300

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async def main() -> SendProblem | None:
        async with serve(silent) as port:
            return await send_async(receiver(url=f"http://127.0.0.1:{port}/x"))

    problem = asyncio.run(main())
    assert problem is not None and "did not answer" in problem.sentence and not problem.final


def test_nobody_listens() -> None:
    problem = send(receiver(url="http://127.0.0.1:1/canary-of-the-address"))
    assert problem is not None and "can't be reached" in problem.sentence
    assert "canary" not in problem.sentence


# ---- e-mail --------------------------------------------------------------------------------------


def mail_server(seen: list[bytes], offers: bytes = b"250 ok\r\n") -> Talk:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 hello\r\n")
        while line := await reader.readline():
            seen.append(line)
            word = line[:4].upper()
            if word == b"EHLO":
                writer.write(offers)
            elif word == b"DATA":
                writer.write(b"354 go on\r\n")
                seen.append(await reader.readuntil(b"\r\n.\r\n"))
                writer.write(b"250 taken\r\n")
            elif word == b"RCPT" and b"nobody" in line:
                writer.write(b"550 no such user\r\n")
            elif word == b"QUIT":
                return
            else:
                writer.write(b"235 ok\r\n" if word == b"AUTH" else b"250 ok\r\n")
            await writer.drain()

    return talk


def mail_to(offers: bytes = b"250 ok\r\n", **fields: Any) -> tuple[SendProblem | None, bytes]:
    seen: list[bytes] = []

    async def main() -> SendProblem | None:
        async with serve(mail_server(seen, offers)) as port:
            said = {"host": "127.0.0.1", "port": port, "to": "you@example.com", **fields}
            return await send_async(receiver(**said))

    return asyncio.run(main()), b"".join(seen)


def test_a_mail_arrives() -> None:
    problem, seen = mail_to(b"250-x\r\n250 AUTH PLAIN\r\n", tls="none", user="me", password="pw-1")
    assert problem is None
    assert b"Subject: [herd] gpt is done" in seen and b"Message-ID: <m1@tpuherd>" in seen
    assert b"AUTH PLAIN" in seen


def test_a_password_is_never_sent_without_tls() -> None:
    problem, seen = mail_to(b"250-x\r\n250 AUTH PLAIN\r\n", user="me", password="canary-pw")
    assert problem is not None and problem.final and "TLS" in problem.sentence
    assert b"AUTH" not in seen and b"MAIL" not in seen


def test_a_refused_mail_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, _ = mail_to(tls="none", to="nobody@example.com")
    assert problem is not None and problem.final and "550" in problem.sentence
    monkeypatch.setattr(send_mail, "TIMEOUT_S", 0.3)

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async def main() -> SendProblem | None:
        async with serve(silent) as port:
            return await send_async(receiver(host="127.0.0.1", port=port, to="a@b.c"))

    problem = asyncio.run(main())
    assert problem is not None and "can't be used" in problem.sentence and not problem.final


# ---- commands ------------------------------------------------------------------------------------


def test_a_command_gets_the_text_and_variables(tmp_path: Path) -> None:
    script = f'cat > {tmp_path}/text; echo "$HERD_EVENT $HERD_JOB $HERD_TITLE" > {tmp_path}/env'
    assert send(receiver(run=script)) is None
    assert (tmp_path / "text").read_text().startswith(MESSAGE.text)
    assert (tmp_path / "env").read_text() == "done gpt gpt is done\n"
    assert send(receiver(run=["true"])) is None, "it need not read the text"


def test_a_command_that_fails_is_missing_or_floods() -> None:
    problem = send(receiver(run="yes | head -c 5000000; echo no luck >&2; exit 3"))
    assert problem is not None and problem.sentence == "it ended with exit status 3: no luck"
    problem = send(receiver(run=["no-such-program"]))
    assert problem is not None and problem.final and "can't be started" in problem.sentence


def test_a_hanging_command_is_killed_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_notifier, "COMMAND_S", 0.5)
    problem = send(receiver(run=f"sleep 1000 & echo $! > {tmp_path}/pid; wait"))
    assert problem is not None and "was killed" in problem.sentence
    child = int((tmp_path / "pid").read_text())
    state = Path(f"/proc/{child}/stat")
    assert not state.exists() or state.read_text().rsplit(")", 1)[1].split()[0] == "Z"


def test_a_command_may_leave_a_child_that_holds_its_output() -> None:
    assert send(receiver(run="sleep 5 & exit 0")) is None


def test_apprise_is_an_extra() -> None:
    problem = send(receiver(kind="apprise", url="canaryscheme://canary-of-the-address"))
    assert problem is not None and problem.final and "canary-of" not in problem.sentence
