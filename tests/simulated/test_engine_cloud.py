"""The engine's cloud adapter against the simulated API: repeats, refusals, withdrawals."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from math import inf
from typing import Any

import pytest

from tests.simulated.cloud_user import ZONE, User, live
from tpuherd.cloud.bids_api import BidsApi, bid_observation
from tpuherd.cloud.error_replies import CloudError
from tpuherd.cloud.parse import QueuedResource
from tpuherd.errors import NotReached
from tpuherd.model.node_spec import NodeSpec
from tpuherd.model.observed import NodeState, RequestState
from tpuherd.model.slots_and_plan import Ask, Offer, Refusal, RequestKind, Withdraw
from tpuherd.ports import BidRefused
from tpuherd_sim.model.records import Reservation
from tpuherd_sim.tpu.set_capacity import add_reservation

BID = "gpt-0-g1-abc"
CARD = {"v": 1, "slot": "gpt-0", "generation": 1, "owner": "abc", "node_digest": "d"}
ORDER = NodeSpec(card=CARD, labels={"team": "x"}, tags=("web",))


def an_ask(**more: Any) -> Ask:
    """For a slice of two hosts."""
    offer = Offer(zone=ZONE, type="v4-16", runtime="tpu-ubuntu2204-base", tier="spot", hosts=2)
    nodes = more.pop("nodes", 1)
    return Ask(
        bid=BID,
        slot="gpt-0",
        generation=1,
        offer=replace(offer, **more),
        nodes=nodes,
        node_digest="d",
    )


def with_bids(work: Callable[[User, BidsApi], Awaitable[None]]) -> None:
    """In a world of its own."""

    async def main(user: User) -> None:
        await work(user, BidsApi(user.cloud, user.clock, 22, user.cloud.list_nodes))

    live(main)


async def until(bids: BidsApi, happens: Callable[[Any], bool]) -> Any:
    """Look until the bid is so; give it as it was seen."""
    async with asyncio.timeout(7200):
        while True:
            sight = (await bids.survey_bids([ZONE])).observations.get(BID)
            if happens(sight):
                return sight
            await asyncio.sleep(5)


def test_a_request_from_creation_to_deletion() -> None:
    async def main(user: User, bids: BidsApi) -> None:
        await bids.submit_bid(an_ask(), ORDER)
        first = (await bids.survey_bids([ZONE])).observations[BID]
        assert first.request is RequestState.QUEUED
        assert first.card == CARD
        ready = await until(bids, lambda one: one.request is RequestState.ACTIVE)
        assert [node.word for node in ready.nodes] == [NodeState.READY]
        assert [(host.node, host.worker) for host in bids.bid_hosts(BID)] == [(BID, 0), (BID, 1)]
        order = Withdraw(bid=BID, slot="gpt-0", zone=ZONE)
        await bids.withdraw_bid(order, ready)
        await until(bids, lambda one: one is None)
        await bids.withdraw_bid(order, None)  # once more does no harm
        assert bids.bid_hosts(BID) == ()

    with_bids(main)


@pytest.mark.parametrize("kind", [RequestKind.QUEUED, RequestKind.DIRECT])
def test_a_repeated_request_is_accepted_and_a_different_one_of_that_name_is_not(
    kind: RequestKind,
) -> None:
    async def main(user: User, bids: BidsApi) -> None:
        await bids.submit_bid(an_ask(kind=kind), ORDER)
        await bids.submit_bid(an_ask(kind=kind), ORDER)
        other = replace(ORDER, card={**CARD, "owner": "xyz"})
        with pytest.raises(BidRefused) as refused:
            await bids.submit_bid(an_ask(kind=kind), other)
        assert refused.value.refusal is Refusal.TAKEN

    with_bids(main)


def test_the_slices_of_a_run_are_one_bid() -> None:
    async def main(user: User, bids: BidsApi) -> None:
        await bids.submit_bid(an_ask(nodes=2), ORDER)
        ready = await until(bids, lambda one: one.request is RequestState.ACTIVE)
        assert [node.name for node in ready.nodes] == [f"{BID}-0", f"{BID}-1"]
        places = [(host.node, host.worker) for host in bids.bid_hosts(BID)]
        assert places == [(f"{BID}-{part}", worker) for part in (0, 1) for worker in (0, 1)]

    with_bids(main)


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_node_may_have_a_name_of_its_own(nodes: int) -> None:
    """The request has the bid's name, and says whose the node is."""

    async def main(user: User, bids: BidsApi) -> None:
        await bids.submit_bid(an_ask(nodes=nodes), replace(ORDER, node_name="my-tpu"))
        ready = await until(bids, lambda one: one.request is RequestState.ACTIVE)
        names = ["my-tpu"] if nodes == 1 else ["my-tpu-0", "my-tpu-1"]
        assert [node.name for node in ready.nodes] == names
        assert {host.bid for host in bids.bid_hosts(BID)} == {BID}
        await bids.withdraw_bid(Withdraw(bid=BID, slot="gpt-0", zone=ZONE), ready)
        await until(bids, lambda one: one is None)
        assert (await user.cloud.list_nodes()).nodes == ()

    with_bids(main)


