"""The boundaries: what the judgement and the commands ask of clouds, hosts and their agents.

HerdError
├── NotFound        nothing has that name
├── NotAllowed      the account or the host refuses us
│   └── NoLogin     nobody is logged in, or the login counts no more
├── NotReached      no answer: the network, or the host is down
│   └── Absent      nobody listens there
├── Stranger        somebody else answers at that address
├── Unfit           what was asked makes no sense
├── Outdated        somebody else did it meanwhile: another engine, another command
├── Broken          the other side failed at it
│   └── Damaged     the store's file makes no sense: it is closed, and set aside
└── Refused         the cloud said no to a bid, in a word of the judgement
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tpuherd.errors import HerdError
from tpuherd.targets import worker_labels

if TYPE_CHECKING:  # the judgement's nouns take 0.1 s to load, and a warm command needs none
    from tpuherd.model.node_spec import NodeSpec
    from tpuherd.model.observed import BidObservation
    from tpuherd.model.slots_and_plan import Ask, HistoryEvent, Offer, Refusal, Withdraw
    from tpuherd.model.stored_job import StoredJob


class BidRefused(HerdError):
    """The cloud said no to a bid: an everyday answer, which the plan lives with."""

    def __init__(self, refusal: Refusal, sentence: str, *, hint: str = "") -> None:
        super().__init__(sentence, hint=hint)
        self.refusal = refusal


@dataclass(frozen=True, kw_only=True, slots=True)
class Host:
    """One worker VM of a node, as created once: all that is needed to reach it and no other."""

    node: str  #: the node's name
    zone: str
    worker: int
    incarnation: str  #: the API's id of the node and its create time: a recreated node has another
    internal_ip: str
    external_ip: str | None
    ssh_port: int = 22
    host_keys: tuple[str, ...] = ()  #: "ssh-ed25519 AAAA…" from its guest attributes; may come late
    foreign: bool = field(default=False, compare=False)  #: another herd owner's

    @property
    def name(self) -> str:
        """gpt-0/w3"""
        return f"{self.node}/w{self.worker}"


@dataclass(frozen=True, kw_only=True, slots=True)
class RpcRequest:
    """Something that is asked of an agent."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


class Stream(Protocol):
    """A call that is under way and carries bytes. Leaving it does not end what it began."""

    async def read(self) -> tuple[int, bytes] | None:
        """The next piece with its port; None when there is no more."""
        ...

    async def write(self, port: int, piece: bytes) -> None:
        """Send a piece; waits while the other side has enough."""
        ...

    async def send_eof(self, port: int) -> None:
        """No more will be sent on this port."""
        ...

    async def reply(self) -> Mapping[str, Any]:
        """What came back at the end; Broken or the like where it failed."""
        ...


class Link(Protocol):
    """A connection to the agent of a host. Every call of a broken link fails with NotReached."""

    host: Host
    hello: Mapping[str, Any]  #: what the agent said of itself and its host

    async def call(self, verb: RpcRequest) -> Mapping[str, Any]:
        """Ask and get the answer."""
        ...

    def open_stream(self, verb: RpcRequest) -> AbstractAsyncContextManager[Stream]:
        """Ask, with bytes both ways."""
        ...

    def events(self) -> AsyncIterator[Mapping[str, Any]]:
        """What the agent has to say unasked; ends with the link."""
        ...

    def forward_port(self, port: int) -> AbstractAsyncContextManager[int]:
        """A local port that leads to that port of the host's own loopback."""
        ...

    def disconnect(self, why: str) -> None:
        """Hang up, since its agent gives no answer: whatever is under way fails with NotReached."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Survey:
    """What the cloud shows of all bids, ours and other owners'."""

    sights: Mapping[str, BidObservation]  #: by bid
    zones: frozenset[str]  #: those that answered, for nodes and for requests
    begun_at: float
    reads: int = 2  #: so many requests it took: pages
    trouble: str = ""  #: what of the answers makes no sense; its zone is not among the zones


