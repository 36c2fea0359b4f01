"""Several users on one store: what the commands of one can never do to the jobs of another."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.simulated.test_submit import JOB, SubmitRig
from tpuherd.api import Herd
from tpuherd.async_api import AsyncHerd, PresetAnswers
from tpuherd.commands.ship_code import change_job_code
from tpuherd.errors import InvalidInput
from tpuherd.jobfile.yaml_with_lines import YamlDocument, read_yaml
from tpuherd.jobs import job_queries, submit
from tpuherd.jobs.cloud_inventory import CloudInventory
from tpuherd.jobs.open_project import Session
from tpuherd.jobs.remove import removal_preview, remove_jobs
from tpuherd.jobs.submit_map import MapRequest, submit_map_on_job
from tpuherd.model.observed import BidObservation, RequestState
from tpuherd.model.slots_and_plan import Goal
from tpuherd.model.stored_job import StoredJob
from tpuherd.ports import Survey


class Lab:
    """Ana and Bert, each with a configuration of their own, on one store."""

    def __init__(self, folder: Path) -> None:
        self.rig = SubmitRig(folder)
        self.sessions = {name: self.open_session(name, folder) for name in ("ana", "bert")}

    def open_session(self, user: str, folder: Path) -> Session:
        here = self.rig.session
        config = folder / user
        config.mkdir()
        (config / "user").write_text(user)
        (config / "owner").write_text("7kq")
        folders = replace(here.place.folders, config=config)
        return replace(here, place=replace(here.place, folders=folders))

    def submit(self, user: str, text: str = JOB) -> str:
        here, page = self.sessions[user], read_yaml(text)
        found = asyncio.run(submit.check_submission(page, self.rig.folder, Goal.RUN, here))
        assert found is not None, page.mistakes
        made = asyncio.run(submit.submit(found, here, ""))
        assert made is not None
        return made.word

    def remove(self, here: Session, *names: str) -> tuple[str, ...]:
        lost = BidObservation(bid="old-0-g1-7kq", zone="z", request=RequestState.ACTIVE)
        survey = Survey(observations={lost.bid: lost}, zones=frozenset(), begun_at=0.0)
        seen = CloudInventory(bids=Nobody(), survey=survey, owner="7kq", owners=frozenset(("7kq",)))  # type: ignore[arg-type]
        found = removal_preview(names, seen, here)
        asyncio.run(remove_jobs(found, seen, here))
        return found.jobs

    def jobs(self) -> dict[str, str]:
        rows = self.rig.session.store.stored_jobs().values()
        return {one.job: f"{one.user} {one.goal} {one.document.get('copies', 1)}" for one in rows}


class Nobody:
    """A cloud in which everything can be withdrawn."""

    async def withdraw_bid(self, *_: object) -> None:
        return


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    found = Lab(tmp_path)
    yield found
    found.rig.session.store.close()


def set_copies(here: Session) -> object:
    page = YamlDocument(value={**here.get_job("gpt").document, "copies": 2})
    return asyncio.run(submit.change_job("gpt", page, here))


def map_items(here: Session) -> object:
    request = MapRequest(items=("a", "b"))
    return asyncio.run(submit_map_on_job("gpt", YamlDocument(value={}), request, here))


def ship_code(here: Session) -> object:
    (here.place.folders.state / "code").mkdir(parents=True, exist_ok=True)
    (here.place.folders.state / "code/train.py").touch()
    return asyncio.run(change_job_code(here.place.folders.state / "code", "gpt", here))


CHANGES: dict[str, Callable[[Session], object]] = {
    "stop": lambda here: submit.stop_job(here.get_job("gpt"), here),
    "resume": lambda here: submit.resume_job(here.get_job("gpt"), here),
    "set, scale": set_copies,
    "map": map_items,
    "sync": ship_code,
}


@pytest.mark.parametrize("change", CHANGES)
def test_no_command_changes_the_job_of_another(lab: Lab, change: str) -> None:
    lab.submit("ana")
    before, events = lab.rig.session.get_job("gpt"), lab.rig.log()
    with pytest.raises(InvalidInput, match="gpt is ana's job") as refused:
        CHANGES[change](lab.sessions["bert"])
    assert refused.value.hint
    assert lab.rig.session.get_job("gpt") == before
    assert lab.rig.log() == events
    if change == "map":
        return  # no map runs on nodes with a command of their own, either
    CHANGES[change](lab.sessions["ana"])


def test_down_deletes_no_job_of_another(lab: Lab) -> None:
    lab.submit("ana")
    with pytest.raises(InvalidInput, match="gpt is ana's job"):
        lab.remove(lab.sessions["bert"], "gpt")
    assert lab.jobs() == {"gpt": "ana run 1"}


def test_down_all_deletes_ones_own_jobs_and_what_may_be_anothers_stays(lab: Lab) -> None:
    lab.submit("ana")
    lab.submit("bert", JOB.replace("gpt", "vit"))
    assert lab.remove(lab.sessions["bert"]) == ("vit",)
    assert lab.jobs() == {"gpt": "ana run 1"}
    assert lab.remove(lab.sessions["ana"]) == ("gpt", "old")  # alone again: the orphan, too


def test_a_name_in_use_by_another_is_refused_even_after_the_end(lab: Lab) -> None:
    lab.submit("ana")
    for end in ("", "slot.done"):
        if end:
            lab.rig.tell(end)
        with pytest.raises(InvalidInput, match="gpt is ana's job") as refused:
            lab.submit("bert", JOB.replace("-f", "-i"))
        assert refused.value.hint.startswith("choose another name")
    assert lab.rig.session.get_job("gpt").document["run"] == "hostname -f"
    assert lab.submit("ana") == "restarted"


@pytest.mark.parametrize("verb", ["stop", "set, scale"])
def test_acting_for_another_on_purpose_is_in_the_events(lab: Lab, verb: str) -> None:
    lab.submit("ana")
    CHANGES[verb](replace(lab.sessions["bert"], acting_for="ana"))
    job, event = lab.rig.session.get_job("gpt"), lab.rig.log()[-1]
    assert job.user == event.facts["user"] == "ana"
    assert event.facts["why"].endswith(", ana's job")
    assert event.facts["who"] in event.facts["why"]


def test_down_for_another_deletes_only_their_jobs(lab: Lab) -> None:
    lab.submit("ana")
    lab.submit("bert", JOB.replace("gpt", "vit"))
    assert lab.remove(replace(lab.sessions["bert"], acting_for="ana")) == ("gpt",)
    assert lab.jobs() == {"vit": "bert run 1"}
    event = lab.rig.log()[-1]
    assert (event.kind, event.facts["user"]) == ("job.removed", "ana")
    assert event.facts["why"].endswith("removed it, ana's job")


def test_jobs_from_before_users_were_kept_are_everybodys(lab: Lab) -> None:
    lab.submit("ana")
    store = lab.rig.session.store
    store.put_job(replace(store.stored_jobs()["gpt"], user=""))
    assert submit.stop_job(lab.sessions["bert"].get_job("gpt"), lab.sessions["bert"])
    assert lab.submit("bert") == "resumed"
    assert lab.jobs() == {"gpt": "bert run 1"}


def test_everybody_sees_the_jobs_of_all(lab: Lab) -> None:
    lab.submit("ana")
    here = lab.sessions["bert"]
    (row,) = job_queries.job_rows(here.store, 10.0)
    assert (row["job"], row["user"]) == ("gpt", "ana")
    assert job_queries.job_status(here.store, 10.0, "gpt")["user"] == "ana"
    assert job_queries.why_as_json(here.store, 10.0, "gpt")["slots"]


def test_python_acts_on_jobs_of_others_only_by_their_name(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.submit("ana")
    here = replace(lab.sessions["bert"], prompter=PresetAnswers({}, yes=True))
    kept: list[StoredJob] = []

    @asynccontextmanager
    async def open_session(
        self: AsyncHerd, *, yes: bool = False, acting_for: str = ""
    ) -> AsyncIterator[Session]:
        yield replace(here, acting_for=acting_for)
        kept.append(here.get_job("gpt"))

    monkeypatch.setattr(AsyncHerd, "_open_session", open_session)
    herd = Herd(environ={})
    calls: dict[str, Callable[..., object]] = {
        "change": lambda **it: herd.change("gpt", max_cost=5, **it),
        "scale": lambda **it: herd.scale("gpt", 3, **it),
        "stop": lambda **it: herd.stop("gpt", **it),
        "resume": lambda **it: herd.resume("gpt", **it),
    }
    for name, call in calls.items():
        before = here.get_job("gpt")
        with pytest.raises(InvalidInput, match="gpt is ana's job"):
            call()
        assert here.get_job("gpt") == before, name
        call(user="ana")
        assert kept[-1].revision == before.revision + 1, name
    assert {one.user for one in kept} == {"ana"}


def test_the_users_name_is_read_once_for_each_command(lab: Lab) -> None:
    here = lab.sessions["ana"]
    assert here.user == "ana"
    (here.config_folder / "user").write_text("eve")
    assert here.user == "ana"
    assert replace(here).user == "eve"


def test_the_context_names_the_user_else_the_machine_does_once_for_all(
    tmp_path: Path, monkeypatch: Any
) -> None:
    from tpuherd.settings import contexts_file, project_access

    first = project_access.get_user_name(tmp_path, {})
    assert first == f"{project_access.local_user()}@{first.partition('@')[2]}"
    monkeypatch.setattr("socket.gethostname", lambda: "renamed")
    assert project_access.get_user_name(tmp_path, {}) == first
    with contexts_file.edit_contexts(tmp_path) as content:
        content["contexts"]["lab"] = {"project": "p", "user": "ana"}
        content["current"] = "lab"
    assert project_access.get_user_name(tmp_path, {}) == "ana"
