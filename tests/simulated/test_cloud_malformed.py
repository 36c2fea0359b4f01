"""Malformed answers are errors of their call: nothing is read from them."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

import httpx2
import pytest

from tests.simulated.cloud_user import ZONE, User, live
from tests.simulated.test_engine_cloud import BID, CARD, ORDER, an_ask
from tpuherd.cloud import parse, request_bodies
from tpuherd.cloud.bids_api import BidsApi
from tpuherd.cloud.error_replies import MalformedAnswer
from tpuherd.cloud.nodes_api import PAGES_MAX
from tpuherd.errors import HerdError, NotFound
from tpuherd.model.node_spec import CARD as CARD_KEY
from tpuherd.model.slots_and_plan import RequestKind, Withdraw

HTML = "<html><body>Welcome to the guest network. Please log in.</body></html>"
NAME = "projects/demo/locations/us-central2-b/nodes/gpt-0-g1-abc"
#: What proxies, login pages and broken connections answer.
ANSWERS: Mapping[str, Callable[[], httpx2.Response]] = {
    "html": lambda: httpx2.Response(200, html=HTML),
    "empty": lambda: httpx2.Response(200),
    "no content": lambda: httpx2.Response(204),
    "cut": lambda: httpx2.Response(200, content=b'{"nodes": [{"name": "projects/dem'),
    "a list": lambda: httpx2.Response(200, json=[]),
    "null": lambda: httpx2.Response(200, content=b"null"),
    "a text": lambda: httpx2.Response(200, json="all is well"),
    "not UTF-8": lambda: httpx2.Response(200, content=b'{"name": "\xff"}'),
    "half a character": lambda: httpx2.Response(200, content=b'{"name": "\\ud800"}'),
    "deep": lambda: httpx2.Response(200, content=b'{"a":' * 100_000),
    "redirect": lambda: httpx2.Response(302, headers={"location": "http://login.example/"}),
    "redirect with JSON": lambda: httpx2.Response(307, json={}),
    "not modified": lambda: httpx2.Response(304),
}
#: What may be asked of the cloud.
CALLS: Mapping[str, Callable[[User, BidsApi], Awaitable[Any]]] = {
    "all nodes": lambda user, bids: user.cloud.list_nodes(),
    "all bids": lambda user, bids: bids.survey_bids([ZONE]),
    "a node": lambda user, bids: user.cloud.get_node(ZONE, "pod"),
    "guests": lambda user, bids: user.cloud.get_guests(ZONE, "pod"),
    "a bucket": lambda user, bids: user.cloud.get_bucket_location("mine"),
    "keys": lambda user, bids: user.cloud.install_key(ZONE, "pod", "me", "ssh-ed25519 AAAA"),
    "a request": lambda user, bids: bids.submit_bid(an_ask(), ORDER),
    "a direct node": lambda user, bids: bids.submit_bid(an_ask(kind=RequestKind.DIRECT), ORDER),
    "an operation": lambda user, bids: bids.find_refusal(BID, an_ask().offer),
    "withdrawal": lambda user, bids: bids.withdraw_bid(
        Withdraw(bid=BID, slot="gpt-0", zone=ZONE), None
    ),
}


def with_bids(work: Callable[[User, BidsApi], Awaitable[None]]) -> None:
    async def main(user: User) -> None:
        await work(user, BidsApi(user.cloud, user.clock, 22, user.cloud.list_nodes))

    live(main)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("answer", ANSWERS)
def test_an_answer_that_is_not_a_json_object_is_an_error_of_the_call(
    answer: str, call: str
) -> None:
    async def main(user: User, bids: BidsApi) -> None:
        user.wire.instead = lambda request: ANSWERS[answer]()
        with pytest.raises(MalformedAnswer) as caught:
            await CALLS[call](user, bids)
        assert "proxy" in caught.value.hint

    with_bids(main)


@pytest.mark.parametrize(
    "content",
    [
        {"nodes": {}},
        {"nodes": [7]},
        {"nodes": [{}]},
        {"nodes": [{"name": 7}]},
        {"nodes": [{"name": "gpt-0"}]},
        {"nodes": None},
        {"unreachable": [None]},
        {"unreachable": "us-central2-b"},
        {"nextPageToken": 7},
        {"queuedResources": [{"name": "x"}]},
    ],
    ids=str,
)
def test_json_of_another_shape_is_an_error_of_the_call(content: object) -> None:
    async def main(user: User, bids: BidsApi) -> None:
        user.wire.instead = lambda request: httpx2.Response(200, json=content)
        with pytest.raises(MalformedAnswer, match="is malformed"):
            await bids.survey_bids([ZONE])

    with_bids(main)


@pytest.mark.parametrize(
    "item",
    [
        {"state": 7},
        {"state": None},
        {"metadata": {"tpuherd": 7}},
        {"networkEndpoints": [None]},
        {"networkEndpoints": [{"ipAddress": 10}]},
        {"createTime": 7},
        {"name": f"{NAME}/../../x"},
        {"name": "projects/demo/locations/us-central2-b/nodes/\x1b[2J"},
        {"name": "projects/demo/locations/us-central2-b/nodes/.."},
    ],
    ids=str,
)
def test_a_malformed_item_makes_its_zone_unknown_and_is_named(
    item: dict[str, Any],
) -> None:
    async def main(user: User, bids: BidsApi) -> None:
        far = "projects/demo/locations/europe-west4-a/nodes/gpt-1-g1-abc"
        nodes = {"nodes": [{"name": NAME, **item}, {"name": far, "state": "READY"}]}

        def instead(request: httpx2.Request) -> httpx2.Response:
            return httpx2.Response(200, json=nodes if request.url.path.endswith("nodes") else {})

        user.wire.instead = instead
        survey = await bids.survey_bids([ZONE, "us-central1-a"])
        assert survey.zones == {"us-central1-a", "europe-west4-a"}
        assert list(survey.observations) == ["gpt-1-g1-abc"]
        assert survey.trouble.startswith(f"{ZONE}: the cloud's reply is malformed")

    with_bids(main)


@pytest.mark.parametrize(
    "state",
    [
        {"state": {"state": 7}},
        {"state": {"failedData": {"error": "no"}}},
        {"state": {"failedData": {"error": {"code": "8"}}}},
        {"tpu": {"nodeSpec": [None]}},
        {"tpu": []},
        {"spot": 1},
    ],
    ids=str,
)
def test_a_malformed_queued_resource_makes_its_zone_unknown(state: dict[str, Any]) -> None:
    name = NAME.replace("nodes", "queuedResources")
    page = parse.parse_queued_resources({"queuedResources": [{"name": name, **state}]})
    assert (page.items, page.unknown) == ([], [ZONE])
    assert page.trouble


@pytest.mark.parametrize("kind", ["the same token", "another each time"])
@pytest.mark.parametrize("call", ["all nodes", "all bids"])
def test_a_list_without_an_end_is_an_error(kind: str, call: str) -> None:
    async def main(user: User, bids: BidsApi) -> None:
        def instead(request: httpx2.Request) -> httpx2.Response:
            token = "again" if kind == "the same token" else f"t{len(user.wire.asked)}"
            return httpx2.Response(200, json={"nextPageToken": token})

        user.wire.instead = instead
        with pytest.raises(MalformedAnswer, match=r"never ends|has more than"):
            await CALLS[call](user, bids)
        assert len(user.wire.asked) == (2 if kind == "the same token" else PAGES_MAX)

    with_bids(main)


def test_an_endless_answer_is_abandoned() -> None:
    class Drip(httpx2.AsyncByteStream):
        async def __aiter__(self) -> Any:
            while True:
                await asyncio.sleep(10)
                yield b" "

    async def main(user: User, bids: BidsApi) -> None:
        user.wire.instead = lambda request: httpx2.Response(200, stream=Drip())
        begun = user.clock.now()
        with pytest.raises(HerdError, match="was not complete"):
            await user.cloud.list_nodes()
        assert user.clock.now() - begun <= 130

    with_bids(main)


@pytest.mark.parametrize(
    "change",
    [
        {"offer": {}},
        {"offer": {"zone": 7}},
        {"made_at": "yesterday"},
        {"asked_at": {}},
        {"job": "gpt"},
        {"goal": "fly"},
        {"generation": 1.5},
        {"snapshot": "../../x"},
        {"snapshot": "/etc/passwd"},
    ],
    ids=str,
)
def test_a_malformed_card_is_ignored(change: dict[str, Any]) -> None:
    assert request_bodies.read_card({CARD_KEY: json.dumps(CARD)}) == CARD
    assert request_bodies.read_card({CARD_KEY: json.dumps({**CARD, **change})}) == {}
    assert request_bodies.read_card({CARD_KEY: "[" * 100_000}) == {}


def test_an_error_page_with_a_status_is_that_status() -> None:
    async def main(user: User, bids: BidsApi) -> None:
        user.wire.instead = lambda request: httpx2.Response(404, html=HTML)
        with pytest.raises(NotFound, match="HTTP status 404"):
            await user.cloud.get_bucket_location("mine")
        refused = replace(ORDER)
        user.wire.instead = lambda request: httpx2.Response(502, html=HTML)
        with pytest.raises(HerdError, match="HTTP status 502"):
            await bids.submit_bid(an_ask(), refused)

    with_bids(main)
