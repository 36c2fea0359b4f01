"""Runs a command on many hosts and follows it on each, across lost connections."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Protocol

from tpuherd.clock import Clock
from tpuherd.commands.command_types import HostOutcome, parse_outcome
from tpuherd.commands.log_capture import LogCapture
from tpuherd.errors import HerdError, NotReached, OperationFailed
from tpuherd.exit_status import TRANSPORT, ReaderGone
from tpuherd.ports import Host, RpcRequest
from tpuherd.remote import fanout
from tpuherd.remote.agent_channel import Call
from tpuherd.remote.agent_link import AgentLink
from tpuherd.remote.connection_pool import ConnectionPool
from tpuherd_host.agent.frames import LOG
from tpuherd_host.agent.log_records import GAP, JUMP, Record, RecordReader, parse_number

TAIL_MAX = 2048
PATIENCE_S = 120.0  #: how long a lost host is retried
PAUSE_S, PAUSE_S_MAX = 0.3, 5.0
QUIET_S, ANSWER_S = 2.0, 5.0  #: a host silent this long is asked, and must answer within this time
UNSTARTED = ("waiting", "starting")  #: phases of a command, as agents call them
WAITS = 2  #: so many answers in a row that the command has not started are told
STOP_S = 10.0  #: how long a command may take to end after KILL
AGENT = 3  #: the port of notes about a host
NOT_STARTED = "herd-supervisor on the host has not started the command"


class OutputSink(Protocol):
    """Where the output of the hosts goes."""

    def merge_key(self, told: tuple[int, Record]) -> tuple[int, float]:
        """Return the key of records that may be shown as one piece."""
        ...

    async def feed(self, host: str, port: int, piece: bytes, at: float) -> None:
        """Take output of a host."""
        ...

    async def end_host(self, host: str) -> None:
        """Take note that a host writes nothing more."""
        ...

    async def close(self) -> None:
        """Take note that no host writes anything more."""
        ...


class InputSource(Protocol):
    """Where the input of the hosts comes from."""

    async def feed(self, host: Host, call: Call) -> None:
        """Send input to one host."""
        ...

    async def read_to_end(self) -> None:
        """Read it to its end."""
        ...

    def is_input_intact(self, host: Host) -> bool:
        """Whether no input was in flight when the connection was lost."""
        ...

    def drop_host(self, host: Host) -> None:
        """Stop sending to a host."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandRequest:
    """The call to every agent."""

    id: str
    verb: str  #: run, or attach
    words: Mapping[str, Any]
    stdin: bool = False
    starts: Mapping[Host, int] | None = None  #: the offsets to start at
    in_code: bool = False  #: begin in the code of the host's job

    def verb_from(self, offset: int, host: Host) -> RpcRequest:
        """Return the call that continues at an offset; a repeated `run` does not run twice."""
        words = {**self.words, "id": self.id, "from": offset}
        if self.in_code and host.code_folder:
            words["code"] = host.code_folder
        return RpcRequest(
            name=self.verb, arguments={**words, "stdin": True} if self.stdin else words
        )


