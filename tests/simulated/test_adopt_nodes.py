"""Nodes that other tools created, taken into a job: what is refused, and what the engine makes of
them, in virtual time."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.simulated.engine_faults import lose_store
from tests.simulated.engine_harness import EngineHarness, perform
from tests.simulated.engine_jobs import SimJob, slots
from tests.simulated.engine_ports import EngineLife, Wire
from tests.simulated.engine_programs import Script
from tests.simulated.engine_world import OWNER
from tests.simulated.test_submit import SubmitRig, a_node
from tpuherd.cloud.auth import AnonymousAuth
from tpuherd.cloud.bids_api import bid_observation
from tpuherd.cloud.nodes_api import Cloud
from tpuherd.cloud.parse import Node
from tpuherd.cloud.request_bodies import card_text
from tpuherd.cloud.rest import RestClient, world_http_client
from tpuherd.engine.actions import bid_card
from tpuherd.errors import InvalidInput, NotFound, NotReached
from tpuherd.jobfile.jobs_from_cards import rebuild_records
from tpuherd.jobfile.yaml_with_lines import read_yaml
from tpuherd.jobs.adopt_nodes import NodeAdoption, adopt_nodes, check_adoption, find_nodes
from tpuherd.model.slots_and_plan import Ask, Goal, RequestKind
from tpuherd.settings import project_access
from tpuherd.settings.endpoints import ServiceUrls
from tpuherd_sim.model.http_types import Request

JOB = "name: gpt\naccelerator: v4-16\ncopies: 2\n"
RUNTIME = "tpu-ubuntu2204-base"


@pytest.fixture
def rig(tmp_path: Path) -> Any:
    found = SubmitRig(tmp_path)
    found.nodes = [node("pod"), node("other"), node("tpu-1")]
    yield found
    found.session.store.close()


def node(name: str, **fields: Any) -> Node:
    return replace(a_node(name, ""), runtime=RUNTIME, tier="spot", **fields)


def check(rig: SubmitRig, *names: str, text: str = JOB) -> NodeAdoption | list[str]:
    """The adoption, or the mistakes of the job file."""
    page = read_yaml(text)

    async def work() -> NodeAdoption | None:
        there = await find_nodes(names, rig.session)
        return await check_adoption(there, page, rig.folder, rig.session)

    found = asyncio.run(work())
    return found or [one.format_line("job.yaml") for one in page.mistakes]


def refusal(rig: SubmitRig, *names: str, text: str = JOB) -> str:
    with pytest.raises((InvalidInput, NotFound)) as caught:
        check(rig, *names, text=text)
    error = caught.value
    return f"{error.sentence}; {error.hint}" if error.hint else error.sentence


def test_nodes_become_bids_of_the_slots_in_order(rig: SubmitRig) -> None:
    found = check(rig, "pod", "us-central2-b/other")
    assert isinstance(found, NodeAdoption)
    mine = project_access.get_owner_id(rig.session.config_folder)
    assert {name: ask.bid for name, ask in found.asks.items()} == {
        "pod": f"gpt-0-g1-{mine}",
        "other": f"gpt-1-g1-{mine}",
    }
    offer = found.asks["pod"].offer
    assert (offer.tier, offer.kind, offer.runtime) == ("spot", RequestKind.DIRECT, RUNTIME)
    assert (found.found.goal, found.found.job.runtime) == (Goal.IDLE, (RUNTIME,))
    assert "nothing is restarted" in found.question and "delete them" in found.question


def test_a_node_fills_the_slot_whose_node_has_its_name(rig: SubmitRig) -> None:
    found = check(rig, "pod", "tpu-1", text=f"{JOB}node_name: tpu\n")
    assert isinstance(found, NodeAdoption)
    assert {name: ask.slot for name, ask in found.asks.items()} == {
        "pod": "gpt-0",
        "tpu-1": "gpt-1",
    }


def test_a_generation_that_was_used_before_is_not_used_again(rig: SubmitRig) -> None:
    mine = project_access.get_owner_id(rig.session.config_folder)
    rig.tell("bid.withdrawn", bid=f"gpt-0-g4-{mine}", zone="us-central2-b")
    found = check(rig, "pod")
    assert isinstance(found, NodeAdoption)
    assert found.asks["pod"].bid == f"gpt-0-g5-{mine}"


@pytest.mark.parametrize(
    ("names", "text", "says"),
    [
        (["bod"], JOB, "there is no node bod: did you mean pod?"),
        (["pod", "pod"], JOB, "pod is named twice"),
        (["europe-west4-a/pod"], JOB, "there is no node europe-west4-a/pod: did you mean pod?"),
        (["pod", "other", "tpu-1"], JOB, "3 nodes are named, and gpt has 2: set copies: 3"),
        (["pod"], JOB.replace("16", "8"), "pod is a v4-16, and gpt asks for v4-8"),
        (["pod"], JOB + "runtime: tpu-vm-v4-base\n",
         "pod has the runtime tpu-ubuntu2204-base, and gpt asks for tpu-vm-v4-base: it would be"
         " replaced at once; set runtime: tpu-ubuntu2204-base"),
        (["pod"], JOB.replace("copies", "slices"),
         "nodes of a multislice run can't be adopted: slices should be 1"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(
    rig: SubmitRig, names: list[str], text: str, says: str
) -> None:
    assert refusal(rig, *names, text=text) == says
    assert rig.log() == [] and rig.person.asked == []


def test_mistakes_of_the_job_file_are_reported_by_line(rig: SubmitRig) -> None:
    assert check(rig, "pod", text=JOB + "zones: us-east9-x\n") == [
        "job.yaml:4: zones: unknown zone us-east9-x: did you mean us-east1-c or us-east1-d?"
    ]


def test_a_node_that_is_not_ready_or_not_free_is_refused(rig: SubmitRig) -> None:
    mine = project_access.get_owner_id(rig.session.config_folder)
    for changes, says in [
        ({"state": "PREEMPTED"}, "pod can't be adopted: it is PREEMPTED, not READY"),
        ({"adopted": f"old-0-g1-{mine}"},
         "pod is old-0 of your herd already; `herd status old`, or `herd engine adopt` if no"
         " job of this name exists"),
        ({"request": "gpt-0-g1-zzz"},
         "pod belongs to another herd user; `herd engine adopt zzz` takes over everything of"
         " theirs"),
    ]:  # fmt: skip
        rig.nodes = [replace(node("pod"), **changes)]  # type: ignore[arg-type]
        assert refusal(rig, "pod") == says
    rig.nodes = [node("pod"), node("pod", zone="europe-west4-a")]
    assert refusal(rig, "pod") == "pod exists in several zones: write us-central2-b/pod"


def test_a_job_that_exists_is_left_alone(rig: SubmitRig) -> None:
    assert rig.word(JOB + "run: hostname") == "submitted"
    assert refusal(rig, "pod").startswith("a job gpt exists already")


class Writer(Cloud):
    """Writes cards until one node refuses."""

    def __init__(self, rig: SubmitRig, bad: str) -> None:
        self.rig = rig
        self.bad = bad
        self.cards: dict[str, str | None] = {}

    async def write_card(self, zone: str, name: str, card: str | None) -> Node:
        if name == self.bad:
            raise NotReached("the cloud does not answer")
        self.cards[name] = card
        bid = "" if card is None else json.loads(card)["bid"]
        return replace(node(name), adopted=bid, metadata={"tpuherd": card or ""})


def adopt(rig: SubmitRig, bad: str = "") -> dict[str, str | None]:
    """What was written where."""
    found = check(rig, "pod", "other")
    assert isinstance(found, NodeAdoption)
    writer = Writer(rig, bad)

    async def cloud() -> Cloud:
        return writer

    try:
        asyncio.run(adopt_nodes(found, replace(rig.session, cloud=cloud)))
    except NotReached:
        assert bad
    return writer.cards


def test_job_and_bids_are_written_together(rig: SubmitRig) -> None:
    adopt(rig)
    assert rig.session.get_job("gpt").goal is Goal.IDLE
    kinds = [one.kind for one in rig.log()]
    assert kinds == ["job.submitted", "bid.adopted", "bid.adopted"]


def test_if_one_card_cannot_be_written_none_stays_and_no_job_is_made(rig: SubmitRig) -> None:
    assert adopt(rig, bad="other") == {"pod": None}
    assert rig.log() == [] and "gpt" not in rig.session.store.stored_jobs()


def test_a_no_changes_nothing(rig: SubmitRig) -> None:
    rig.person.answer = False
    assert adopt(rig) == {}
    assert rig.log() == []


# ---- in the world --------------------------------------------------------------------------------

ZONE = "us-east5-a"
NODES = f"/v2/projects/demo/locations/{ZONE}/nodes"
REQUESTS = f"/v2/projects/demo/locations/{ZONE}/queuedResources"
POD = {"acceleratorType": "v5p-16", "runtimeVersion": "v2-alpha-tpuv5",
       "networkConfig": {"enableExternalIps": True}}  # fmt: skip
LONG = {"gpt": Script(steps=4000)}


def ask(play: EngineHarness, method: str, path: str, query: str = "", body: Any = None) -> Any:
    """A request of another tool."""
    content = b"" if body is None else json.dumps(body).encode()
    answer = play.sim.live_world.handle_request(
        Request(method=method, path=path, query=query, body=content)
    )
    return json.loads(answer.body) if answer.status == 200 else {"state": answer.status}


async def with_cloud(play: EngineHarness, work: Callable[[Cloud], Awaitable[Any]]) -> Any:
    wire = Wire(play.sim.live_world, EngineLife(), lambda request: None, 0)
    async with world_http_client(wire) as http:
        urls = ServiceUrls(tpu="http://world", compute="http://world")
        return await work(Cloud(RestClient(http, urls, AnonymousAuth()), "demo"))


async def adopted_pod(play: EngineHarness, *, queued: bool) -> None:
    """Another tool's node, adopted into gpt as its only node."""
    if queued:
        spec = {"parent": f"projects/demo/locations/{ZONE}", "nodeId": "pod", "node": POD}
        body = {"tpu": {"nodeSpec": [spec]}, "spot": {}}
        ask(play, "POST", REQUESTS, "queuedResourceId=theirs", body)
    else:
        ask(play, "POST", NODES, "nodeId=pod", {**POD, "schedulingConfig": {"spot": True}})
    assert await play.until(lambda: ask(play, "GET", f"{NODES}/pod")["state"] == "READY", 900.0)
    now = play.clock.now()
    stored = SimJob(zones=(ZONE,)).to_stored_job(now)
    (slot,) = slots(stored)
    bid = f"gpt-0-g1-{OWNER}"
    offer = replace(slot.offers[0], kind=RequestKind.DIRECT)
    wanted = Ask(bid=bid, slot="gpt-0", generation=1, offer=offer, nodes=1, node_digest="n1")
    card = {**bid_card(wanted, slot, stored, owner=OWNER, now=now), "bid": bid}

    async def work(cloud: Cloud) -> Node:
        there = await cloud.get_node(ZONE, "pod")
        assert there is not None
        text = card_text({**card, "node": there.incarnation})
        return await cloud.write_card(ZONE, "pod", text)

    marked = await with_cloud(play, work)
    sights = [bid_observation(marked.bid, None, [marked])]
    records = rebuild_records(sights, {}, now, "me@laptop")
    play.store.add_jobs(records.stored_jobs, records.events)


