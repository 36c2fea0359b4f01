"""Trainings interrupted at chosen moments, under the engine: the result is the same."""

import json
import re
import shutil
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.world import client, until
from tests.integration.engines import Owner, owner
from tpuherd_host.train.storage import Place, place

CLIENTS = Path(__file__).parent / "clients"
STEPS = 12
MINUTE = 60.0

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]


@dataclass(frozen=True)
class Interruption:
    """At this moment of this host something is done."""

    moment: str
    host: int
    do: str


@dataclass(frozen=True, kw_only=True)
class Case:
    """What happens to a training, and how it ends all the same."""

    name: str
    interruptions: tuple[Interruption, ...]
    verdicts: tuple[str, ...]  #: on each attempt
    start: int = 0  #: where the last attempt has to begin at the least
    same_shape: bool = True
    primed: bool = True  #: what was compiled in another story is there
    heavy: bool = True
    says: str = ""  #: in the log of its main process
    fields: Mapping[str, Any] = field(default_factory=dict)  #: of the job


@dataclass(frozen=True, kw_only=True)
class Told:
    """What a training says."""

    ends: list[dict[str, Any]]  #: what came of it, by each host of the last attempt
    lines: list[str]  #: of all logs


WEATHER = {  # what the cloud does, as commands of `herd sim`
    "preempt": "preempt {node}",
    "take": "preempt {node} --no-notice",
    "crash": "weather crash {node}/w{host}",
    "freeze": "weather hang {node}/w{host} for=10h",  # a minute, by the clock of the world
}
SHAPES = ("v4-8", "v4-16", "v4-32")  #: one host, two, four
#: What the waiting host does then; without an entry it waits forever.
WORDS = {"kill": b"kill", "preempt": b"heed"} | dict.fromkeys(SHAPES, b"heed")
TORSO = "herd: skipped the checkpoint of step 6: its save was cut short"
SETUP = {"setup": "python3 gate.py setup"}


def make_case(name: str, done: str, verdicts: str, **more: Any) -> Case:
    """A case in a line: "step-6@1 kill" kills the program of host 1 at its sixth step."""
    whats = (one.replace("@", " ").split() for one in done.split(", "))
    interruptions = tuple(Interruption(moment, int(host), do) for moment, host, do in whats)
    return Case(
        name=name, interruptions=interruptions, verdicts=tuple(verdicts.split(", ")), **more
    )


CASES = (
    # name, what is done (moment@host what), verdicts
    make_case(
        "three-notices", "step-2@1 preempt, step-5@0 preempt, step-8@1 preempt",
        "preempted, preempted, preempted, success", start=9, heavy=False,
    ),
    make_case("no-notice", "step-6@1 take", "preempted, success", start=4),
    make_case(
        "hang", "step-6@1 leave",
        "stalled, success", start=4, fields={"stall": "10s"}, heavy=False,
    ),
    make_case(
        "killed-in-a-save", "save-6@0 kill",
        "failure, success", start=5, says=TORSO, heavy=False,
    ),
    make_case(
        "killed-in-a-restore", "step-5@0 preempt, restore@0 kill",
        "preempted, failure, success", start=6,
    ),
    make_case(
        "fewer-and-more", "step-4@1 v4-8, step-7@0 v4-16",
        "stopped, stopped, success", start=8, same_shape=False,
    ),
    make_case("killed", "step-6@1 kill", "failure, success", start=4),
    make_case("killed-as-it-commits", "commit-6@0 kill", "failure, success", start=5, says=TORSO),
    make_case("another-killed-in-a-save", "save-6@1 kill", "failure, success", start=5),
    make_case(
        "another-killed-in-a-restore", "step-5@1 preempt, restore@1 kill",
        "preempted, failure, success", start=6,
    ),
    make_case("taken-in-a-save", "save-6@1 take", "preempted, success", start=5),
    make_case(
        "taken-in-a-restore", "step-5@0 preempt, restore@0 take",
        "preempted, preempted, success", start=6,
    ),
    make_case("killed-in-setup", "setup@1 kill", "success", fields=SETUP),
    make_case("taken-in-setup", "setup@1 take", "success", fields=SETUP),
    make_case("killed-as-it-compiles", "compile@1 kill", "failure, success", primed=False),
    make_case(
        "killed-as-a-program-is-kept", "keep-program@0 kill",
        "failure, success", primed=False,
    ),
    make_case("power-cut", "step-6@1 crash", "node fault, success", start=4),
    make_case("frozen-host", "step-6@1 freeze", "failure, success", start=4),
    make_case(
        "more-and-fewer", "step-4@1 v4-32, step-7@3 v4-16",
        "stopped, stopped, success", start=8, same_shape=False,
    ),
)  # fmt: skip
CALM = Case(name="calm", interruptions=(), verdicts=("success",))


