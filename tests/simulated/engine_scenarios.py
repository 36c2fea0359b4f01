"""Scenarios as transcripts: which jobs are submitted, what happens, and what must follow.

    script  gpt steps=20 crash=1@4/w1          attempt 1 crashes at its 4th step on worker 1
    submit  gpt run zones=us-east5-a copies=2  goal, then fields of a job
    down    gpt
    until   met | nothing | gpt-0 step 5 | gpt-0-g2 READY | event attempt.ended [within 40m]
    advance 3m
    weather preempt gpt-0-* notice_s=30        as `herd sim weather`
    kill    engine | agent gpt-0/w1 | link gpt-0/w0
    engine  off | on
    foreign x-g1-zzz us-east5-a                a node of another owner
    delete  us-east5-a gpt-0-g1-7kq            somebody deletes a node
    spare   2h                                 so long there may be more than is wanted
    pages   2                                  lists have so few a page
    events  attempt.* slot.done                exactly these lines since the last time:
        attempt.launched  gpt-0-a1-7kq
    nodes | requests                           what there is, by name and state:
        gpt-0-g1-7kq  READY
    state   gpt-0 *words that its sentence has*

Every transcript ends in calm weather: all jobs get what they ask for and keep it, then everything
is withdrawn, and no invariant was violated on the way.
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from tests.simulated.engine_faults import cut
from tests.simulated.engine_harness import EngineHarness, perform
from tests.simulated.engine_hosts import Machine, fits
from tests.simulated.engine_jobs import SimJob
from tests.simulated.engine_lifecycles import progress
from tests.simulated.engine_programs import Crash, Script
from tests.simulated.engine_world import TYPE
from tpuherd.model.slots_and_plan import Goal, HistoryEvent, RequestKind
from tpuherd_sim.weather.arguments import read_duration
from tpuherd_sim.weather.kinds import KINDS

PATIENCE_S = 3 * 3600.0
#: What an expected line shows of an event besides its kind and whom it is about.
SHOWN: Mapping[str, tuple[str, ...]] = {
    "attempt.ended": ("verdict",),
    "bid.refused": ("refusal",),
    "bid.lost": ("cause",),
}
CRASH = re.compile(r"(\d+)@(\d+)(?:/w(\d+))?(?:=(\d+))?")


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One line of a transcript with what stands indented below it."""

    number: int
    verb: str
    words: tuple[str, ...]
    below: tuple[str, ...]


def read(text: str) -> list[Line]:
    """The lines of a transcript."""
    found: list[Line] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        if line[0].isspace():
            last = found.pop()
            below = (*last.below, " ".join(line.split()))
            found.append(Line(number=last.number, verb=last.verb, words=last.words, below=below))
        else:
            verb, *words = line.split()
            found.append(Line(number=number, verb=verb, words=tuple(words), below=()))
    return found


def named(words: tuple[str, ...]) -> dict[str, str]:
    """The words of the form name=value."""
    return dict(word.split("=", 1) for word in words if "=" in word)


def script(words: tuple[str, ...]) -> Script:
    """steps=20 crash=1@4/w1=137 hang=1@3 on_term=die"""
    given: dict[str, Any] = {}
    crashes: dict[int, Crash] = {}
    hangs: dict[int, int] = {}
    for word in words:
        name, value = word.split("=", 1)
        match = CRASH.fullmatch(value)
        if name == "crash" and match:
            number, step, worker, exit = (int(one or 0) for one in match.groups())
            crashes[number] = Crash(step=step, worker=worker, exit=exit or 1)
        elif name == "hang" and match:
            hangs[int(match[1])] = int(match[2])
        elif name == "chips_busy_on":
            given[name] = tuple(value.split(","))
        else:
            kind = type(getattr(Script(), name))
            given[name] = value == "yes" if kind is bool else kind(value)
    return Script(**given, crashes=crashes, hangs=hangs)


def sim_job(words: tuple[str, ...]) -> SimJob:
    """gpt run zones=us-east5-a copies=2 limits.stall_s=60"""
    said = named(words)
    given: dict[str, Any] = {"job": words[0], "goal": Goal(words[1])}
    limits: dict[str, Any] = {}
    for name, value in said.items():
        if name.startswith("limits."):
            limits[name.removeprefix("limits.")] = None if value == "none" else float(value)
        elif name == "zones":
            given[name] = tuple(value.split(","))
        elif name == "kind":
            given[name] = RequestKind(value)
        elif name in ("copies", "nodes"):
            given[name] = int(value)
        elif name in ("outputs", "setup", "ahead"):
            given[name] = value == "yes"
        else:
            given[name] = value
    return SimJob(**{"type": TYPE, **given}, limits=limits)


def line_of(event: HistoryEvent) -> str:
    """An event as a transcript shows it."""
    who = event.facts.get("attempt") or event.facts.get("bid") or event.slot or event.job
    more = [str(event.facts.get(name)) for name in SHOWN.get(event.kind, ())]
    return " ".join([event.kind, str(who), *more])


