"""Watch one host: restore its link whenever it is lost, and follow what its agent reports."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from tpuherd.clock import Clock
from tpuherd.engine import agent_updates
from tpuherd.engine.host_messages import (
    ATTEMPTS_MAX,
    AgentEvent,
    AttemptHeartbeat,
    AttemptsReply,
    AttemptStatus,
    InvalidMessage,
    StepReport,
    parse_attempt,
    parse_message,
    parse_notice,
    parse_notices,
    parse_report,
)
from tpuherd.engine.host_samples import IGNORE_SAMPLES, SampleSink
from tpuherd.errors import HerdError, NotFound, NotReached
from tpuherd.model.observed import HostRun, HostStatus, RunState
from tpuherd.planner.settled_slots import deciding_facts
from tpuherd.ports import Host, HostsPort, Link, RpcRequest
from tpuherd.store.log_store import SETUP, LogInfo, LogStore, LogWriter, log_host
from tpuherd_host.agent.log_records import JUMP, BadRecord, RecordReader
from tpuherd_host.agent.state_machine.transition import LOG_PORT

PAUSE_S, PAUSE_S_MAX = 1.0, 30.0  #: between tries to reach a host
BOOT_PAUSE_S = 1.0  #: the same while it boots
SOON_S = 0.1  #: after a link that worked: find out at once what cut it
LIVED_S = 2.0
LIVING = frozenset({RunState.SETUP, RunState.RUNNING})
LATER_S = 30.0  #: until a log that could not be written is followed again
PROBE_S, PONG_S = 35.0, 25.0  #: ping a silent agent after, wait for its answer
NONSENSE_S = 600.0  #: at most one event about invalid data in this time, with a count
OFFSET_MAX = 1 << 53  #: the longest possible log
BOOT_MAX = 100  #: characters of a boot id that are kept

Json = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class WatcherDeps:
    hosts: HostsPort
    shelf: LogStore
    clock: Clock
    stir: Callable[[], None]  #: wakes the planner
    samples: SampleSink = IGNORE_SAMPLES  #: what hosts do, for charts
    tell: Callable[[str, str, Json], None] = lambda kind, slot, facts: None  #: an event, by slot
    probes: bool = True  #: a silent agent is pinged


class HostWatcher:
    """The watcher of one incarnation of a host."""

    def __init__(
        self,
        host: Host,
        slot: str,
        means: WatcherDeps,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self.host = host
        self.slot = slot
        self.link: Link | None = None
        self._changed = changed  #: called with every new status
        self._status = HostStatus(
            node=host.node,
            worker=host.worker,
            incarnation=host.incarnation,
            reached=False,
            heard_at=0.0,
        )
        self.wanted = asyncio.Event()  #: set while the host may be reachable
        self._works: dict[str, HostRun] = {}
        self._paces: dict[str, deque[tuple[float, int]]] = {}
        self._followed: set[str] = set()
        self._logs: set[str] = set()  #: that were ever followed
        self._silence = ""  #: why we closed the link
        self._renewed = False  #: the link was once closed for an agent of our version
        self._trimmed: set[str] = set()
        self._reported: set[str] = set()  #: attempts reported since the list was requested
        self._refused = 0  #: number of invalid messages or parts of them
        self._refused_at = -NONSENSE_S
        self._means = means

    @property
    def job(self) -> str:
        """gpt for the slot gpt-0."""
        return self.slot.rpartition("-")[0]

    @property
    def status(self) -> HostStatus:
        """The host's status as last reported."""
        return self._status

    @status.setter
    def status(self, status: HostStatus) -> None:
        self._status = status
        self._changed()

    def wake_planner(self) -> None:
        self._means.stir()

    async def run(self) -> None:
        """Connect and listen, again and again; an error affects this host alone."""
        clock, pause_s = self._means.clock, PAUSE_S
        while True:
            await self.wanted.wait()
            try:
                self.link = await self._means.hosts.open_link(self.host)
                begun = clock.now()
                trouble = await self._use_link(self.link)
                pause_s = SOON_S if clock.now() >= begun + LIVED_S else PAUSE_S
            except HerdError as error:
                trouble = error.sentence
            except Exception as error:  # noqa: BLE001 - one host never ends the engine
                trouble, pause_s = self.report_failure(error), PAUSE_S_MAX
            self._mark_lost(trouble)
            await clock.sleep(pause_s)
            most_s = BOOT_PAUSE_S if self.host.booting else PAUSE_S_MAX
            pause_s = min(max(PAUSE_S, pause_s * 2), most_s)

    def report_failure(self, error: Exception) -> str:
        """Report an unexpected error as an event, and return it as the reason of the pause."""
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        what = f"{type(error).__name__}: {error}"[:300]
        why = f"{self.status.name} is not contacted for {PAUSE_S_MAX:g} s: its data led to {what}"
        facts = {"host": self.status.name, "error": what, "why": why}
        self._means.tell("host.unexpected_error", self.slot, facts)
        return why

    def report_invalid(self, nonsense: InvalidMessage | str) -> None:
        """Count invalid data, and report it from time to time."""
        self._refused += 1
        now = self._means.clock.now()
        if now < self._refused_at + NONSENSE_S:
            return
        self._refused_at = now
        what, many = str(nonsense)[:300], self._refused
        why = f"{self.status.name} sent invalid data, which is ignored: {what}"
        why += f" ({many} times so far)" if many > 1 else ""
        facts = {"host": self.status.name, "problem": what, "count": many, "why": why}
        self._means.tell("host.invalid_data", self.slot, facts)

    def _mark_lost(self, trouble: str) -> None:
        self.link = None
        self._followed.clear()
        if self.status.reached or self.status.trouble != trouble:
            self._publish_status(replace(self.status, reached=False, trouble=trouble))

    async def _use_link(self, link: Link) -> str:
        """Use the link until it ends, and return why it ended."""
        self._means.samples.begin_link(self.status.name)
        async with asyncio.TaskGroup() as group:
            listening = group.create_task(self._read_events(link, group))
            probing = group.create_task(self._probe_agent(link))
            try:
                await self._catch_up(link, group)
            except HerdError as error:
                listening.cancel()
                probing.cancel()
                return error.sentence
            await listening
            probing.cancel()
        return self._silence or "the connection was lost"

    def renew_agent(self) -> bool:
        """Connect anew, so that an idle agent of an earlier version is replaced; only once."""
        if self._renewed or self.link is None:
            return False
        self._renewed, self._silence = True, "its agent is of an earlier version"
        self.link.disconnect(self._silence)
        return True

    async def _probe_agent(self, link: Link) -> None:
        """Ping a silent agent, and close the link if it does not answer,
        so that a new one is opened.
        """
        clock, self._silence = self._means.clock, ""
        heard_at = clock.now()
        while self._means.probes:
            quiet_s = clock.now() - max(self.status.heard_at, heard_at)
            if quiet_s < PROBE_S:
                await clock.sleep(max(1.0, PROBE_S - quiet_s))
                continue
            try:
                async with asyncio.timeout(PONG_S):
                    await link.call(RpcRequest(name="ping"))
            except TimeoutError:
                self._silence = f"its agent has not responded for {quiet_s + PONG_S:.0f} s"
                link.disconnect(self._silence)
                return
            except HerdError:
                return
            heard_at = clock.now()
            if self.status.reached:
                self.status = replace(self.status, heard_at=heard_at)

    async def _read_events(self, link: Link, group: asyncio.TaskGroup) -> None:
        async for event in link.events():
            if event.get("event") == "missed":
                try:
                    await self._catch_up(link, group)
                except HerdError:
                    return
                continue
            try:
                self._take_event(event, link, group)
            except InvalidMessage as nonsense:
                self.report_invalid(nonsense)

    async def _catch_up(self, link: Link, group: asyncio.TaskGroup) -> None:
        """Fetch the current state, which includes what happened before we listened.

        The notices of the greeting may be old, if the link waited or is used again.
        """
        before = set(self._works)
        self._reported.clear()
        answer = await link.call(RpcRequest(name="attempts"))
        now = self._means.clock.now()
        boot = str(link.hello.get("boot") or "")[:BOOT_MAX]
        word = replace(self.status, reached=True, heard_at=now, trouble="")
        word = agent_updates.apply_boot(word, boot)
        try:
            status = parse_message(AttemptsReply, answer)
            if status.unused_s is not None:
                word = replace(word, used_at=max(word.used_at, now - status.unused_s))
            word = agent_updates.apply_pauses(word, status.pauses, now)
            for notice in parse_notices(status.notices):
                word = agent_updates.apply_notice(word, notice.what, notice.value, now)
            understood = [self._take_row(one, link, group) for one in status.attempts]
            if all(understood):
                self._forget_unlisted(before - self._reported, boot, now)
        except InvalidMessage as nonsense:
            self.report_invalid(nonsense)
        self._publish_status(replace(word, works=self._all_runs()))

    def _take_row(self, content: object, link: Link, group: asyncio.TaskGroup) -> bool:
        """Apply one row of its list; return whether it is valid."""
        try:
            self._update_attempt(parse_attempt(content), link, group)
        except InvalidMessage as nonsense:
            self.report_invalid(nonsense)
            return False
        return True

    def _forget_unlisted(self, attempts: set[str], boot: str, now: float) -> None:
        """Mark attempts that the complete list omits as ended, with their logs complete."""
        for id in attempts:
            gone = agent_updates.mark_unlisted_lost(self._works[id], boot, now)
            self._works[id] = replace(gone, drained=True)

    def _take_event(self, event: Json, link: Link, group: asyncio.TaskGroup) -> None:
        now = self._means.clock.now()
        message = parse_message(AgentEvent, event)
        word = self.status
        if message.event == "notice":
            notice = parse_notice(event)
            word = agent_updates.apply_notice(word, notice.what, notice.value, now)
        elif message.event in ("attempt", "ended"):
            self._update_attempt(parse_attempt(event), link, group)
        elif message.event == "step" and message.attempt is not None:
            self._update_report(message.attempt, message.report, now)
        elif message.event == "sample":
            self._means.samples.take_sample(word, self.slot, event)
        elif message.event == "used":
            word = replace(word, used_at=now)
        elif message.event == "heartbeat":
            word = replace(word, used_at=now) if message.used else word
            word = agent_updates.apply_pauses(word, message.pauses, now)
            for one in message.attempts:
                beat = parse_message(AttemptHeartbeat, one)
                self._update_report(beat.id, beat.report, now)
        word = replace(word, heard_at=now, works=self._all_runs())
        if deciding_facts(word) != deciding_facts(self.status):
            self._publish_status(word)
        else:
            self.status = word

    def _update_attempt(self, status: AttemptStatus, link: Link, group: asyncio.TaskGroup) -> None:
        """Apply the status of an attempt or setup, and follow its log from now on."""
        kind, id = status.kind, status.id
        if status.slot != self.slot:
            return
        if kind == "attempt":
            if id not in self._works and len(self._works) >= ATTEMPTS_MAX:
                raise InvalidMessage(f"it reports more than {ATTEMPTS_MAX} attempts")
            self._reported.add(id)
            self._check_report(status.report)
            self._works[id] = agent_updates.merge_attempt_status(
                status, self._works.get(id), self._means.clock.now()
            )
            self._means.samples.take_report(self.status, self.slot, self._works[id])
            has_output = not self._works[id].drained
        else:
            has_output = status.phase == "running" or bool(status.length)
        if has_output and id not in self._followed:
            self._logs.add(id)
            if len(self._logs) > 2 * ATTEMPTS_MAX:  # each is a folder on this machine
                self._logs.discard(id)
                raise InvalidMessage(f"it reports more than {2 * ATTEMPTS_MAX} logs")
            self._followed.add(id)
            self._describe_log(status)
            group.create_task(self._follow_log(link, id))

    def _check_report(self, content: Json | None) -> StepReport:
        """Parse a script's report, and count its invalid parts."""
        report = parse_report(content)
        if report.refused:
            self.report_invalid(f"{', '.join(report.refused[:5])} in the report of a script")
        return report

    def _describe_log(self, status: AttemptStatus) -> None:
        """Write what it is, with this host, beside its log: another engine may have started it."""
        about = LogInfo(
            id=status.id,
            kind=status.kind,
            title=f"{self.slot}: setup" if status.kind == SETUP else self.slot,
            target=self.slot,
            started=status.asked or status.started or self._means.clock.now(),
            places=(log_host(self.host),),
            number=status.number,
        )
        with suppress(OSError):  # the disk is full; what runs counts anyway
            self._means.shelf.describe_log(about)

    def _update_report(self, attempt: str, content: Json | None, now: float) -> None:
        known = self._works.get(attempt)
        if known is None:
            return
        if not content:
            self._works[attempt] = agent_updates.merge_step_report(
                known, StepReport(), now, heard=True
            )
            return
        report = self._check_report(content)
        work = agent_updates.merge_step_report(known, report, now, heard=True)
        if work.step is not None and work.step != known.step:
            pace = self._paces.setdefault(attempt, deque(maxlen=agent_updates.STEPS_KEPT))
            pace.append((now, work.step))
            if report.step_s is None:
                work = replace(
                    work, step_s=agent_updates.median_step_time(tuple(pace)) or work.step_s
                )
        self._works[attempt] = work
        self._means.samples.take_report(self.status, self.slot, work)

    async def _follow_log(self, link: Link, attempt: str) -> None:
        """Copy its log here to the end; after a gap or a full disk, try again."""
        writer = self._means.shelf.open_writer(attempt, log_host(self.host))
        try:
            while not await self._copy_log(link, attempt, writer):
                await self._means.clock.sleep(LATER_S if writer.silent else PAUSE_S)
                writer.close()
                writer = self._means.shelf.open_writer(attempt, log_host(self.host))
        except NotReached:
            return  # the next link follows it again
        except NotFound:
            self._mark_drained(attempt)  # its agent no longer has it
        except BadRecord as error:
            self.report_invalid(
                f"the log of {attempt} ({error})"
            )  # nothing more is read on this link
            self._mark_drained(attempt)
        finally:
            writer.close()

    async def _copy_log(self, link: Link, attempt: str, writer: LogWriter) -> bool:
        """Copy with one call; return whether the log is complete here."""
        reader = RecordReader(self._means.shelf.end_offset(attempt, log_host(self.host)))
        asked = {"attempt": attempt, "from": reader.offset}
        try:
            async with link.open_stream(RpcRequest(name="follow", arguments=asked)) as call:
                while (got := await call.read()) is not None:
                    port, piece = got
                    if port == LOG_PORT:
                        write_records(writer, reader, piece)
                        self._mark_output(attempt)
                        self._report_trimmed(attempt, writer)
                        if writer.lost:
                            return False
                await call.reply()
        except (NotReached, NotFound):
            raise
        except HerdError:
            return False  # "dropped", or not now: continue from here later
        if not writer.silent:
            self._mark_drained(attempt)
        return not writer.silent

    def _mark_output(self, attempt: str) -> None:
        """Note new output; output after a stop is not a sign of progress."""
        known = self._works.get(attempt)
        if known is not None and known.word in LIVING:
            self._works[attempt] = replace(known, logged_at=self._means.clock.now())
            self.status = replace(self.status, works=self._all_runs())

    def _report_trimmed(self, attempt: str, writer: LogWriter) -> None:
        """Report once that its log is not all kept here."""
        if (writer.dropped or writer.lost) and attempt not in self._trimmed:
            self._trimmed.add(attempt)
            why = f"the log of {attempt} on {self.status.name} " + (
                "waits on its host: this machine's disk is nearly full"
                if writer.lost
                else f"is longer than the {writer.most >> 20} MiB of it that are kept on this"
                " machine: its end is kept"
            )
            facts = {"host": self.status.name, "attempt": attempt, "why": why}
            self._means.tell("log.truncated", self.slot, facts)

    def _mark_drained(self, attempt: str) -> None:
        known = self._works.get(attempt)
        if known is not None and not known.drained:
            self._works[attempt] = replace(known, drained=True)
            self._publish_status(replace(self.status, works=self._all_runs()))

    def _all_runs(self) -> tuple[HostRun, ...]:
        return tuple(self._works.values())

    def _publish_status(self, word: HostStatus) -> None:
        self.status = word
        self._means.stir()


def write_records(writer: LogWriter, reader: RecordReader, piece: bytes) -> None:
    """Write each record at its offset."""
    before = reader.offset
    for record in reader.feed(piece):
        if record.port != JUMP:
            writer.put(before, record)
        elif not before <= reader.offset <= OFFSET_MAX:
            raise BadRecord(f"it jumps from {before} to {reader.offset}")
        before = reader.offset
    writer.flush()


def has_ended(work: HostRun) -> bool:
    return work.word in (RunState.ENDED, RunState.LOST)