class CloudPort(Protocol):
    """A project of a cloud, for the engine. Repeating any of these is harmless; none retries.

    NotReached is "unknown": a later survey tells. NotAllowed on a survey: credentials.
    """

    async def survey_bids(self, zones: Collection[str]) -> Survey:
        """Nodes and requests by one wildcard list a kind, every page. `zones`: those we care for;
        one that did not answer is not among the survey's, whose bids are unknown, never gone."""
        ...

    async def submit_bid(self, ask: Ask, order: NodeSpec) -> None:
        """Taken, or there already and equal. Refused says why not."""
        ...

    async def withdraw_bid(self, withdraw: Withdraw, sight: BidObservation | None) -> None:
        """Delete request and nodes, as seen last; None: unseen, so whatever has the name."""
        ...

    async def find_refusal(self, bid: str, offer: Offer) -> BidRefused | None:
        """How the creation of a node ended that is not listed; None: well, under way, unknown."""
        ...

    def bid_hosts(self, bid: str) -> tuple[Host, ...]:
        """The hosts of a bid's nodes by the last survey, in the order of the gang. No request."""
        ...


class HostsPort(Protocol):
    """The hosts of a project, for the engine."""

    async def open_link(self, host: Host) -> Link:
        """A link to its agent, put there if missing or older; the one there is while it lives."""
        ...

    async def ship(self, snapshot: str, dest: str, links: Sequence[Link]) -> Mapping[str, str]:
        """Fill all, then switch all; a sentence for every host (by its name) that failed: then
        none has switched. NotFound: this snapshot is here no more."""
        ...

    async def fetch_files(self, paths: Sequence[str], link: Link, into: Path) -> None:
        """Bring files and folders back."""
        ...

    def retain_snapshots(self, snapshots: Collection[str]) -> Collection[str]:
        """These are wanted, however old they get, and no others; which of them are not here."""
        ...

    async def recover_snapshot(self, snapshot: str, links: Sequence[Link]) -> None:
        """Bring one back that is not here, from the first of these hosts that has it, whole and
        the same. NotFound: none has it."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class LeaseHolder:
    """The engine that has the lease."""

    pid: int
    host: str
    who: str = ""  #: user@machine
    epoch: int = 0  #: the millisecond it was taken; given by the store, as are these:
    taken_at: float = 0.0
    until: float = 0.0


class Store(Protocol):
    """What is remembered: wishes, events, the lease. What returned is on the disk.

    Broken: the disk is full, or the store is damaged, gone or busy: nothing of the call was
    written, and it may be repeated. NotAllowed: it can't be written by this user.
    """

    def change_counter(self) -> int:
        """Another number when a wish changed, or anything was written by another process."""
        ...

    def stored_jobs(self) -> Mapping[str, StoredJob]:
        """All, by job."""
        ...

    def put_job(
        self, wish: StoredJob, events: Sequence[HistoryEvent] = (), *, expected: int | None = None
    ) -> StoredJob:
        """Write a wish, with its next revision. Outdated if it is not `expected` (0: none)."""
        ...

    def add_jobs(self, new: Sequence[StoredJob], events: Sequence[HistoryEvent]) -> None:
        """Write wishes of which none is there, and events: all, or nothing. Outdated if one is."""
        ...

    def remove_job(self, job: str, events: Sequence[HistoryEvent] = ()) -> None:
        """Forget a wish; one that is not there is fine."""
        ...

    def append_events(self, events: Sequence[HistoryEvent], *, epoch: int | None = None) -> int:
        """All of them or none; the number of the last event. Outdated if the epoch is over."""
        ...

    def prune_events(self, kinds: Collection[str], *, before: float, most: int) -> int:
        """Forget these kinds of events of jobs that were dropped before then; how many went."""
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
        """Those behind this number, in order; with `newest` the last `limit` of them."""
        ...

    def take_lease(self, holder: LeaseHolder, now: float, ttl_s: float) -> int | None:
        """The lease's new epoch; None while another living engine has it."""
        ...

    def renew_lease(self, epoch: int, now: float) -> None:
        """Hold it for another ttl. Outdated if another engine has it."""
        ...

    def release_lease(self, epoch: int) -> None:
        """Give it back, if it is still ours."""
        ...

    def lease_holder(self, now: float) -> LeaseHolder | None:
        """Who has the lease and lives, as far as one can tell."""
        ...

    def load_history(self) -> tuple[int, Any] | None:
        """The last snapshot: the number of the last event in it, and the document."""
        ...

    def save_history(self, seq: int, document: Any) -> None:
        """Replace it."""
        ...

    def slot_messages(self) -> Mapping[str, str]:
        """What each slot was doing, in a sentence, when the engine last thought."""
        ...

    def put_slot_messages(self, states: Mapping[str, str]) -> None:
        """Replace them."""
        ...


def host_labels(hosts: Sequence[Host]) -> list[str]:
    """What users call these hosts, in their order."""
    rows = [(host.zone, host.node, host.worker) for host in hosts]
    return worker_labels(rows, {host.node for host in hosts if host.foreign})
