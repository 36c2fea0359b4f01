"""Faults at chosen moments: the n-th request, journal write or call of an agent goes wrong.

A moment is named `api:17:lost`, `life:40`, `link:9:cut`: what is counted, which one, and what is
done there. Two engines that are told the same moments live through the same history.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx2

from tests.virtual.engine_ground import Ground
from tests.virtual.engine_lines import Line
from tests.virtual.engine_play import Play
from tests.virtual.engine_ports import Life
from tpuherd.ports import NotReached
from tpuherd.sim.tpu.call import Request
from tpuherd_host.agent import frames


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
}
LINKS = ("cut", "cut-after", "agent", "agent-after", "reboot", "silent", "crash")
HOSTS_HIT = frozenset({"reboot", "crash"})


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class Moment:
    """When something goes wrong, and what."""

    counted: str  #: api, life or link
    number: int
    how: str = ""

    def __str__(self) -> str:
        return ":".join(filter(None, (self.counted, str(self.number), self.how)))


def moment(text: str) -> Moment:
    """api:17:lost"""
    counted, number, *how = text.split(":")
    return Moment(counted=counted, number=int(number), how="".join(how))


@dataclass(kw_only=True)
class Mischief:
    """Counts what happens, remembers what it was, and does what was planned."""

    play: Play
    moments: frozenset[Moment] = frozenset()
    requests: list[tuple[str, Request]] = field(default_factory=list)  #: with what was new
    places: list[str] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    fresh: str = ""  #: the last place of the journal: what was done before

    def __post_init__(self) -> None:
        self.plan = {(one.counted, one.number): one.how for one in self.moments}
        self.play.at = self.at
        self.play.before = self.before
        self.play.ground.fleet.called = self.called

    def at(self, life: Life, place: str) -> None:
        """The engine is about to do something, or has done it."""
        number = len(self.places)
        self.places.append(place)
        if place.startswith("after "):
            self.fresh = place
        if ("life", number) in self.plan:
            life.die()

    def before(self, request: Request) -> None:
        """A request of the engine."""
        number = len(self.requests)
        self.requests.append((self.fresh, request))
        how = self.plan.get(("api", number))
        if how is None or not GUSTS[how].fits(request):
            return
        gust = GUSTS[how]
        if not gust.kind:
            raise httpx2.ConnectError("the network is unreachable")
        self.play.ground.weather(gust.kind, times=1, **gust.said)

    def called(self, line: Line, piece: bytes) -> bool:
        """A call is about to reach an agent; whether it does."""
        if piece[4] != frames.CALL:
            return True
        [frame] = frames.Reader().feed(piece)
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


def cut(play: Play, line: Line) -> None:
    """The link breaks."""
    line.cut(NotReached("the network cut the link"))


def agent(play: Play, line: Line) -> None:
    """The agent is killed."""
    line.machine.kill_agent()


def struck(kind: str, **said: Any) -> Callable[[Play, Line], None]:
    """The weather strikes the host."""

    def strike(play: Play, line: Line) -> None:
        view = line.machine.view
        target = f"{view.zone}/{view.node}/w{view.worker}"
        play.ground.weather(kind, target=target, **said)

    return strike


LINK_FAULTS: Mapping[str, Callable[[Play, Line], None]] = {
    "cut": cut,
    "agent": agent,
    "reboot": struck("reboot"),
    "crash": struck("crash"),
    "silent": struck("network", state="down", **{"for": 90}),
}


def points(seen: Mischief, each: int | None = None) -> list[Moment]:
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
    for turn, number in enumerate(ends(seen.calls)):
        found += [Moment(counted="link", number=number, how=how) for how in some(LINKS, turn, each)]
    return found


def some(hows: Sequence[str], turn: int, each: int | None) -> Sequence[str]:
    """So many of them, others at each turn; None: all."""
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


def quiet(ground: Ground) -> None:
    """Nothing goes wrong from now on."""
    ground.fleet.called = lambda line, piece: True
