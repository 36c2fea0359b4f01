"""The last problem is the first line of what people read, and disappears with a good answer."""

import json
import os
from pathlib import Path
from time import time
from typing import Any

import httpx2
import pytest

from tests.simulated.conftest import Herd, use_home
from tests.simulated.engine_harness import EngineHarness, SimJob, perform
from tpuherd.model.slots_and_plan import Goal, HistoryEvent
from tpuherd.model.stored_job import StoredJob
from tpuherd.model.trouble import CLOUD, ENGINE, STORE, TroubleRecord
from tpuherd.settings import project_access
from tpuherd.store.database import Database
from tpuherd.store.trouble_files import SIZE, TroubleStore
from tpuherd.views.trouble_line import trouble_line
from tpuherd_sim.model.http_types import Request


@pytest.fixture
def google(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of somebody who means Google Cloud, has a job there, and has not logged in."""
    use_home(tmp_path, monkeypatch)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "mine")
    store = Database(project_access.resolve_scope(dict(os.environ)).store_folder, time())
    now = time()
    stored_job = StoredJob(
        job="gpt", goal=Goal.RUN, document={"name": "gpt"}, made_at=now, changed_at=now
    )
    store.put_job(
        stored_job, [HistoryEvent(at=now, kind="job.submitted", job="gpt", facts={"who": "me"})]
    )
    store.put_slot_messages({"gpt-0": "waits for capacity"})
    store.close()
    return tmp_path


COMMANDS = (["why", "gpt"], ["status", "gpt"], ["ls"], ["events"])


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_missing_login_is_the_first_line(google: Path, herd: Herd, words: list[str]) -> None:
    status, out, _ = herd(*words)
    assert status == 0
    first, rest = out.split("\n", 1)
    assert first.startswith("Problem with your login")
    assert "gcloud auth application-default login" in first
    assert "gpt" in rest


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_the_last_problem_is_the_first_line_until_a_good_answer(
    herd: Herd, google: Path, words: list[str]
) -> None:
    adc = google / ".config/gcloud/application_default_credentials.json"
    adc.parent.mkdir(parents=True)
    adc.write_text("{}")
    troubles = TroubleStore(project_access.resolve_scope(dict(os.environ)).store_folder)
    store = Database(troubles.folder, time())  # no engine begins: it seems to be settled
    store.append_events([HistoryEvent(at=time(), kind="engine.stopped", facts={"code": "rest"})])
    store.close()
    for ago in (200, 100):
        troubles.record_trouble(CLOUD, "HTTP status 503", hint="try again later", now=time() - ago)
    first = herd(*words)[1].split("\n", 1)[0]
    assert first.startswith(
        "Problem with the cloud, for 3 m 20 s, seen 2 times, last 1 m 40 s ago:"
    )
    assert first.endswith("HTTP status 503; try again later")
    _, out, err = herd(*words, "--json")
    if words[0] in ("why", "status"):
        (told,) = json.loads(out)["problems"]
        assert (told["source"], told["message"]) == ("cloud", "HTTP status 503")
    else:
        assert "Problem with" not in out and err.startswith("Problem with the cloud")
    troubles.end_trouble(CLOUD)
    assert "Problem with" not in "".join(herd(*words)[1:])


def raising(request: Request) -> None:
    raise httpx2.ConnectError("[Errno -2] Name or service not known")


@pytest.mark.parametrize("status", [503, 401, 403, 0])
def test_an_engine_records_cloud_problems_and_their_end(status: int) -> None:
    async def plot(play: EngineHarness) -> tuple[list[TroubleRecord], list[TroubleRecord]]:
        play.submit(SimJob())
        await play.advance(60.0)
        assert play.store.troubles.read() == []
        if status:
            play.sim.weather("http-error", http=status)
        else:
            play.before = raising
        await play.advance(120.0)
        bad = play.store.troubles.read()
        play.before = lambda request: None
        play.sim.calm()
        await play.advance(120.0)
        return bad, play.store.troubles.read()

    (bad,), good = perform(plot)
    assert (bad.source, good) == ("cloud", [])
    assert bad.times >= 2 and bad.at > bad.since
    assert bad.sentence


def test_problems_are_kept_apart_and_survive_damaged_files(tmp_path: Path) -> None:
    one, other = TroubleStore(tmp_path), TroubleStore(tmp_path)
    one.record_trouble(STORE, "the disk is full", now=1.0)
    other.record_trouble(ENGINE, "it died 3 times", now=2.0)
    other.record_trouble(STORE, "the disk is full", now=3.0)
    assert [(it.source, it.since, it.at, it.times) for it in one.read()] == [
        (STORE, 1.0, 3.0, 2), (ENGINE, 2.0, 2.0, 1),
    ]  # fmt: skip
    one.end_trouble(STORE)
    (tmp_path / "trouble-engine.json").write_text("{")
    assert other.read() == []
    long = "…\x1b😀\ud800" * 1000
    other.record_trouble(STORE, long, hint=long, now=4.0)
    assert other.read()[0].sentence.startswith("…\x1b😀")


def test_a_known_source_needs_no_disk_space(tmp_path: Path) -> None:
    troubles = TroubleStore(tmp_path)
    troubles.end_trouble(STORE)
    file = tmp_path / "trouble-store.json"
    blocks, size = file.stat().st_blocks, file.stat().st_size
    assert size == SIZE and blocks * 512 >= SIZE
    troubles.record_trouble(STORE, "the disk is full", hint="free some space", now=1.0)
    assert (file.stat().st_blocks, file.stat().st_size) == (blocks, size)


def test_a_line_for_people() -> None:
    once: dict[str, Any] = {"source": CLOUD, "sentence": "no answer", "since": 40.0, "at": 40.0}
    assert (
        trouble_line(TroubleRecord(**once), 100.0)
        == "Problem with the cloud, for 1 m 00 s: no answer"
    )