class ReconnectTimer:
    """Decides when a lost stream is followed again, and for how long that is tried."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lost_at: float | None = None
        self._pause_s = PAUSE_S

    def note_loss(self, *, progress: bool) -> bool:
        """Note a loss; return whether it is the first, or the stream has made progress since."""
        first = progress or self._lost_at is None
        if first:
            self._lost_at, self._pause_s = self._clock.now(), PAUSE_S
        return first

    @property
    def expired(self) -> bool:
        """Whether it was lost too long ago."""
        return self._lost_at is not None and self._clock.now() - self._lost_at > PATIENCE_S

    async def pause(self) -> None:
        """Wait before the next try, longer each time."""
        await self._clock.sleep(self._pause_s)
        self._pause_s = min(self._pause_s * 2, PAUSE_S_MAX)


class MultiHostRun:
    """Holds the open calls.

    A lost call is repeated from the last offset, until a host is away for PATIENCE_S.
    """

    def __init__(
        self,
        order: CommandRequest,
        hosts: Mapping[Host, str],
        connections: ConnectionPool,
        screen: OutputSink,
        keeping: LogCapture,
        clock: Clock,
    ) -> None:
        self.order = order
        self.hosts = hosts  #: with their labels
        self.outcomes: dict[Host, HostOutcome] = {}
        self.supply: InputSource | None = None
        self.when_unread: Callable[[], object] = lambda: None  #: the output has no reader
        self._connections = connections
        self._screen = screen
        self._keeping = keeping
        self._clock = clock
        self._tails: dict[Host, bytes] = {}
        self._begun: set[Host] = set()  #: these have certainly received the call
        self._started: set[Host] = set()  #: the command has written something, or runs there
        self._waiting: dict[Host, int] = {}  #: how often agents have said that it does not run yet
        self._unstoppable: set[Host] = set()  #: it did not end when it was stopped
        self._asked_of: set[Host] = set()  #: these may have received it
        self._calls: dict[Host, Call] = {}  #: open ones
        self._seeking: dict[Host, asyncio.Task[Any]] = {}  #: tasks that still connect
        self._stopped = False

    @property
    def running_hosts(self) -> list[Host]:
        return [host for host in self.hosts if host not in self.outcomes]

    async def run(self) -> None:
        """Run it on every host to its end."""
        hosts = list(self.hosts)
        async with aclosing(
            fanout.run_on_each(hosts, self._run_on_host, at_once=len(hosts))
        ) as results:
            async for done in results:
                outcome = done.value
                if done.error is not None:
                    outcome = self._failed_outcome(done.host, done.error)
                assert outcome is not None
                self.outcomes[done.host] = outcome
                self._keeping.close(done.host)
                if self.supply is not None:
                    self.supply.drop_host(done.host)
                await self._print_if_read(self._screen.end_host(self.hosts[done.host]))
        await self._print_if_read(self._screen.close())

    def _failed_outcome(self, host: Host, error: HerdError) -> HostOutcome:
        """Return the outcome on a host that could not be followed to the end."""
        hint = f" ({error.hint})" if error.hint else ""
        why = f"{error.sentence}{hint}"
        told = host in self._unstoppable and host in self._waiting
        if host in self._asked_of and isinstance(error, NotReached) and not told:
            why += f"; it may still be running: herd exec --attach {self.order.id}"
        tail = self._tails.get(host, b"")
        return HostOutcome(label=self.hosts[host], status=TRANSPORT, why=why, tail=tail)

    async def _run_on_host(self, host: Host) -> HostOutcome:
        offset = (self.order.starts or {}).get(host, 0)
        timer = ReconnectTimer(self._clock)
        broken_at = -1
        again = False
        while True:
            reader = RecordReader(offset)
            try:
                return await self._follow_call(host, reader)
            except NotReached:
                if host not in self._asked_of or host in self._unstoppable:
                    raise  # it was never reached, or is not waited for any more
                if self.supply is not None and not self.supply.is_input_intact(host):
                    await self.stop_host(host, 0.0)
                    raise NotReached(
                        "stopped: the connection was lost while it read its input"
                    ) from None
                if host not in self._begun:  # it may have received the call; repeating it is safe
                    if again:
                        raise
                    again = True
                    continue
                if timer.note_loss(progress=reader.offset > offset):
                    await self._print_host_line(host, b"[connection lost; reconnecting]\n")
                if timer.expired:
                    raise
                offset = reader.offset
                await timer.pause()
            except (
                OperationFailed
            ):  # its oldest output was dropped, as we read too slowly; the next call tells
                if broken_at == reader.offset:
                    raise
                offset = broken_at = reader.offset

    async def _follow_call(self, host: Host, reader: RecordReader) -> HostOutcome:
        link = await self._open_link(host)
        feeding = None
        try:
            async with link.open_stream(self.order.verb_from(reader.offset, host)) as call:
                self._calls[host] = call
                self._asked_of.add(host)
                feeding = self._start_feeding(host, call)
                await self._relay_output(host, call, reader)
                work = await call.reply()
        finally:
            self._calls.pop(host, None)
            if feeding is not None:
                feeding.cancel()
        return parse_outcome(self.hosts[host], work, self._tails.get(host, b""))

    async def _open_link(self, host: Host) -> AgentLink:
        """Connect to a host; give up if the command is stopped meanwhile."""
        task = asyncio.current_task()
        if task is not None:
            self._seeking[host] = task
        try:
            return await self._connections.get_link(host)
        except asyncio.CancelledError:
            if self._stopped:
                asked = "its agent does not answer, so it could not be stopped"
                why = asked if self._may_run(host) else "stopped before it started here"
                raise NotReached(why) from None
            raise
        finally:
            self._seeking.pop(host, None)

    async def watch_silent_hosts(self) -> None:
        """Ask hosts that send nothing: their connections may be dead, or the command waits."""
        while True:
            await self._clock.sleep(QUIET_S)
            quiet = [host for host in self._calls if host not in self._started]
            await asyncio.gather(*map(self._probe_host, quiet))

    async def _probe_host(self, host: Host) -> None:
        """Ask for the command; an answer on the same link proves that it received the call."""
        call = self._calls.get(host)
        try:
            async with asyncio.timeout(ANSWER_S):
                link = await self._connections.get_link(host)
                asked = RpcRequest(name="commands", arguments={"id": self.order.id})
                reply = await link.call(asked)
        except TimeoutError:
            if call is not None and self._calls.get(host) is call:
                call.fail_with(NotReached(f"no answer in {QUIET_S + ANSWER_S:g} s"))
                self._connections.drop_connection(host)
                await self._print_host_line(host, b"[no answer; reconnecting]\n")
            return
        except HerdError:
            return  # its follower gets the error, too
        self._begun.add(host)
        if is_not_started(reply, self.order.id):
            self._waiting[host] = self._waiting.get(host, 0) + 1
            if self._waiting[host] == WAITS:
                line = f"[waiting: {NOT_STARTED}; it is paused, or the host is busy]\n"
                await self._print_host_line(host, line.encode())
        else:
            self._waiting.pop(host, None)
            self._started.add(host)

    def _start_feeding(self, host: Host, call: Call) -> "asyncio.Task[None] | None":
        if self.supply is None:
            return None
        return asyncio.create_task(self.supply.feed(host, call))

    async def _relay_output(self, host: Host, call: Call, reader: RecordReader) -> None:
        """Show output as it arrives; pieces are dropped at once, so that memory stays small."""
        while (told := self._take_output(host, reader, await call.read())) is not None:
            while told:
                await self._print_if_read(self._screen.feed(self.hosts[host], *told.popleft()))

    def _take_output(
        self, host: Host, reader: RecordReader, got: tuple[int, bytes] | None
    ) -> deque[tuple[int, bytes, float]] | None:
        """Store what arrived; return what to show, one piece for each port."""
        if got is None:
            return None
        self._begun.add(host)
        self._started.add(host)
        records: list[tuple[int, Record]] = []
        offset = reader.offset
        for record in reader.feed(got[1]) if got[0] == LOG else ():
            self._keeping.put(host, offset, record)
            records.append((offset, record))
            offset = reader.offset
        told: deque[tuple[int, bytes, float]] = deque()
        for (port, at), run in groupby(records, self._screen.merge_key):
            if port in (GAP, JUMP):
                told.append((AGENT, b"".join(lost_output_line(*one) for one in run), at))
                continue
            said = b"".join(record.piece for _, record in run)
            self._tails[host] = (self._tails.get(host, b"") + said[-TAIL_MAX:])[-TAIL_MAX:]
            told.append((port, said, at))
        return told

    async def _print_host_line(self, host: Host, line: bytes) -> None:
        await self._print_if_read(
            self._screen.feed(self.hosts[host], AGENT, line, self._clock.now())
        )

    async def _print_if_read(self, showing: Awaitable[None]) -> None:
        try:
            await showing
        except ReaderGone:
            self.when_unread()

    async def stop(self, grace_s: float) -> None:
        """Stop it wherever it may run, and cancel calls that were not sent yet."""
        self._stopped = True
        heard = [host for host in self.running_hosts if self._may_run(host)]
        for host, task in self._seeking.items():
            if not self._may_run(host):
                task.cancel()
        await asyncio.gather(*(self.stop_host(host, grace_s) for host in heard))

    def _may_run(self, host: Host) -> bool:
        """Whether it may run there; if not, the connection to the host is still being opened."""
        return host in self._asked_of or host not in self._seeking or self.order.verb != "run"

    async def stop_host(self, host: Host, grace_s: float) -> None:
        """Send TERM, and KILL after the grace; an unreachable host is named at the end. So is one
        where it does not end: it is not waited for."""
        asked = {"id": self.order.id, "grace_s": grace_s, "why": "its user stopped it"}
        verb = RpcRequest(name="stop", arguments=asked)
        silent = host in self._waiting or host in self._seeking
        seconds = ANSWER_S if silent else grace_s + STOP_S
        try:
            async with asyncio.timeout(seconds):
                link = await self._connections.get_link(host)
                await link.call(verb)
        except TimeoutError:
            self._unstoppable.add(host)
            why = f"could not be stopped: it did not end in {seconds:g} s"
            if host in self._waiting:
                why = f"{NOT_STARTED}; when it does, the command is ended at once"
            if (call := self._calls.get(host)) is not None:
                call.fail_with(NotReached(why))
            elif (seeking := self._seeking.get(host)) is not None:
                seeking.cancel()
        except HerdError as error:
            if host not in self.outcomes:
                outcome = self._failed_outcome(host, error)
                self.outcomes[host] = replace(outcome, why=f"could not be stopped: {outcome.why}")


def is_not_started(reply: Mapping[str, Any], id: str) -> bool:
    """Whether an agent says that a command waits to be started."""
    works = reply.get("commands")
    mine = [one for one in works if isinstance(one, dict)] if isinstance(works, list) else []
    return any(one.get("id") == id and one.get("phase") in UNSTARTED for one in mine)


def lost_output_line(offset: int, record: Record) -> bytes:
    """Return the line that stands for lost output."""
    if record.port == GAP:
        return b"[%d bytes were lost here: the host's disk was full]\n" % parse_number(record.piece)
    many = parse_number(record.piece) - offset
    return b"[%d bytes before this were dropped: there was too much output]\n" % max(many, 0)