PLAYED = [
    pytest.param(case, id=case.name, marks=[pytest.mark.heavy] if case.heavy else [])
    for case in CASES
]


@pytest.fixture(scope="module")
def user() -> Iterator[Owner]:
    options = ("--time-scale", "600", "--no-internet", "--offer", str(client("inside").parents[1]))
    with owner(*options) as found:
        body = json.dumps({"name": "stories", "location": "US"}).encode()
        url = f"{found.world.url}/storage/v1/b?project=demo"
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
        urllib.request.urlopen(request, timeout=30).close()
        code = found.home / "code"
        code.mkdir()
        for name in ("gate.py", "train_tiny.py"):
            shutil.copy(CLIENTS / name, code)
        yield found
        found.herd("down", "--all", "--yes", seconds=120)


@pytest.fixture(scope="module")
def calm(user: Owner) -> dict[str, Any]:
    """What it says when it is left in peace."""
    (end, *_) = played(user, CALM).ends
    return end


def folder(user: Owner, path: str) -> Place:
    return place(f"gs://stories/{path}", {"STORAGE_EMULATOR_HOST": user.world.url})


def begin(user: Owner, case: Case) -> None:
    """Have it trained; what another story has compiled is there already."""
    compiled = folder(user, f"{CALM.name}/programs")
    for name in compiled.names() if case.primed else ():
        folder(user, f"{case.name}/programs").write(name, [compiled.read(name)])
    watched = {f"{interruption.moment}@{interruption.host}" for interruption in case.interruptions}
    user.job(
        case.name,
        f"{client('inside')} train_tiny.py gs://stories/{case.name}",
        workdir=str(user.home / "code"),
        grace="5s",
        env={
            "JAX_NUM_CPU_DEVICES": "2",
            "STORY": f"stories/of-{case.name}",
            "WATCHED": " ".join(sorted(watched)),
        },
        **case.fields,
    )


def disturb(user: Owner, case: Case, interruption: Interruption) -> None:
    """Do it when its moment has come, and let the host on that has waited for it."""
    gates = folder(user, f"of-{case.name}/{interruption.moment}@{interruption.host}")
    until(
        lambda: gates.names("here"),
        f"{interruption.moment} on host {interruption.host}",
        seconds=2 * MINUTE,
    )
    if interruption.do in WEATHER:
        words = WEATHER[interruption.do].format(node=f"{case.name}-0-*", host=interruption.host)
        user.world.herd(*words.split())
    elif interruption.do in SHAPES:
        done = user.herd("set", case.name, f"accelerator={interruption.do}", "--yes")
        assert done.returncode == 0, done.stderr
    if interruption.do in WORDS:
        gates.write("word", [WORDS[interruption.do]])


def played(user: Owner, case: Case) -> Told:
    """The training from start to end, with all that is done to it."""
    begin(user, case)
    for interruption in case.interruptions:
        disturb(user, case, interruption)
    done = user.herd("wait", case.name, seconds=4 * MINUTE)
    logs = {log: lines for log, lines in user.said().items() if log.startswith(f"{case.name}-0-")}
    assert done.returncode == 0, (done.stderr, user.herd("events", case.name).stdout, logs)
    lines = [line for said in logs.values() for line in said]
    ends = [json.loads(line) for line in lines if line.startswith('{"start"')]
    return Told(ends=ends, lines=lines)


@pytest.mark.parametrize("case", PLAYED)
def test_an_interrupted_training_ends_as_if_unmake_case(
    user: Owner, calm: dict[str, Any], case: Case
) -> None:
    story = played(user, case)
    events = [one for one in user.events("attempt.ended", "attempt.stacks") if one.job == case.name]
    verdicts = [one.facts["verdict"] for one in events if one.kind == "attempt.ended"]
    assert tuple(verdicts) == case.verdicts
    for end in story.ends:
        assert end["start"] >= case.start
        assert end["n"] == STEPS
        assert end["tally"] == calm["tally"], "a sample was seen twice, or not at all"
        assert end["loss"] == pytest.approx(calm["loss"], rel=1e-5)
        assert end["bits"] == calm["bits"] or not case.same_shape
    assert len({end["bits"] for end in story.ends}) == 1
    assert case.says in "\n".join(story.lines)
    assert "compilation cache entry" not in "\n".join(story.lines), "a program was half written"
    stacks = [Path(one.facts["file"]).read_text() for one in events if one.kind == "attempt.stacks"]
    assert len(stacks) == verdicts.count("stalled")
    assert all("in reached" in text for text in stacks)


def test_the_page_lists_all_interruptions() -> None:
    page = (CLIENTS.parents[2] / "docs/explanation/proof.md").read_text()
    told = re.findall(r"^\| `([a-z-]+)` \|.*\| (test|heavy) \|$", page, re.M)
    assert sorted(told) == sorted((one.name, "heavy" if one.heavy else "test") for one in CASES)
