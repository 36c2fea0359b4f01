"""The boundaries: what the planner and the commands need from clouds, hosts and agents.

HerdError
├── NotFound            the name is unknown
├── NotAllowed          the account or the host denies access
│   └── NoLogin         there is no login, or it has expired
├── NotReached          no answer: a network problem, or the host is down
│   └── NotListening    no process listens there
├── IdentityMismatch    a different machine answers
├── InvalidInput        the request makes no sense
├── Superseded          another process is in charge now: an engine or a command
│   └── OutcomeUnknown  nobody can tell whether a write was recorded
├── OperationFailed     the other side tried and failed
│   └── StoreDamaged    the store's file is damaged: it is closed and set aside
└── BidRefused          the cloud refused a bid
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tpuherd.errors import HerdError
from tpuherd.targets import split_bid_name, worker_labels

if TYPE_CHECKING:  # loading the model takes 0.1 s, and a warm command does not need it
    from tpuherd.model.node_spec import EnvironmentNote, NodeSpec
    from tpuherd.model.observed import BidObservation
    from tpuherd.model.slot_history import BidRecord
    from tpuherd.model.slots_and_plan import Ask, HistoryEvent, Offer, Refusal, Withdraw
    from tpuherd.model.stored_job import StoredJob


class BidRefused(HerdError):
    """The cloud refused a bid: an everyday answer that the planner handles."""

    def __init__(self, refusal: Refusal, sentence: str, *, hint: str = "") -> None:
        super().__init__(sentence, hint=hint)
        self.refusal = refusal


@dataclass(frozen=True, kw_only=True, slots=True)
class Host:
    """One worker VM of a node, identified so that only this VM is reached."""

    node: str  #: the node's name
    zone: str
    worker: int
    incarnation: str  #: the node's API id and create time, which change if the node is recreated
    internal_ip: str
    external_ip: str | None
    ssh_port: int = 22
    host_keys: tuple[
        str, ...
    ] = ()  #: "ssh-ed25519 AAAA…" from its guest attributes; may be added later
    foreign: bool = field(default=False, compare=False)  #: another herd owner's
    bid: str = field(default="", compare=False)  #: "" if its node is not herd's
    booting: bool = field(default=False, compare=False)  #: its node is not READY: it may not answer

    @property
    def name(self) -> str:
        """gpt-0/w3"""
        return f"{self.node}/w{self.worker}"

    @property
    def code_folder(self) -> str:
        """The folder of its job's code, relative to the login's home; "" if no job has the node."""
        found = split_bid_name(self.bid or self.node)
        return found.code_folder if found else ""


@dataclass(frozen=True, kw_only=True, slots=True)
class RpcRequest:
    """A call to an agent."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


class Stream(Protocol):
    """A running call that carries bytes. Closing it does not end what it started."""

    async def read(self) -> tuple[int, bytes] | None:
        """Return the next piece with its port; None at the end."""
        ...

    async def write(self, port: int, piece: bytes) -> None:
        """Send a piece; waits while the other side's buffer is full."""
        ...

    async def send_eof(self, port: int) -> None:
        """Send no more on this port."""
        ...

    async def reply(self) -> Mapping[str, Any]:
        """Return the final answer; OperationFailed or another error if the call failed."""
        ...


class Link(Protocol):
    """A connection to a host's agent. Every call on a broken link raises NotReached."""

    host: Host
    hello: Mapping[str, Any]  #: the agent's description of itself and its host

    async def call(self, verb: RpcRequest) -> Mapping[str, Any]:
        """Send a request and return the answer."""
        ...

    def open_stream(self, verb: RpcRequest) -> AbstractAsyncContextManager[Stream]:
        """Send a request that carries bytes both ways."""
        ...

    def events(self) -> AsyncIterator[Mapping[str, Any]]:
        """Yield the agent's unsolicited messages until the link closes."""
        ...

    def disconnect(self, why: str) -> None:
        """Close the link because its agent does not answer: running calls raise NotReached."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Survey:
    """All bids that the cloud shows, ours and other owners'."""

    observations: Mapping[str, BidObservation]  #: by bid
    zones: frozenset[str]  #: zones that answered for both nodes and requests
    begun_at: float
    reads: int = 2  #: number of pages requested
    trouble: str = ""  #: an answer that makes no sense; its zone is not in `zones`


