"""`herd check --report`: what is in it, what is not, and that it works where nothing else does."""

import json
import resource
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tpuherd.checks.report import write_new_file
from tpuherd.cli.main import run
from tpuherd.clock import WallClock
from tpuherd.errors import NotAllowed
from tpuherd.model.slots_and_plan import Goal, HistoryEvent
from tpuherd.model.stored_job import StoredJob
from tpuherd.settings.project_access import ProjectScope, resolve_scope
from tpuherd.store.database import Database
from tpuherd.store.log_store import LogHost, LogInfo, LogStore
from tpuherd_host.agent.log_records import Record

Herd = Callable[..., tuple[int, str, str]]
NOW = WallClock().now()
#: One in each place where a user's secret may be.
CANARIES = {
    name: f"canary{number}x7f3e9"
    for number, name in enumerate(
        "secret receiver env variable run event engine daemon output url context".split()
    )
}
USER = "adalovelace"
MAIL = f"{USER}@example.org"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / USER
    folder.mkdir()
    return folder


@pytest.fixture
def herd(home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Herd:
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR", "GOOGLE_CLOUD_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USER", USER)
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setenv("MY_API_KEY", CANARIES["variable"])
    monkeypatch.chdir(home)

    def herd(*words: str) -> tuple[int, str, str]:
        status = run(words)
        said = capfd.readouterr()
        return status, said.out, said.err

    return herd


@pytest.fixture
def world(home: Path, monkeypatch: pytest.MonkeyPatch) -> ProjectScope:
    """A world that is gone, and its store with a job."""
    folder = home / "world"
    folder.mkdir()
    monkeypatch.setenv("HERD_WORLD", str(folder))
    scope = resolve_scope({"HOME": str(home)}, world=folder)
    store = Database(scope.store_folder, NOW)
    document = {
        "name": "gpt", "accelerator": ["v4-8"], "zones": ["us-central2-b"],
        "run": f"python3 train.py --api-key {CANARIES['run']} {CANARIES['env']} --lr 0.1",
        "env": {"WHERE": CANARIES["env"]}, "checkpoint": "gs://ada-bucket/gpt",
    }  # fmt: skip
    job = StoredJob(
        job="gpt", goal=Goal.RUN, document=document, made_at=NOW, changed_at=NOW,
        who=f"{USER}@desk",
    )  # fmt: skip
    why = f"{MAIL} said https://x.example/hook?key={CANARIES['url']}: {CANARIES['secret']}"
    store.put_job(job, [HistoryEvent(at=NOW, kind="job.submitted", job="gpt", facts={"why": why})])
    token = f"HF_TOKEN={CANARIES['event']}"
    store.append_events([HistoryEvent(at=NOW, kind="engine.problem", facts={"why": token})])
    store.secrets.put("gpt", "KEY", CANARIES["secret"])
    store.secrets.put(".notify", "url", f"https://example.org/{CANARIES['receiver']}")
    ended = {"attempt": "gpt-0-a1-x", "verdict": "failure"}
    store.append_events(
        [
            HistoryEvent(at=NOW, kind="attempt.ended", job="gpt", slot="gpt-0", facts=ended),
            HistoryEvent(at=NOW, kind="engine.crashed", facts={"count": 1, "why": "KeyError"}),
        ]
    )
    store.put_slot_messages({"gpt-0": f"waits for capacity, as {CANARIES['secret']} knows"})
    store.close()
    return scope


def write_logs(scope: ProjectScope, home: Path) -> None:
    line = {"name": "engine.problem", "why": f"Bearer {CANARIES['engine']} {home}/x"}
    (scope.store_folder / "engine.log").write_text(json.dumps(line) + "\n")
    run_folder = home / ".local/state/tpuherd/run"
    run_folder.mkdir(parents=True)
    (run_folder / "keeper.txt").write_text(f"password: {CANARIES['daemon']}\nTraceback\n")
    config = home / ".config/tpuherd"
    config.mkdir(parents=True)
    contexts = {"contexts": {"lab": {"project": "ada-lab", "token": CANARIES["context"]}}}
    (config / "contexts.json").write_text(json.dumps(contexts))
    host = LogHost(zone="us-central2-b", node="gpt-0-g1-7kq", worker=0, incarnation="i")
    info = LogInfo(id="gpt-0-a1-x", kind="attempt", title="", target="gpt", started=NOW,
                   places=(host,))  # fmt: skip
    shelf = LogStore(scope.logs_folder)
    shelf.write_info(info)
    writer = shelf.open_writer(info.id, host)
    writer.put(0, Record(NOW, 1, f"step 7\nSECRET_TOKEN={CANARIES['output']}\n".encode()))
    writer.close()


def read_report(file: Path) -> dict[str, str]:
    """The texts of a report by their names below its folder."""
    found = {}
    with tarfile.open(file) as archive:
        for entry in archive:
            stream = archive.extractfile(entry)
            assert stream is not None and (entry.uid, entry.uname) == (0, "")
            found[entry.name.partition("/")[2]] = stream.read().decode()
    return found


def test_no_secret_is_in_it_and_what_helps_is(herd: Herd, world: ProjectScope, home: Path) -> None:
    write_logs(world, home)
    _, said, listed = herd("check", "--report", "r.tgz")
    files = read_report(home / "r.tgz")
    whole = "".join(f"{name}\n{text}\n" for name, text in files.items())
    assert [word for word in CANARIES.values() if word in whole or word in said + listed] == []
    assert [word for word in (USER, MAIL, str(home), "ada-bucket") if word in whole] == []
    (job,) = json.loads(files["jobs.json"])
    assert "--lr 0.1" in job["document"]["run"] and job["document"]["env"] == {"WHERE": "<hidden>"}
    assert "waits for capacity" in job["slots"]["gpt-0"]
    assert '"kind": "job.submitted"' in files["events.jsonl"]
    assert json.loads(files["crashes.json"])["crashes"][0]["why"] == "KeyError"
    assert "engine.problem" in files["logs/engine.log"]
    assert "Traceback" in files["logs/daemon.txt"]
    (output,) = [text for name, text in files.items() if name.startswith("output/")]
    assert output.startswith("step 7\n")
    assert {"versions", "store", "login"} <= {
        one["check"] for one in json.loads(files["checks.json"])
    }
    assert json.loads(files["versions.json"])["packages"]["click"]
    for name in files:
        assert name == "README.txt" or name.partition("/")[0] in listed
    assert "Read it before you send it: tar -xzOf " in listed
    assert (home / "r.tgz").stat().st_mode & 0o777 == 0o600


def test_json_and_status_are_those_of_herd_check(
    herd: Herd, world: ProjectScope, home: Path
) -> None:
    plain, with_report = herd("check", "--json"), herd("check", "--json", "--report", "r.tgz")
    assert plain[0] == with_report[0] == 1, "the world is gone"
    assert [one["check"] for one in json.loads(with_report[1])] == [
        one["check"] for one in json.loads(plain[1])
    ]


def test_a_damaged_store_is_a_line_of_it(herd: Herd, world: ProjectScope, home: Path) -> None:
    (world.store_folder / "store.db").write_bytes(b"\xa5" * 20_000)
    (world.store_folder / "engine.log").mkdir()
    (home / ".config/tpuherd").mkdir(parents=True)
    (home / ".config/tpuherd/contexts.json").write_bytes(b"\xff not JSON")
    status, _, listed = herd("check", "--report", "r.tgz")
    assert status == 1 and "Traceback" not in listed
    assert "Not in it: project: " in read_report(home / "r.tgz")["README.txt"]


def test_it_works_without_a_project_and_without_any_state(herd: Herd, home: Path) -> None:
    status, _, listed = herd("check", "--report", "r.tgz")
    assert status == 1
    assert {"README.txt", "versions.json", "checks.json"} <= set(read_report(home / "r.tgz"))
    assert "Not in it: project: no project is configured" in listed
    assert list(home.rglob("tpuherd")) == [], "it wrote something else"


@pytest.mark.parametrize(
    ("file", "sentence"),
    [
        ("there", "exists already; name another file"),
        ("no/folder/r.tgz", "there is no folder"),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(
    herd: Herd, world: ProjectScope, home: Path, file: str, sentence: str
) -> None:
    (home / "there").write_text("mine")
    before = sorted(home.glob("*"))
    found = herd("check", "--report", file)
    assert (found[0], found[1]) == (2, "")
    assert sentence in found[2]
    assert sorted(home.glob("*")) == before
    assert (home / "there").read_text() == "mine"


def test_a_file_that_does_not_fit_is_not_left_behind(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with pytest.raises(NotAllowed, match="File too large"):
            write_new_file(tmp_path / "r.tgz", b"x" * 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []
