"""Orphans, and jobs rebuilt from the cards of nodes."""

import json
import re
from dataclasses import asdict, replace
from random import Random
from typing import Any

from tests.hostile_words import WORDS, mutate
from tests.unit.planner_scenes import NAME, NOW, node, sight
from tests.unit.toy_cloud import Toy, offer, slot
from tpuherd.cloud.parse import Node, parse_node
from tpuherd.cloud.request_bodies import read_card
from tpuherd.history.apply_event import apply_event
from tpuherd.jobfile.jobs_from_cards import rebuild_records, without_programs
from tpuherd.jobfile.read_job import job_document, read_fields
from tpuherd.model.observed import (
    BidObservation,
    NodeState,
    RequestState,
)
from tpuherd.model.slot_history import History
from tpuherd.model.slots_and_plan import Goal
from tpuherd.planner.plan import find_orphans


def card(**changes: Any) -> dict[str, Any]:
    job = read_fields({"name": "gpt", "accelerator": "v4-16", "run": "true"})
    assert not isinstance(job, list), job
    base = {
        "v": 1, "slot": "gpt-0", "job": job_document(job), "goal": "run", "generation": 1,
        "owner": "me", "node_digest": "n", "code_digest": "c", "snapshot": "s",
        "offer": asdict(offer("a")), "made_at": 3.0, "asked_at": 5.0,
    }  # fmt: skip
    return base | changes


def test_orphans() -> None:
    toy = Toy(slot())
    toy.run(until=Toy.running)
    for _ in range(10):
        toy.tick()

    def found(**sights: BidObservation) -> list[str]:
        named = {name.replace("_", "-"): one for name, one in sights.items()}
        observed = replace(toy.observed(), observations=toy.sights() | named)
        return [one.bid for one in find_orphans(toy.desired, observed, toy.history)]

    def shown(name: str) -> BidObservation:
        return replace(sight(NodeState.READY), bid=name)

    assert found() == []
    assert found(gpt_0_g9_me=shown("gpt-0-g9-me")) == ["gpt-0-g9-me"]
    assert found(gpt_7_g1_me=shown("gpt-7-g1-me")) == ["gpt-7-g1-me"]
    assert found(gpt_0_g9_you=shown("gpt-0-g9-you")) == []
    gone = next(iter(toy.kinds("bid.deleted"))).facts["bid"]
    assert found(**{gone: shown(gone)}) == []
    toy.desired = replace(toy.desired, adopted=frozenset(["you"]))
    assert found(gpt_0_g9_you=shown("gpt-0-g9-you")) == ["gpt-0-g9-you"]
    toy.desired = replace(toy.desired, slots={})
    assert len(found()) == 1


def test_adoption_rebuilds_the_job_of_the_newest_card_and_every_bid() -> None:
    ready = replace(sight(NodeState.READY), card=card())
    queued = BidObservation(
        bid="gpt-0-g2-me", zone="b", request=RequestState.QUEUED,
        card=card(asked_at=9.0, snapshot="t", goal="idle"),
    )  # fmt: skip
    making = replace(ready, bid="gpt-0-g3-me", nodes=(node(NodeState.MAKING),))
    bare = replace(ready, bid="gpt-0-g4-me", card={})
    alien = replace(ready, bid="gpt2-0-g1-me")
    odd = replace(ready, bid="something")
    found = rebuild_records([ready, queued, making, bare, alien, odd], {}, NOW, "me@here")
    (wanted_slot,) = found.stored_jobs
    assert (wanted_slot.job, wanted_slot.goal, wanted_slot.snapshot, wanted_slot.made_at) == (
        "gpt",
        Goal.IDLE,
        "t",
        3.0,
    )
    assert (wanted_slot.changed_at, wanted_slot.who, wanted_slot.document) == (
        NOW,
        "me@here",
        card()["job"],
    )
    assert found.unknown == ("gpt-0-g4-me", "gpt2-0-g1-me", "something")
    assert [event.kind for event in found.events] == ["job.submitted", *["bid.adopted"] * 3]
    history = History()
    for event in found.events:
        history = apply_event(history, event)
    bids = history.slots["gpt-0"].bids
    assert history.slots["gpt-0"].generation == 3
    one = bids[NAME]
    assert (one.asked_at, one.granted_at, one.ready_at, one.answered_at) == (5.0, 5.0, 5.0, NOW)
    assert (one.offer, one.node_digest, one.nodes) == (offer("a"), "n", 1)
    assert bids["gpt-0-g2-me"].granted_at is None
    assert (bids["gpt-0-g3-me"].granted_at, bids["gpt-0-g3-me"].ready_at) == (5.0, None)
    mixed = replace(ready, nodes=(node(), node(NodeState.MAKING)))
    (event,) = rebuild_records([mixed], {"gpt": wanted_slot}, NOW, "me").events[1:]
    assert "ready_at" not in event.facts and event.facts["granted_at"] == 5.0
    again = rebuild_records([ready], {"gpt": wanted_slot}, NOW, "me@here")
    assert not again.stored_jobs
    assert again.events[0].kind == "job.changed"


