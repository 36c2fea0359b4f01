"""`herd quota --share`: weights in the store, seen by the engine, with who changed them."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.simulated.test_submit import JOB, SubmitRig
from tests.unit.toy_cloud import offer
from tpuherd.engine.create_engine import make_job_expander
from tpuherd.errors import InvalidInput
from tpuherd.jobfile.grants import Grant
from tpuherd.jobfile.yaml_with_lines import read_yaml
from tpuherd.jobs import submit
from tpuherd.jobs.shares import change_weight, list_shares
from tpuherd.model.lab_shares import SHARES, parse_shares
from tpuherd.model.slots_and_plan import Goal
from tpuherd.settings import project_settings
from tpuherd.views.shares_table import shares_text


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[SubmitRig]:
    found = SubmitRig(tmp_path)
    (found.session.config_folder).mkdir(parents=True, exist_ok=True)
    (found.session.config_folder / "user").write_text("ana")
    yield found
    found.session.store.close()


def submit_job(rig: SubmitRig) -> None:
    page = read_yaml(JOB)
    found = asyncio.run(submit.check_submission(page, rig.folder, Goal.RUN, rig.session))
    assert found is not None, page.mistakes
    asyncio.run(submit.submit(found, rig.session, ""))


def test_weights_are_kept_for_all_engines_with_who_changed_them(rig: SubmitRig) -> None:
    store, place = rig.session.store, rig.session.place
    expand = make_job_expander(place, store, {"HOME": str(rig.folder)}, lambda *_: None)
    before = store.change_counter()
    assert expand({}).desired_slots.shares == parse_shares(None)
    assert change_weight("ana", 2.0, rig.session)
    assert not change_weight("ana", 2.0, rig.session)
    assert store.change_counter() > before  # a running engine reads it again
    shares = expand({}).desired_slots.shares
    assert shares.agreed and shares.weights == {"ana": 2.0}
    event = rig.log()[-1]
    assert (event.kind, event.facts["user"], event.facts["weight"]) == ("shares.changed", "ana", 2)
    assert event.facts["who"] in event.facts["why"]
    assert change_weight("ana", 1.0, rig.session)
    assert store.load_setting(SHARES) == {"users": {}}


@pytest.mark.parametrize("weight", [0.0, -1.0, 101.0, float("nan"), float("inf")])
def test_what_is_no_weight_is_refused(rig: SubmitRig, weight: float) -> None:
    with pytest.raises(InvalidInput, match="a weight is a number from"):
        change_weight("ana", weight, rig.session)
    assert rig.session.store.load_setting(SHARES) is None


@pytest.mark.parametrize("name", ["", " ", "a\nb", "x" * 201])
def test_what_is_no_name_is_refused(rig: SubmitRig, name: str) -> None:
    with pytest.raises(InvalidInput, match="a user's name"):
        change_weight(name, 2.0, rig.session)


def test_rows_that_herd_never_writes_change_nothing() -> None:
    content = {"ana": 2, "bert": "3", "carl": True, "dora": -1, "eve": float("nan")}
    assert parse_shares({"users": content}).weights == {"ana": 2.0}
    assert parse_shares({"users": 7}) == parse_shares({}) == parse_shares(None)


def test_the_list_names_users_and_what_they_have_of_each_quota(rig: SubmitRig) -> None:
    submit_job(rig)
    assert shares_text(list_shares(rig.session)) == ""  # one user alone has all
    place = rig.session.place
    grant = Grant(zone="us-central2-b", type="v4", tier="spot", chips=16)
    project_settings.add_grants(
        place.folders.config, world=place.world, project=place.project, grants=[grant]
    )
    wanted = {"zone": "us-central2-b", "type": "v4-8", "tier": "spot", "runtime": "r"}
    facts = {
        "bid": "gpt-0-g1-7kq", "generation": 1, "nodes": 1, "node_digest": "n",
        "offer": {**wanted, "kind": "queued", "rank": 0, "hosts": offer("a").hosts},
    }  # fmt: skip
    rig.tell("bid.requested", **facts)
    change_weight("bert", 3.0, rig.session)
    found = list_shares(rig.session)
    assert found["users"] == [
        {"user": "ana", "weight": 1.0, "jobs": 1, "part": 1.0},
        {"user": "bert", "weight": 3.0, "jobs": 0, "part": 0.0},
    ]
    (quota,) = found["quotas"]
    assert (quota["chips"], quota["used"]) == (16, {"ana": 4})
    assert "bert       3     -     0" in shares_text(found)
