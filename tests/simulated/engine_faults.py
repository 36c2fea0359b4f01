"""Faults at chosen moments: the n-th request, journal write or agent call fails.

A moment is named `api:17:lost`, `life:40`, `off:40:100`, `thaw:90`, `clock:12:back`, `link:9:cut`,
`store:31:torn`:
what is counted, which one, and what is done there.
Two engines that are told the same live through the same history.
"""

import asyncio
import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx2

from tests.simulated.engine_disk import DISK_FAULTS
from tests.simulated.engine_harness import EngineHarness
from tests.simulated.engine_links import VirtualLink
from tests.simulated.engine_ports import EngineLife, RequestFault
from tests.simulated.engine_world import SimulatedCloud
from tpuherd.errors import NoLogin, NotReached
from tpuherd_host.agent import frames
from tpuherd_sim.model.http_types import Request


def listing(request: Request) -> bool:
    return request.method == "GET" and request.path.endswith(("/nodes", "/queuedResources"))


def reading(request: Request) -> bool:
    return request.method == "GET"


def creating(request: Request) -> bool:
    return request.method == "POST" and request.path.endswith(("/nodes", "/queuedResources"))


def deleting(request: Request) -> bool:
    return request.method == "DELETE"


def anything(request: Request) -> bool:
    return True


@dataclass(frozen=True, kw_only=True, slots=True)
class Gust:
    """What the weather does to one request."""

    kind: str  #: of weather; "" = the request never arrives
    said: Mapping[str, Any] = field(default_factory=dict)
    fits: Callable[[Request], bool] = anything
    raised: Callable[[], Exception] = lambda: httpx2.ConnectError("the network is unreachable")
    spoil: RequestFault | None = None  #: the request arrives, and its answer is lost for this one
    times: int = 1  #: this many requests of the path fail