@dataclass(kw_only=True)
class Stage:
    """A transcript as it is played."""

    play: EngineHarness
    scrambled: bool = False  #: sentences are random words
    seen: int = 0  #: events that were compared
    faults: list[str] = field(default_factory=list)

    async def perform(self, lines: list[Line]) -> list[str]:
        """Line by line, then the calm end."""
        for line in lines:
            found = await VERBS[line.verb](self, line)
            self.faults += [f"line {line.number}: {sentence}" for sentence in found or ()]
        return [*self.faults, *await self.play.close()]

    async def submit(self, line: Line) -> None:
        self.play.submit(sim_job(line.words))

    async def script(self, line: Line) -> None:
        self.play.sim.fleet.scripts[line.words[0]] = script(line.words[1:])

    async def down(self, line: Line) -> None:
        self.play.down(line.words[0])

    async def advance(self, line: Line) -> None:
        await self.play.advance(read_duration(line.words[0]) or 0.0)

    async def until(self, line: Line) -> list[str]:
        words = list(line.words)
        patience_s = PATIENCE_S
        if "within" in words:
            patience_s = read_duration(words[words.index("within") + 1]) or 0.0
            words = words[: words.index("within")]
        if await self.play.until(self.condition(words), patience_s):
            return []
        why = f"; unmet: {self.play.unmet_jobs()}; nodes: {self.play.sim.nodes()}"
        return [f"never in {patience_s:.0f} s: {' '.join(words)}{why}"]

    def condition(self, words: list[str]) -> Callable[[], bool]:
        """What is waited for."""
        if words[0] == "met":
            return self.play.met
        if words[0] == "nothing":
            return lambda: not self.play.sim.remains()
        if words[0] == "event":
            return lambda: any(
                fnmatchcase(line_of(one), " ".join(words[1:]) + "*") for one in self.fresh()
            )
        if words[1] == "step":
            return lambda: progress(self.play, words[0]) >= int(words[2])
        return lambda: any(
            name.startswith(f"{words[0]}-") and state == words[1]
            for name, state in self.play.sim.nodes().items()
        )

    def fresh(self) -> list[HistoryEvent]:
        """What was not compared yet."""
        return self.play.events()[self.seen :]

    async def weather(self, line: Line) -> None:
        row = KINDS[line.words[0]]
        bare = [word for word in line.words[1:] if "=" not in word]
        given = dict(zip((argument.name for argument in row.own), bare, strict=False))
        self.play.sim.weather(row.name, **given, **named(line.words[1:]))

    async def kill(self, line: Line) -> None:
        if line.words[0] == "engine":
            self.play.kill()
        for machine in self.machines(line):
            if line.words[0] == "agent":
                machine.kill_agent()
            for one in list(machine.lines.values()) if line.words[0] == "link" else ():
                cut(self.play, one)

    def machines(self, line: Line) -> list[Machine]:
        """Those that a line names."""
        machines = self.play.sim.machines()
        return [machine for machine in machines if fits(machine, line.words[-1])]

    async def engine(self, line: Line) -> None:
        self.play.wanted = line.words[0] == "on"
        if not self.play.wanted:
            self.play.kill()

    async def foreign(self, line: Line) -> None:
        name, zone = line.words
        body = {"acceleratorType": TYPE, "runtimeVersion": "v2-alpha-tpuv5"}
        self.play.sim.ask("POST", f"/v2/projects/demo/locations/{zone}/nodes?nodeId={name}", body)

    async def events(self, line: Line) -> list[str]:
        fresh = self.fresh()
        self.seen += len(fresh)
        chosen = [line_of(e) for e in fresh if any(fnmatchcase(e.kind, w) for w in line.words)]
        return differing(chosen, list(line.below))

    async def delete(self, line: Line) -> None:
        zone, name = line.words
        self.play.sim.ask("DELETE", f"/v2/projects/demo/locations/{zone}/nodes/{name}")

    async def spare(self, line: Line) -> None:
        self.play.watch.spare_s = read_duration(line.words[0]) or 0.0

    async def pages(self, line: Line) -> None:
        self.play.page = int(line.words[0])

    async def requests(self, line: Line) -> list[str]:
        every = self.play.sim.world.requests.values()
        return differing(sorted(f"{one.id} {one.state}" for one in every), sorted(line.below))

    async def nodes(self, line: Line) -> list[str]:
        every = self.play.sim.world.nodes.values()
        return differing(sorted(f"{one.id} {one.state}" for one in every), sorted(line.below))

    async def state(self, line: Line) -> list[str]:
        said = self.play.store.slot_messages().get(line.words[0], "")
        wanted = "?*" if self.scrambled else " ".join(line.words[1:])
        return [] if fnmatchcase(said, wanted) else [f"{line.words[0]} is said to be: {said!r}"]


def differing(found: list[str], wanted: list[str]) -> list[str]:
    """Where two lists of lines differ; a wanted line may have patterns."""
    same = len(found) == len(wanted) and all(map(fnmatchcase, found, wanted))
    return [] if same else ["it was otherwise:", *(f"    {one}" for one in found)]


VERBS: Mapping[str, Callable[[Stage, Line], Awaitable[list[str] | None]]] = {
    name: getattr(Stage, name)
    for name in (
        "submit", "script", "down", "advance", "until", "weather", "kill", "engine", "foreign",
        "delete", "pages", "spare", "events", "nodes", "requests", "state",
    )
}  # fmt: skip


def played(path: Path, *, scrambled: bool = False) -> list[str]:
    """What was wrong with a transcript."""
    lines = read(path.read_text())

    async def plot(play: EngineHarness) -> list[str]:
        return await Stage(play=play, scrambled=scrambled).perform(lines)

    found: list[str] = perform(plot)
    return found