def test_a_name_that_another_node_has_is_in_use_and_that_node_is_left_alone() -> None:
    async def main(user: User, bids: BidsApi) -> None:
        await user.node("theirs")
        with pytest.raises(BidRefused, match="a node named theirs already exists") as refused:
            await bids.submit_bid(an_ask(), replace(ORDER, node_name="theirs"))
        assert refused.value.refusal is Refusal.NAME_IN_USE
        await bids.withdraw_bid(Withdraw(bid=BID, slot="gpt-0", zone=ZONE), None)
        assert [node.name for node in (await user.cloud.list_nodes()).nodes] == ["theirs"]

    with_bids(main)


def test_a_request_that_fails_because_of_a_name_means_its_nodes_name() -> None:
    error = CloudError(code=6, sentence="Resource 'theirs' already exists")
    failed = QueuedResource(name=BID, zone=ZONE, state="FAILED", tier="spot", error=error)
    assert bid_observation(BID, failed, []).refusal is Refusal.NAME_IN_USE


def test_missing_capacity_is_found_in_the_operation() -> None:
    async def main(user: User, bids: BidsApi) -> None:
        await user.weather("drought", zone=ZONE)
        await bids.submit_bid(an_ask(kind=RequestKind.DIRECT), ORDER)
        await until(bids, lambda one: one is None)
        no = await bids.find_refusal(BID, an_ask().offer)
        assert no is not None
        assert no.refusal is Refusal.STOCKOUT
        assert await bids.find_refusal("gpt-0-g9-abc", an_ask().offer) is None

    with_bids(main)


@pytest.mark.parametrize("tier", ["reserved", "spot"])
def test_only_requests_for_a_reservation_are_refused_by_it(tier: str) -> None:
    """Spot capacity is at times refused in words of reservations, too."""

    async def main(user: User, bids: BidsApi) -> None:
        full = Reservation(zone=ZONE, id="r", type="v4-16", size=0, start=0.0, end=inf)
        add_reservation(user.world, full)
        ask = an_ask(kind=RequestKind.DIRECT, tier="reserved")
        await bids.submit_bid(ask, ORDER)
        await until(bids, lambda one: one is None)
        no = await bids.find_refusal(BID, replace(ask.offer, tier=tier))
        assert no is not None
        reserved = tier == "reserved"
        assert no.refusal is (Refusal.RESERVATION if reserved else Refusal.STOCKOUT)

    with_bids(main)


def test_impossible_requests_are_classified() -> None:
    async def main(user: User, bids: BidsApi) -> None:
        typo = replace(ORDER, network="nonet")
        cases: list[tuple[dict[str, Any], NodeSpec, Refusal]] = [
            ({"type": "v5litepod-8"}, ORDER, Refusal.CONFIGURATION),
            ({"runtime": "no-such-runtime"}, ORDER, Refusal.CONFIGURATION),
            ({"zone": "mars-central1-a"}, ORDER, Refusal.PERMISSION),
            ({}, typo, Refusal.CONFIGURATION),
            ({"kind": RequestKind.DIRECT}, typo, Refusal.CONFIGURATION),
        ]
        for change, order, word in cases:
            with pytest.raises(BidRefused) as refused:
                await bids.submit_bid(an_ask(**change), order)
            assert refused.value.refusal is word, change

    with_bids(main)


def test_a_cut_connection_is_unknown_and_repeating_is_safe() -> None:
    async def main(user: User, bids: BidsApi) -> None:
        await user.weather("lost-response", method="*.create", times=1)
        with pytest.raises(NotReached):
            await bids.submit_bid(an_ask(), ORDER)
        await bids.submit_bid(an_ask(), ORDER)
        assert BID in (await bids.survey_bids([ZONE])).observations

    with_bids(main)


def test_a_zone_that_does_not_answer_is_not_empty() -> None:
    async def main(user: User, bids: BidsApi) -> None:
        await bids.submit_bid(an_ask(), ORDER)
        await user.weather("unreachable-zone", zone=ZONE)
        survey = await bids.survey_bids([ZONE, "us-central1-a"])
        assert ZONE not in survey.zones
        assert "us-central1-a" in survey.zones

    with_bids(main)


def test_resources_made_by_hand_are_no_bids() -> None:
    async def main(user: User, bids: BidsApi) -> None:
        await user.node("handmade")
        assert (await bids.survey_bids([ZONE])).observations == {}

    with_bids(main)


@pytest.mark.parametrize("kind", RequestKind)
def test_a_new_node_has_our_key_from_the_start(kind: RequestKind) -> None:
    """The cloud takes none while it creates the node, and its hosts are set up meanwhile."""
    key = ("me", "ssh-ed25519 AAAA")

    async def work(user: User) -> None:
        bids = BidsApi(user.cloud, user.clock, 22, user.cloud.list_nodes, key)
        order = replace(ORDER, metadata={"more": "words"})
        await bids.submit_bid(an_ask(kind=kind), order)
        await until(bids, lambda sight: bool(sight and sight.nodes))
        node = await user.cloud.get_node(ZONE, BID)
        assert node is not None
        assert node.state == "CREATING"
        assert node.metadata["ssh-keys"] == "me:ssh-ed25519 AAAA tpuherd"
        assert node.metadata["more"] == "words"
        assert await user.cloud.install_key(ZONE, BID, *key) == "", "nothing is to be done"

    live(work)