def cut_body(answer: httpx2.Response) -> httpx2.Response:
    """Half of it."""
    return httpx2.Response(answer.status_code, content=answer.content[: len(answer.content) // 2])


def another_shape(answer: httpx2.Response) -> httpx2.Response:
    """JSON, and none that was asked for."""
    names = ("name", "metadata", "error", "nodes", "queuedResources", "operations", "unreachable")
    return httpx2.Response(200, json=dict.fromkeys(names, 7))


def one_item(answer: httpx2.Response) -> httpx2.Response:
    """A list of which one item makes no sense."""
    content = json.loads(answer.content)
    for items in content.values():
        if isinstance(items, list) and items and isinstance(items[0], dict):
            items[0]["state"] = [7]
    return httpx2.Response(answer.status_code, json=content)


def no_end(answer: httpx2.Response) -> httpx2.Response:
    """A page that says that it follows itself."""
    return httpx2.Response(200, json=json.loads(answer.content) | AGAIN)


PAGE = "<html>Please log in to the network.</html>"
AGAIN = {"nextPageToken": "again"}
BETWEEN: Mapping[str, Gust] = {
    "page": Gust(kind="", spoil=lambda answer: httpx2.Response(200, html=PAGE)),
    "redirect": Gust(
        kind="", spoil=lambda answer: httpx2.Response(302, headers={"location": "http://x/"})
    ),
    "empty": Gust(kind="", spoil=lambda answer: httpx2.Response(200)),
    "halved": Gust(kind="", spoil=cut_body),
    "shape": Gust(kind="", spoil=another_shape),
    "item": Gust(kind="", spoil=one_item, fits=listing),
    "pages": Gust(kind="", spoil=no_end, fits=listing, times=2),
    "dns": Gust(kind="", raised=lambda: httpx2.ConnectError("Name or service not known")),
    "token": Gust(kind="", raised=lambda: NotReached("Google returned no token")),
    "login": Gust(kind="", raised=lambda: NoLogin("the login counts no more")),
}
GUSTS: Mapping[str, Gust] = {
    "refused": Gust(kind=""),
    "lost": Gust(kind="lost-response"),
    "503": Gust(kind="http-error", said={"http": 503}),
    "500": Gust(kind="http-error", said={"http": 500}),
    "429": Gust(kind="http-error", said={"http": 429}),
    "403": Gust(kind="http-error", said={"http": 403}, fits=reading),
    "timeout": Gust(kind="delay", said={"seconds": 120}),
    "late": Gust(kind="delay", said={"seconds": 20}),
    "stale": Gust(kind="stale-list", said={"age_s": 90}, fits=reading),
    "unreachable": Gust(kind="unreachable-zone", said={"zone": "us-east5-a"}, fits=reading),
    "conflict": Gust(kind="conflict", fits=creating),
    "failing": Gust(kind="operation-error", said={"code": 13}, fits=creating),
    "stockout": Gust(kind="operation-error", said={"code": 8}, fits=creating),
    "endless": Gust(kind="endless-operation", fits=creating),
    "slow": Gust(kind="slow-provisioning", said={"factor": 6}, fits=creating),
    "unhealthy": Gust(kind="born-unhealthy", fits=creating),
    "unanswering": Gust(kind="unreachable-worker", fits=creating),
    "stuck": Gust(kind="stuck-suspending", fits=deleting),
    **BETWEEN,
}
#: How the clock of the user's machine is set at a moment, in seconds.
CLOCKS: Mapping[str, float] = {
    "ahead": 3600.0, "back": -3600.0, "day-ahead": 86400.0, "day-back": -86400.0, "back-5": -5.0,
}  # fmt: skip
LINKS = (
    "cut", "cut-after", "agent", "agent-after", "reboot", "silent", "crash",
    "forgets", "forgets-after", "reboot-forgets", "stuck", "freeze", "lies", "lies-after",
)  # fmt: skip
HOSTS_HIT = frozenset({"reboot", "crash"})


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class Moment:
    """When something goes wrong, and what."""

    counted: str  #: api, life, off, thaw, clock, link or store
    number: int
    how: str = ""

    def __str__(self) -> str:
        return ":".join(filter(None, (self.counted, str(self.number), self.how)))


def moment(text: str) -> Moment:
    """api:17:lost"""
    counted, number, *how = text.split(":")
    return Moment(counted=counted, number=int(number), how="".join(how))


@dataclass(kw_only=True)
class LinkFault:
    """Counts what happens, remembers what it was, and does what was planned."""

    play: EngineHarness
    moments: frozenset[Moment] = frozenset()
    requests: list[tuple[str, Request]] = field(default_factory=list)  #: with what was new
    places: list[str] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    statements: list[str] = field(default_factory=list)
    frozen: list[int] = field(default_factory=list)  #: numbers of places while a host is frozen
    fresh: str = ""  #: the last place of the journal: what was done before

    def __post_init__(self) -> None:
        self.plan = {(one.counted, one.number): one.how for one in self.moments}
        self.play.at = self.at
        self.play.before = self.before
        self.play.sim.fleet.called = self.called
        self.play.stated = self.count_statement
        self.spoilt: dict[str, tuple[RequestFault, int]] = {}  #: by path, with how often still

    def at(self, life: EngineLife, place: str) -> None:
        """The engine is about to do something, or has done it."""
        number = len(self.places)
        self.places.append(place)
        if place.startswith("after "):
            self.fresh = place
        if any(machine.view.hung for machine in self.play.sim.machines()):
            self.frozen.append(number)
        if ("thaw", number) in self.plan:
            self.play.sim.thaw()
        if ("life", number) in self.plan:
            life.die()
        if (how := self.plan.get(("off", number))) is not None:
            self.play.wanted = False
            asyncio.get_running_loop().call_later(float(how), setattr, self.play, "wanted", True)
            life.die()
        if (how := self.plan.get(("clock", number))) is not None:
            self.play.clock.set(CLOCKS[how])

    def before(self, request: Request) -> RequestFault | None:
        """A request of the engine, and what becomes of its answer."""
        spoil, left = self.spoilt.pop(request.path, (None, 0))
        if left > 1 and spoil is not None:
            self.spoilt[request.path] = spoil, left - 1
        number = len(self.requests)
        self.requests.append((self.fresh, request))
        how = self.plan.get(("api", number))
        if how is None or not GUSTS[how].fits(request):
            return spoil
        gust = GUSTS[how]
        if gust.spoil is not None:
            if gust.times > 1:
                self.spoilt[request.path] = gust.spoil, gust.times - 1
            return gust.spoil
        if not gust.kind:
            raise gust.raised()
        self.play.sim.weather(gust.kind, times=1, **gust.said)
        return spoil

    def count_statement(self, connection: sqlite3.Connection, statement: str) -> None:
        """The engine's store is about to do this."""
        number = len(self.statements)
        self.statements.append(f"{statement} {self.fresh}")
        if (how := self.plan.get(("store", number))) is not None:
            self.play.kept = self.play.history()
            raise DISK_FAULTS[how](connection, self.play.folder, number)

    def called(self, line: VirtualLink, piece: bytes) -> bool:
        """A call is about to reach an agent; whether it does."""
        if piece[4] != frames.CALL:
            return True
        [frame] = frames.FrameReader().feed(piece)
        number = len(self.calls)
        self.calls.append(f"{frame.content.get('verb')} {line.machine.view.worker}")
        how = self.plan.get(("link", number))
        if how is None:
            return True
        after = how.endswith("-after")
        if after:
            line.machine.later(0.001, LINK_FAULTS[how.removesuffix("-after")], self.play, line)
            return True
        LINK_FAULTS[how](self.play, line)
        return how not in ("cut", "agent")


def cut(play: EngineHarness, line: VirtualLink) -> None:
    """The link breaks."""
    line.cut(NotReached("the network cut the link"))


def agent(play: EngineHarness, line: VirtualLink) -> None:
    """The agent is killed."""
    line.machine.kill_agent()


def forgets(play: EngineHarness, line: VirtualLink) -> None:
    """Somebody removes all that the agent has written down, and the agent is killed."""
    line.machine.lose_state()


def reboot_forgets(play: EngineHarness, line: VirtualLink) -> None:
    """The same, and then the host reboots."""
    line.machine.lose_state()
    LINK_FAULTS["reboot"](play, line)


def stuck(play: EngineHarness, line: VirtualLink) -> None:
    """Its agent neither receives nor sends anything; its links stay open."""
    line.machine.stick(STUCK_S)


def lies(play: EngineHarness, line: VirtualLink) -> None:
    """Its agent says things that can't be."""
    for content in LIES:
        line.machine.say(content)


def struck(kind: str, **said: Any) -> Callable[[EngineHarness, VirtualLink], None]:
    """The weather strikes the host."""

    def strike(play: EngineHarness, line: VirtualLink) -> None:
        view = line.machine.view
        target = f"{view.zone}/{view.node}/w{view.worker}"
        play.sim.weather(kind, target=target, **said)

    return strike


def freeze(play: EngineHarness, line: VirtualLink) -> None:
    """The host stands still, and thaws about when its node is replaced."""
    struck("hang", **{"for": FROZEN_S * play.sim.haste})(play, line)


LINK_FAULTS: Mapping[str, Callable[[EngineHarness, VirtualLink], None]] = {
    "cut": cut,
    "agent": agent,
    "reboot": struck("reboot"),
    "crash": struck("crash"),
    "silent": struck("network", state="down", **{"for": 90}),
    "forgets": forgets,
    "reboot-forgets": reboot_forgets,
    "stuck": stuck,
    "freeze": freeze,
    "lies": lies,
}
STUCK_S, FROZEN_S = 240.0, 1080.0
OFF_S = ("5", "100", "200")  #: how long the engine is off
STATEMENTS_APART = 5  #: there are some 250 that differ in a lifecycle
#: What a faulty agent may send: paths as names, endless numbers, unknown words.
LIES: Sequence[Mapping[str, Any]] = (
    {"event": "step", "attempt": "gpt-0-a1-7kq", "report": {"step": 10**400, "loss": 10**400}},
    {"event": "attempt", "id": "../../x", "kind": "attempt", "phase": "running", "slot": "gpt-0"},
    {"event": "attempt", "id": "gpt-0-a1-7kq", "slot": "gpt-0", "phase": "levitating"},
    {"event": "ended", "id": "gpt-0-a1-7kq", "slot": "gpt-0", "phase": "ended", "exit": "none"},
    {"event": "notice", "what": "levitation", "value": ["TRUE"]},
    {"event": "heartbeat", "attempts": {"x": 1}},
    {"event": "missed", "many": "all"},
    {"event": None},
)


def points(seen: LinkFault, each: int | None = None) -> list[Moment]:
    """All single faults that differ in a history: of what is alike, the first and the last.

    With `each`, only so many kinds of faults at one request or call, by turns.
    """
    found: list[Moment] = []
    names = [
        f"{request.method} {request.path.rpartition('/')[2]} {fresh}"
        for fresh, request in seen.requests
    ]
    for turn, number in enumerate(ends(names)):
        request = seen.requests[number][1]
        hows = [how for how, gust in GUSTS.items() if gust.fits(request)]
        found += [Moment(counted="api", number=number, how=how) for how in some(hows, turn, each)]
    found += [Moment(counted="life", number=number) for number in ends(seen.places)]
    for turn, number in enumerate(ends(seen.places)[:: 1 if each is None else 3]):
        found += [
            Moment(counted="clock", number=number, how=how)
            for how in some(tuple(CLOCKS), turn, each)
        ]
    for turn, number in enumerate(ends(seen.calls)):
        found += [Moment(counted="link", number=number, how=how) for how in some(LINKS, turn, each)]
    apart = STATEMENTS_APART * (1 if each is None else 3)
    for turn, number in enumerate(ends(seen.statements)[::apart]):
        (how,) = some(tuple(DISK_FAULTS), turn, 1)  # three faults at as many statements
        found.append(Moment(counted="store", number=number, how=how))
    return found


def offs(seen: LinkFault) -> list[Moment]:
    """The engine is off for a while, at each moment that differs."""
    return [
        Moment(counted="off", number=number, how=OFF_S[turn % len(OFF_S)])
        for turn, number in enumerate(ends(seen.places))
    ]


def thaws(seen: LinkFault) -> list[Moment]:
    """What is frozen thaws, at each moment that differs while it is."""
    places = ends(seen.places[number] for number in seen.frozen)
    return [Moment(counted="thaw", number=seen.frozen[place]) for place in places]


def some(hows: Sequence[str], turn: int, each: int | None) -> Sequence[str]:
    """This many of them, different ones at each turn; None: all."""
    if each is None:
        return hows
    first = turn * each % len(hows)
    return [*hows, *hows][first : first + each]


def ends(names: Iterable[str]) -> list[int]:
    """Where each name is seen first and last."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for number, name in enumerate(names):
        first.setdefault(name, number)
        last[name] = number
    return sorted({*first.values(), *last.values()})


def quiet(sim: SimulatedCloud) -> None:
    """Nothing goes wrong from now on."""
    sim.fleet.called = lambda line, piece: True


async def lose_store(play: EngineHarness) -> None:
    """Everything except the cloud is gone, and no engine runs."""
    play.wanted = False
    play.kill()
    await play.advance(10.0)
    play.store.close()
    for file in play.folder.iterdir():
        if file.is_file():
            file.unlink()
    play.forget()