def launched(play: EngineHarness) -> list[str]:
    return [str(event.facts["bid"]) for event in play.events("attempt.started")]


@pytest.mark.parametrize("queued", [False, True])
def test_an_adopted_node_is_used_replaced_when_lost_and_deleted_with_its_job(queued: bool) -> None:
    async def plot(play: EngineHarness) -> None:
        await adopted_pod(play, queued=queued)
        created = ask(play, "GET", f"{NODES}/pod")["createTime"]
        assert await play.until(lambda: launched(play) == [f"gpt-0-g1-{OWNER}"], 600.0)
        assert ask(play, "GET", f"{NODES}/pod")["createTime"] == created, "it is the same node"
        assert not [one for one in play.mutations() if one.creates], "nothing was requested"
        assert play.sim.weather("preempt", target="pod")
        again = f"gpt-0-g2-{OWNER}"
        assert await play.until(lambda: launched(play)[1:] == [again], 1800.0)
        assert await play.until(lambda: ask(play, "GET", f"{NODES}/pod")["state"] == 404, 900.0)
        assert not queued or ask(play, "GET", f"{REQUESTS}/theirs")["state"] == 404

    perform(plot, scripts=LONG)


@pytest.mark.parametrize("queued", [False, True])
def test_down_deletes_an_adopted_node(queued: bool) -> None:
    async def plot(play: EngineHarness) -> None:
        await adopted_pod(play, queued=queued)
        assert await play.until(lambda: len(launched(play)) == 1, 600.0)
        play.down("gpt")
        assert await play.until(lambda: ask(play, "GET", f"{NODES}/pod")["state"] == 404, 900.0)
        assert not queued or await play.until(
            lambda: ask(play, "GET", f"{REQUESTS}/theirs")["state"] == 404, 900.0
        )

    perform(plot, scripts=LONG)