class CloudPort(Protocol):
    """A cloud project, for the engine. All calls may be repeated; none retries.

    NotReached means unknown: a later survey will tell. NotAllowed from a survey: bad credentials.
    """

    async def survey_bids(self, zones: Collection[str], known: Mapping[str, BidRecord]) -> Survey:
        """List nodes and requests with one wildcard request each, all pages.

        What claims to be of a known bid and can't be is left out.

        A zone that did not answer is missing in the survey's zones: its bids are unknown, not gone.
        """
        ...

    async def submit_bid(self, ask: Ask, order: NodeSpec) -> None:
        """Accepted, or an equal bid already exists. BidRefused says why not."""
        ...

    async def withdraw_bid(self, withdraw: Withdraw, sight: BidObservation | None) -> None:
        """Delete request and nodes as seen last; None: not seen, so delete whatever has the
        name.
        """
        ...

    async def find_refusal(self, bid: str, offer: Offer) -> BidRefused | None:
        """Return why the creation of an unlisted node failed; None: succeeded, pending or
        unknown.
        """
        ...

    def bid_hosts(self, bid: str) -> tuple[Host, ...]:
        """Return the hosts of a bid's nodes from the last survey, in gang order. Sends no
        request.
        """
        ...


@dataclass(kw_only=True, slots=True)
class FetchedFiles:
    """What came of the files of a host; counted while they come."""

    bytes: int = 0
    came: list[str] = field(default_factory=list)  #: paths in the folder here
    cut_off: list[str] = field(default_factory=list)  #: the same, or the patterns of unknown ones


class HostsPort(Protocol):
    async def open_link(self, host: Host) -> Link:
        """Return a live link to the host's agent, installing or updating the agent if necessary."""
        ...

    async def ship(
        self, snapshot: str, dest: str, links: Sequence[Link], source: Link | None = None
    ) -> Mapping[str, str]:
        """Fill all hosts, then switch all; return a sentence for each failed host, by its name.

        If one failed, none has switched. NotFound: the snapshot is not in the archive. `source`: a
        host that has it and passes it on, so that it need not be in the archive.
        """
        ...

    async def fetch_files(
        self, paths: Sequence[str], link: Link, into: Path, within_s: float | None = None
    ) -> FetchedFiles:
        """Copy what the host has of these paths; DiskFilled: only a part fits here. With a time,
        what has not come by then, or when the host goes, is cut off."""
        ...

    def known_environments(self, job: str, key: str) -> Mapping[str, EnvironmentNote]:
        """Return what is noted of a job's Python environment, by the platform of its hosts."""
        ...

    def note_environment(self, job: str, key: str, note: EnvironmentNote) -> None:
        """Remember what a host of the job installed."""
        ...

    def is_complete(self, snapshot: str) -> bool:
        """Whether this machine has all contents of a snapshot."""
        ...

    async def lend_uv(self, link: Link, platform: str) -> bool:
        """Copy this machine's uv to a host; False if there is none for its platform."""
        ...

    def retain_snapshots(self, snapshots: Collection[str]) -> Collection[str]:
        """Keep exactly these snapshots, whatever their age; return those that are missing."""
        ...

    async def recover_snapshot(self, snapshot: str, links: Sequence[Link]) -> None:
        """Copy a missing snapshot back from the first of these hosts that has it complete.

        NotFound: none has it.
        """
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class LeaseHolder:
    """The engine that has the lease."""

    pid: int
    host: str
    who: str = ""  #: user@machine
    epoch: int = 0  #: the millisecond it was taken; set by the store, like the next two
    taken_at: float = 0.0
    until: float = 0.0


