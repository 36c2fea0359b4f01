"""What `down` waits for, in a world whose requests hang in SUSPENDING without a node."""

import asyncio
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tests.simulated.cloud_user import ZONE, User, live
from tests.simulated.test_submit import FACTS, Person
from tpuherd.cloud.nodes_api import Cloud
from tpuherd.jobs.open_project import Session
from tpuherd.jobs.remove import LOOK_S, STUCK_S, wait_until_gone
from tpuherd.model.slots_and_plan import HistoryEvent, Offer
from tpuherd.settings import project_access
from tpuherd.store.database import Database

REQUESTS = f"v2/projects/demo/locations/{ZONE}/queuedResources"
NODE = {"acceleratorType": "v4-8", "runtimeVersion": "tpu-ubuntu2204-base"}
OFFER = Offer(zone=ZONE, type="v4-8", runtime="tpu-ubuntu2204-base", tier="spot", price=1.0)


def desk_of(user: User, home: Path) -> Session:
    """Where this user's commands work."""
    (home / "world").mkdir()
    (home / "world/world.json").write_text(json.dumps(FACTS))
    person = Person({"HOME": str(home)})
    place = project_access.resolve_access(person.environ, world=home / "world")

    async def cloud() -> Cloud:
        return user.cloud

    store = Database(place.store_folder, user.clock.now())
    return Session(place=place, store=store, clock=user.clock, prompter=person, cloud=cloud)


async def state_of(user: User, bid: str) -> str:
    return str((await user.ask("GET", f"{REQUESTS}/{bid}"))["state"]["state"])


async def hang_request(user: User, bid: str) -> None:
    """A request that has lost its node and stays in SUSPENDING."""
    await user.weather("stuck-suspending", times=1)
    spec = {"parent": f"projects/demo/locations/{ZONE}", "nodeId": bid, "node": NODE}
    body = {"tpu": {"nodeSpec": [spec]}, "spot": {}}
    await user.ask("POST", f"{REQUESTS}?queuedResourceId={bid}", body)
    async with asyncio.timeout(7200):
        while await state_of(user, bid) != "ACTIVE":
            await asyncio.sleep(1)
        await user.weather("preempt", target=bid, notice_s=0)
        while await state_of(user, bid) != "SUSPENDING":
            await asyncio.sleep(1)
        await asyncio.sleep(600)
    assert await state_of(user, bid) == "SUSPENDING"


@pytest.mark.parametrize("freed", [True, False], ids=["without a node", "it may have a node"])
def test_a_hanging_withdrawn_request_delays_down_only_for_a_while(
    tmp_path: Path, freed: bool
) -> None:
    async def work(user: User) -> None:
        here = desk_of(user, tmp_path)
        bid = f"gpt-0-g1-{project_access.get_owner_id(here.config_folder)}"
        await hang_request(user, bid)
        begun = user.clock.now()
        asked = {"generation": 1, "nodes": 1, "node_digest": "d", "offer": asdict(OFFER)}
        kinds: dict[str, dict[str, Any]] = {
            "bid.requested": asked, "bid.granted": {}, "bid.withdrawn": {"why": "dropped"},
        }  # fmt: skip
        if freed:
            kinds["bid.nodes_deleted"] = {}
        here.store.append_events(
            [
                HistoryEvent(
                    at=begun, kind=kind, job="gpt", slot="gpt-0", facts={"bid": bid, **facts}
                )
                for kind, facts in kinds.items()
            ]
        )
        said: list[tuple[float, str]] = []
        async for what, _ in wait_until_gone(["gpt"], here):
            said.append((user.clock.now() - begun, what))
            if said[-1][0] > 2 * STUCK_S:
                break
        here.store.close()
        assert await state_of(user, bid) == "SUSPENDING"
        held = [at for at, what in said if what]
        assert all(bid in what for _, what in said[: len(held)])
        if freed:
            assert said[-1][1] == "" and len(held) == len(said) - 1
            assert STUCK_S - 2 * LOOK_S < held[-1] < STUCK_S <= said[-1][0] + LOOK_S
        else:
            assert len(held) == len(said)

    live(work)
