"""Requests and replies over one socket, on the controller's side; hosts are not trusted."""

import asyncio
import os
import socket
from collections.abc import Callable, Sequence

from tpuherd_sim.hosts import messages
from tpuherd_sim.hosts.messages import Message

ANSWER_S = 10.0
BATCH = 64  #: messages read at once, so that a busy host does not starve others

Reply = tuple[Message, list[int]]
Waiter = tuple[asyncio.Future[Reply], Callable[[Message], None] | None]


class Channel:
    """A connection to a zygote or to the init of a host."""

    def __init__(
        self,
        link: socket.socket,
        hear: Callable[[Message], None],
        closed: Callable[[], None],
    ) -> None:
        self.link = link
        self.hear = hear
        self.closed = closed
        self.asked = 0
        self.waiting: dict[int, Waiter] = {}
        self.turn = asyncio.Lock()  #: held while sending
        self.free = asyncio.Event()  #: set when the socket may be writable again
        link.setblocking(False)
        asyncio.get_running_loop().add_reader(link.fileno(), self.read_messages)

    async def send_request(
        self,
        verb: str,
        message: Message,
        files: Sequence[int] = (),
        *,
        at_once: Callable[[Message], None] | None = None,
        within_s: float | None = None,
    ) -> Reply:
        """Send a request and return the reply with its files.

        `at_once` receives the reply before any later message is read.
        """
        if self.link.fileno() < 0:
            raise ConnectionError(107, "the host no longer exists")
        patience_s = ANSWER_S if within_s is None else within_s
        self.asked += 1
        number = self.asked
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self.waiting[number] = (future, at_once)
        try:
            async with asyncio.timeout(patience_s):
                await self.send({"verb": verb, "id": number, **message}, files)
                reply, sent = await future
        except TimeoutError:
            raise TimeoutError(110, f"no response to {verb} within {patience_s:g} s") from None
        finally:
            self.waiting.pop(number, None)
            if future.done() and not future.cancelled():
                future.exception()  # retrieved, even if the request was not sent
        if "errno" in reply:
            messages.close_all(sent)
            raise OSError(int_field(reply, "errno"), str(reply.get("why"))[:500])
        return reply, sent

    async def send(self, message: Message, files: Sequence[int]) -> None:
        """Send a message once the socket has room for it."""
        async with self.turn:
            while True:
                if self.link.fileno() < 0:
                    raise ConnectionError(104, "the host no longer exists")
                try:
                    messages.send_message(self.link, message, files)
                    return
                except BlockingIOError:
                    await self.wait_until_writable()

    async def wait_until_writable(self) -> None:
        self.free.clear()
        asyncio.get_running_loop().add_writer(self.link.fileno(), self.free.set)
        try:
            await self.free.wait()
        finally:
            if self.link.fileno() >= 0:
                asyncio.get_running_loop().remove_writer(self.link.fileno())

    def read_messages(self) -> None:
        """Read all available messages."""
        for _ in range(BATCH):
            try:
                message, files = messages.receive_message(self.link)
            except BlockingIOError:
                return
            except OSError:
                message, files = None, []
            if message is None:
                self.close()
                return
            self.handle_message(message, files)

    def handle_message(self, message: Message, files: list[int]) -> None:
        """Handle a message: a reply to a waiting request, or an event."""
        number = message.get("id")
        waiter = self.waiting.get(number) if isinstance(number, int) else None
        if waiter is None or waiter[0].done():
            messages.close_all(files)
            if "event" in message:
                self.hear(message)
            return
        future, at_once = waiter
        if at_once is not None and "errno" not in message:
            at_once(message)
        future.set_result((message, files))

    def close(self) -> None:
        """Close the channel; waiting requests fail."""
        if self.link.fileno() < 0:
            return
        asyncio.get_running_loop().remove_reader(self.link.fileno())
        asyncio.get_running_loop().remove_writer(self.link.fileno())
        self.link.close()
        self.free.set()
        for future, _ in self.waiting.values():
            if not future.done():
                future.set_exception(ConnectionError(104, "the host no longer exists"))
        self.waiting.clear()
        self.closed()


def int_field(message: Message, name: str) -> int:
    value = message.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > 1 << 53:
        raise messages.MalformedMessage(f"{name} is not a whole number")
    return value


def text_field(message: Message, name: str, most: int = 4096) -> str:
    value = message.get(name)
    if not isinstance(value, str) or len(value) > most:
        raise messages.MalformedMessage(f"{name} is not a string of at most {most} characters")
    return value


def single_file(files: list[int], right: Callable[[int], bool]) -> int:
    """Return the single file of a reply; refuse one of the wrong kind."""
    if len(files) == 1 and right(os.fstat(files[0]).st_mode):
        return files[0]
    messages.close_all(files)
    raise messages.MalformedMessage("not the requested file")