class Store(Protocol):
    """The persistent state: jobs, events and the lease. A write is on disk when its call returns.

    OperationFailed: the disk is full, or the store is damaged, gone or busy; nothing was written
    and the call may be repeated. NotAllowed: this user can't write it.
    """

    def change_counter(self) -> int:
        """Return a number that changes with every change of a job or write by another process."""
        ...

    def stored_jobs(self) -> Mapping[str, StoredJob]: ...

    def put_job(
        self,
        stored_job: StoredJob,
        events: Sequence[HistoryEvent] = (),
        *,
        expected: int | None = None,
    ) -> StoredJob:
        """Write a job with its next revision. Superseded if it is not at `expected` (0: absent)."""
        ...

    def add_jobs(self, new: Sequence[StoredJob], events: Sequence[HistoryEvent]) -> None:
        """Write new jobs and events, all or nothing. Superseded if a job already exists."""
        ...

    def remove_job(self, job: str, events: Sequence[HistoryEvent] = ()) -> None:
        """Delete a job; an unknown one is fine."""
        ...

    def load_setting(self, name: str) -> Mapping[str, Any] | None:
        """Return what all users of the store agree on under this name; None: nothing yet."""
        ...

    def put_setting(
        self, name: str, document: Mapping[str, Any], events: Sequence[HistoryEvent] = ()
    ) -> None: ...

    def append_events(
        self,
        events: Sequence[HistoryEvent],
        *,
        epoch: int | None = None,
        unchanged_since: int | None = None,
    ) -> int:
        """Write all or none; return the last event's number. Superseded if the epoch is over.

        With `unchanged_since`, write nothing and return 0 if a user has changed a job since that
        event.
        """
        ...

    def prune_events(self, kinds: Collection[str], *, before: float, most: int) -> int:
        """Delete these kinds of events of jobs removed before that time; return how many."""
        ...

    def back_up(self) -> None:
        """Make a backup of the store, if that is not left to a server; only damage is raised."""
        ...

    def pack_events(self, *, before: float, keep: int) -> int:
        """Pack the oldest thousand events if they are from before that time, or if more than `keep`
        are newer; return how many. Packed events are read like all others.
        """
        ...

    def read_events(
        self,
        *,
        after: int = 0,
        job: str | None = None,
        slot: str | None = None,
        kinds: Collection[str] | None = None,
        limit: int | None = None,
        newest: bool = False,
    ) -> Iterator[tuple[int, HistoryEvent]]:
        """Yield events after this number, in order; with `newest`, the last `limit` of them."""
        ...

    def take_lease(self, holder: LeaseHolder, now: float, ttl_s: float) -> int | None:
        """Return the lease's new epoch; None while another live engine has it.

        InvalidInput: the store names a later version as the least that may lead.
        """
        ...

    def renew_lease(self, epoch: int, now: float) -> None:
        """Extend the lease by its ttl. Superseded if another engine has it."""
        ...

    def release_lease(self, epoch: int) -> None:
        """Release the lease if it is still ours."""
        ...

    def lease_holder(self, now: float) -> LeaseHolder | None:
        """Return the holder of the lease if it seems alive."""
        ...

    def load_history(self) -> tuple[int, bytes] | None:
        """Return the last saved history and the number of its last event."""
        ...

    def save_history(self, seq: int, content: bytes) -> None: ...

    def slot_messages(self) -> Mapping[str, str]:
        """Return the message of each slot from the engine's last pass."""
        ...

    def put_slot_messages(self, states: Mapping[str, str]) -> None: ...


def host_labels(hosts: Sequence[Host]) -> list[str]:
    """Return the labels that users see, in the order of the hosts."""
    rows = [(host.zone, host.node, host.worker) for host in hosts]
    return worker_labels(rows, {host.node for host in hosts if host.foreign})