def test_a_card_is_about_its_own_node_whatever_it_says() -> None:
    """Whoever may change the metadata of one node may write anything into its card."""
    made, dice = "2026-01-01T00:00:00Z", Random(5)

    def parse(text: str, name: str) -> Node:
        return parse_node({
            "name": f"projects/p/locations/a/nodes/{name}", "id": "7", "createTime": made,
            "metadata": {"tpuherd": text},
        })  # fmt: skip

    for word in (*WORDS.values(), "9" * 5_000, "../x"):
        for form in ("{}-0-g1-me", "gpt-{}-g1-me", "gpt-0-g{}-me", "gpt-0-g1-{}", "gpt-0-g1-me-{}"):
            lie = form.replace("{}", word)
            found = parse(json.dumps({"bid": lie, "node": f"7@{made}"}), "train-1")
            assert re.fullmatch("[a-z0-9-]{0,160}", found.bid), lie[:200]
    adopted = []
    for _ in range(1_500):
        text = json.dumps(mutate(card(bid=NAME, node=f"7@{made}"), dice))
        ready = replace(sight(NodeState.READY), card=read_card(parse(text, NAME).metadata))
        for event in without_programs(rebuild_records([ready], {}, NOW, "me")).events:
            apply_event(History(), event)
            adopted += [event.facts] if event.kind == "bid.adopted" else []
    assert len(adopted) > 100, "some lies are about what is not used"
    assert {one["offer"]["zone"] for one in adopted} == {ready.zone}
    assert {ready.bid} == {one["bid"] for one in adopted}
    assert max(one["offer"].get("price") or 0 for one in adopted) <= 1e6


def test_a_card_brings_no_command_to_this_machine() -> None:
    """Whoever may create nodes in the project may write one."""

    def adopted(notify: Any) -> tuple[Any, str]:
        ready = replace(sight(NodeState.READY), card=card(job=card()["job"] | {"notify": notify}))
        found = without_programs(rebuild_records([ready], {}, NOW, "me@here"))
        (job,) = found.stored_jobs
        return job.document.get("notify"), str(found.events[0].facts["why"])

    said = "; the commands of its notify were left out: `herd run FILE` adds them"
    web = {"url": {"kept": "ntfy.sh"}, "on": ["done"]}
    for command in ({"run": "touch /tmp/pwned"}, {"kind": "command", "run": ["touch", "x"]}):
        assert adopted([command]) == (None, f"me@here adopted {NAME}{said}")
        assert adopted(command) == (None, f"me@here adopted {NAME}{said}")
        assert adopted([command, web]) == ([web], f"me@here adopted {NAME}{said}")
    assert adopted([web]) == ([web], f"me@here adopted {NAME}")
