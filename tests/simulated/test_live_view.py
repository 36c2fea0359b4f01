"""The view of the page: what it tells in steps is what a new one reads at once."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.unit.event_stories import StoryLog, nonsense, struck
from tpuherd.accounting.goodput import GoodputState, StateSpan
from tpuherd.errors import HerdError, NotFound
from tpuherd.jobs.live_view import Changes, LiveView, join_changes
from tpuherd.model.samples import ChipSample, HostSample
from tpuherd.model.slots_and_plan import Goal, HistoryEvent
from tpuherd.model.stored_job import StoredJob
from tpuherd.store.corruption import NAME
from tpuherd.store.database import Database
from tpuherd.store.sample_store import SampleStore
from tpuherd.views.slot_timeline import STATE_TITLES, thin_spans

NOW = 1_800_000_000.0


class SetClock:
    """A clock that a test sets."""

    def __init__(self, now: float) -> None:
        self.time = now

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.time += seconds


class ViewUser:
    """A store that changes, a view of it, and a page that knows only what the view told."""

    def __init__(self, folder: Path, now: float = NOW) -> None:
        self.folder = folder
        self.clock = SetClock(now)
        self.writer = Database(folder, now)
        self.reader = Database(folder, now)
        self.samples = SampleStore(folder)
        self.view = self.new_view()
        self.jobs: dict[str, Any] = {}
        self.slots: dict[str, Any] = {}
        self.nodes: dict[str, Any] = {}
        self.look()

    def new_view(self) -> LiveView:
        return LiveView(self.reader, SampleStore(self.folder), self.clock)

    def look(self) -> Changes:
        changes = self.view.refresh()
        self.take(changes)
        return changes

    def take(self, changes: Changes) -> None:
        """Change the page as its script does."""
        told = self.view.change_rows(changes)
        for job in told["removed_jobs"]:
            self.jobs.pop(job)
            self.slots = {n: row for n, row in self.slots.items() if n.rpartition("-")[0] != job}
        for row in told["jobs"]:
            self.slots |= {one["slot"]: one for one in row.pop("slot_rows")}
            for gone in row.pop("removed_slots"):
                self.slots.pop(gone, None)
            self.jobs[row["job"]] = row
        for node in told["removed_nodes"]:
            self.nodes.pop(node, None)  # it may have come and gone unseen
        self.nodes |= {row["node"]: row for row in told["nodes"]}

    def shown(self) -> Any:
        return self.jobs, self.slots, self.nodes

    def true_rows(self) -> Any:
        """The same of a view that reads everything at once."""
        fresh = self.new_view()
        fresh.refresh()
        whole = fresh.build_overview()
        slots = {one["slot"]: one for job in whole["jobs"] for one in job.pop("slot_rows")}
        jobs = {row["job"]: row for row in whole["jobs"]}
        return jobs, slots, {row["node"]: row for row in whole["nodes"]}

    def put_job(self, name: str, goal: Goal = Goal.RUN, copies: int = 1) -> None:
        document = {"name": name, "copies": copies}
        self.writer.put_job(
            StoredJob(job=name, goal=goal, document=document, made_at=NOW, changed_at=NOW)
        )

    def add(self, events: list[HistoryEvent]) -> None:
        self.writer.append_events(events)


@pytest.mark.parametrize("seed", range(4))
def test_changes_add_up_to_everything(tmp_path: Path, seed: int) -> None:
    chance = Random(seed)
    user = ViewUser(tmp_path, NOW + 10_000)
    for step in range(15):
        match chance.randrange(5):
            case 0:
                goal = chance.choice((Goal.RUN, Goal.IDLE, Goal.GONE))
                user.put_job(chance.choice(("gpt", "lr")), goal, chance.randrange(1, 5))
            case 1:
                user.writer.remove_job(chance.choice(("gpt", "lr")))
            case 2:
                user.writer.put_slot_messages({f"gpt-{n}": f"m{step}" for n in range(2)})
            case _:
                user.add([nonsense(chance, NOW + 100 * step + n) for n in range(9)])
        user.look()
        assert user.shown() == user.true_rows(), f"step {step}"
    assert not user.look(), "nothing is new"


def test_a_page_that_missed_some_changes_gets_all_of_them_at_once(tmp_path: Path) -> None:
    chance = Random(1)
    user = ViewUser(tmp_path, NOW + 10_000)
    missed = []
    for step in range(30):
        user.put_job("gpt", copies=chance.randrange(1, 5))
        if step % 7 == 3:
            user.writer.remove_job("gpt")
        user.add([nonsense(chance, NOW + 100 * step + n) for n in range(5)])
        missed.append(user.view.refresh())
    user.take(join_changes(missed))
    assert user.shown() == user.true_rows()


def test_money_goes_on_without_events(tmp_path: Path) -> None:
    story = StoryLog(NOW)
    story.get(10, 20, 30)
    story.launch(5, step=0)
    user = ViewUser(tmp_path, story.now)
    user.put_job("gpt")
    user.add(story.events)
    user.look()
    before = user.slots["gpt-0"]
    user.clock.time += 2
    assert not user.look().slots, "not yet: the slot is a minute old"
    user.clock.time += 2
    assert user.look().slots == {"gpt-0"}
    user.clock.time += 86400
    user.look()
    user.clock.time += 57
    assert not user.look().slots, "once a minute is enough for a slot of a day"
    user.clock.time += 5
    assert user.look().slots == {"gpt-0"}
    after = user.slots["gpt-0"]
    assert after["cost"] == pytest.approx(before["cost"] + 86466)
    assert after["goodput"] > before["goodput"]
    assert user.shown() == user.true_rows()
    assert user.view.build_overview()["cost"]["total"] == pytest.approx(after["cost"])


def test_what_changes_is_told_and_nothing_else(tmp_path: Path) -> None:
    user = ViewUser(tmp_path)
    user.put_job("gpt", copies=3)
    user.put_job("lr")
    user.look()
    user.writer.put_slot_messages({"gpt-1": "waits for capacity"})
    changes = user.look()
    assert (set(changes.jobs), set(changes.slots)) == ({"gpt"}, {"gpt-1"})
    assert not changes.nodes
    assert user.slots["gpt-1"]["why"] == "waits for capacity"
    user.writer.troubles.record_trouble("cloud", "no answer", now=NOW)
    user.clock.time += 2
    assert user.look().surroundings
    assert [one["message"] for one in user.view.build_overview()["problems"]] == ["no answer"]
    assert not user.look()


def test_nodes_have_a_place_for_every_chip_and_show_samples(tmp_path: Path) -> None:
    story = StoryLog(NOW)
    story.get(10, 20, 30)
    story.events = [with_hosts(event) for event in story.events]
    user = ViewUser(tmp_path, story.now)
    user.put_job("gpt")
    user.add(story.events)
    user.look()
    (node,) = user.nodes.values()
    assert (node["chips_per_host"], len(node["hosts"])) == (4, 4)
    assert node["hosts"][3]["host"] == "gpt-0-g1-7kq/w3"
    assert node["hosts"][3]["hbm_used"] == [None] * 4
    chips = tuple(ChipSample(hbm_used=n, hbm_total=9, duty_percent=float(n)) for n in range(9))
    sample = HostSample(
        host="gpt-0-g1-7kq/w3", job="gpt", slot="gpt-0", at=NOW, cpu_percent=50.0, chips=chips[:2]
    )
    strange = replace(sample, host="gpt-0-g1-7kq/w9", chips=chips)
    user.samples.put_samples([sample, strange], [])
    changes = user.look()
    assert changes.hosts == {sample.host, strange.host}
    told = user.view.host_rows(changes.hosts)
    assert told.keys() == {sample.host}, "a host that no node has is not shown"
    assert told[sample.host]["hbm_used"] == [0, 1, None, None]
    assert user.view.build_overview()["nodes"][0]["hosts"][3] == told[sample.host]
    assert not user.look()


def with_hosts(event: HistoryEvent) -> HistoryEvent:
    offer = event.facts.get("offer")
    facts = {**event.facts, "offer": {**offer, "hosts": 4}} if offer else event.facts
    return replace(event, facts=facts)


def test_the_page_of_a_job_has_its_timeline_and_its_losses(tmp_path: Path) -> None:
    story = struck()
    story.get(50, 20, 30)
    story.launch(5, step=100, resumed=100)
    story.wait(100, GoodputState.PRODUCTIVE)
    user = ViewUser(tmp_path, story.now)
    user.put_job("gpt")
    user.add(story.events)
    user.look()
    page = user.view.build_job_page("gpt")
    spans = page["timeline"]["slots"]["gpt-0"]
    assert sum(end - start for start, end, _ in spans) == pytest.approx(sum(story.truth.values()))
    assert {state for _, _, state in spans} >= {"wasted", "detect", "capacity_wait", "productive"}
    assert page["timeline"]["end"] == story.now
    (incident,) = page["incidents"]
    assert (incident["slot"], incident["steps_lost"]) == ("gpt-0", 40)
    assert {row["state"] for row in page["states"]} == set(map(str, GoodputState))
    with pytest.raises(NotFound, match="there is no job gtp: did you mean gpt"):
        user.view.build_job_page("gtp")


def test_every_state_has_a_title() -> None:
    assert set(STATE_TITLES) == set(GoodputState)
    assert len(set(STATE_TITLES.values())) == len(STATE_TITLES)


@pytest.mark.parametrize("seed", range(20))
def test_a_long_timeline_is_thinned_and_covers_the_same_time(seed: int) -> None:
    chance = Random(seed)
    at, spans = NOW, []
    for _ in range(chance.randrange(1, 500)):
        until = at + chance.choice((0.001, 1.0, 60.0, 3600.0)) * chance.random()
        spans.append(StateSpan(start=at, end=until, state=chance.choice(list(GoodputState))))
        at = until
    thin = thin_spans(spans, 100)
    assert len(thin) <= max(100, 1)
    assert (thin[0].start, thin[-1].end) == (spans[0].start, spans[-1].end)
    assert all(one.end == pytest.approx(two.start) for one, two in pairwise(thin))
    assert all(one.start <= one.end for one in thin)


def test_a_store_that_a_newer_herd_migrated_is_left_alone(tmp_path: Path) -> None:
    user = ViewUser(tmp_path)
    user.put_job("gpt")
    with closing(sqlite3.connect(user.writer.folder / NAME)) as newer:
        newer.execute("PRAGMA user_version = 99")
    with pytest.raises(HerdError, match="newer herd"):
        user.look()