def test_a_lost_store_finds_the_adopted_node_by_its_card() -> None:
    async def plot(play: EngineHarness) -> None:
        await adopted_pod(play, queued=False)
        assert await play.until(lambda: len(launched(play)) == 1, 600.0)
        await lose_store(play)
        play.wanted = True
        assert await play.until(lambda: "gpt" in play.store.stored_jobs(), 900.0)
        await play.advance(300.0)
        (found,) = play.events("bid.adopted")
        assert found.facts["bid"] == f"gpt-0-g1-{OWNER}"
        assert not [one for one in play.mutations() if one.creates]

    perform(plot, scripts=LONG)


def test_metadata_copied_to_another_node_does_not_make_it_ours() -> None:
    async def plot(play: EngineHarness) -> None:
        await adopted_pod(play, queued=False)
        assert await play.until(lambda: len(launched(play)) == 1, 600.0)
        metadata = ask(play, "GET", f"{NODES}/pod")["metadata"]
        ask(play, "POST", NODES, "nodeId=twin", {**POD, "metadata": metadata})
        await play.advance(600.0)
        play.down("gpt")
        assert await play.until(lambda: ask(play, "GET", f"{NODES}/pod")["state"] == 404, 900.0)
        await play.advance(300.0)
        assert ask(play, "GET", f"{NODES}/twin")["state"] == "READY"

    perform(plot, scripts=LONG)


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("way", ["part", "zeros", "card", "zone", "request"])
def test_no_stranger_becomes_a_host_of_a_running_job(way: str, early: bool) -> None:
    """Whoever may create nodes may choose their names, and what their cards say: code and secrets
    would be shipped there."""
    bid = f"gpt-0-g1-{OWNER}"
    name = {"part": f"{bid}-7", "zeros": f"gpt-0-g01-{OWNER}"}.get(way, "evil")
    zone = "europe-west4-b" if way in ("zone", "request") else ZONE
    place = f"/v2/projects/demo/locations/{zone}"

    async def appear(play: EngineHarness) -> None:
        if way == "request":
            spec = {"parent": place[4:], "nodeId": "evil", "node": POD}
            body = {"tpu": {"nodeSpec": [spec]}, "spot": {}}
            ask(play, "POST", f"{place}/queuedResources", f"queuedResourceId={bid}", body)
        else:
            ask(play, "POST", f"{place}/nodes", f"nodeId={bid if way == 'zone' else name}", POD)
        found = f"{place}/nodes/{bid if way == 'zone' else name}"
        assert await play.until(lambda: ask(play, "GET", found)["state"] == "READY", 900.0)
        if way == "card":

            async def claim(cloud: Cloud) -> None:
                there = await cloud.get_node(ZONE, name)
                assert there is not None
                card = {"bid": bid, "node": there.incarnation}
                await cloud.write_card(ZONE, name, card_text(card))

            await with_cloud(play, claim)

    async def plot(play: EngineHarness) -> None:
        if early:
            await appear(play)
        play.submit(SimJob(zones=(ZONE,)))
        assert await play.until(lambda: len(launched(play)) == 1, 1800.0)
        if not early:
            await appear(play)
        await play.advance(300.0)
        (begun,) = play.events("attempt.launched")
        assert len(begun.facts["boots"]) == 2, "of the one node that was requested"
        assert {len(one.facts["hosts"]) for one in play.events("slot.prepared")} == {2}
        assert not play.events("attempt.ended")

    perform(plot, scripts=LONG)
