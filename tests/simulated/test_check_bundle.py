"""`herd check --report`: what is in it, what is not, and that it works where nothing else does."""

import json
import re
import resource
import tarfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.simulated.conftest import Herd, use_home
from tpuherd.checks.machine_facts import Machine
from tpuherd.checks.report import PRIVATE_FIELDS, write_report
from tpuherd.clock import WallClock
from tpuherd.errors import NotAllowed
from tpuherd.history.event_kinds import EVENT_KINDS
from tpuherd.jobfile.fields import FIELDS
from tpuherd.model.slots_and_plan import Goal, HistoryEvent
from tpuherd.model.stored_job import StoredJob
from tpuherd.settings.project_access import ProjectScope, resolve_scope
from tpuherd.store.database import Database
from tpuherd.store.log_store import LogHost, LogInfo, LogStore
from tpuherd_host.agent.log_records import Record

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


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / USER
    folder.mkdir()
    monkeypatch.setenv("USER", USER)
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setenv("MY_API_KEY", CANARIES["variable"])
    monkeypatch.chdir(folder)
    return use_home(folder, monkeypatch)


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


#: How a secret may stand in any text.
FORMS = ("--token {}", "git clone https://ann:{}@git.example/x.git", "https://{}@github.com/a/b",
         "export WANDB_API_KEY={}", "password: {}", '{{"secret": "{}"}}', "curl -u bob:{} x.org",
         "Authorization: Bearer {}", "postgresql://lab:{}@db.example/herd")  # fmt: skip


def hide_in_each_text(value: Any, words: Iterator[str]) -> Any:
    """The value with another secret in each of its texts, and in the names of its parts."""
    if isinstance(value, dict):
        return {f"{name} {next(words)}": hide_in_each_text(one, words)
                for name, one in value.items()}  # fmt: skip
    if isinstance(value, list):
        return [hide_in_each_text(one, words) for one in value]
    return f"{value} {next(words)}"


def test_no_secret_of_any_field_fact_or_log_is_in_it(
    herd: Herd, world: ProjectScope, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fields and kinds of events come from their tables: new ones are covered by themselves."""
    canaries = [f"c4n4ry{number:04}q" for number in range(2000)]
    left = iter(canaries)
    words = (FORMS[number % len(FORMS)].format(next(left)) for number in count())
    write_logs(world, home)
    store = Database(world.store_folder, NOW)
    for name, field in FIELDS.items():
        value: Any = hide_in_each_text(yaml.safe_load(field.example), words)
        if name in PRIVATE_FIELDS:
            value = {f"X{number}": next(left) for number in range(3)}
        store.put_job(StoredJob(
            job=f"job-{name.replace('_', '-')}-x", goal=Goal.RUN, made_at=NOW, changed_at=NOW,
            document={"name": "gpt", "accelerator": ["v4-8"], name: value},
            who="grace@hopperdesk", user="barbara@liskovbox",
        ))  # fmt: skip
    for kind, about in EVENT_KINDS.items():
        facts = {f"{name}_x": next(words) for name in (*about.facts, "")} | {"why": next(words)}
        store.append_events([HistoryEvent(at=NOW, kind=kind, job="gpt", facts=facts)])
    store.put_slot_messages({f"gpt-{number}": next(words) for number in range(9)})
    for variable in ("DB_PASSWORD", "SOME_SECRET", "X_CREDENTIALS", "MY_AUTH", "GITLAB_TOKEN"):
        monkeypatch.setenv(variable, value := next(left))
        store.append_events([HistoryEvent(at=NOW, kind="engine.problem", facts={"why": value})])
    store.close()
    for log in ("engine.log", "engine.out"):
        with (world.store_folder / log).open("a") as stream:
            stream.writelines(f"{next(words)} at {home}/data\n" for _ in FORMS)
            stream.write("of grace@hopperdesk and barbara\n")
    herd("check", "--report", "r.tgz")
    files = read_report(home / "r.tgz")
    whole = "".join(f"{name}\n{text}\n" for name, text in files.items())
    assert re.findall(r".{0,80}c4n4ry\d+.{0,20}", whole) == []
    people = "grace hopperdesk barbara liskovbox".split()
    assert [one for one in (*people, str(home)) if one in whole] == []
    assert len(json.loads(files["jobs.json"])) == len(FIELDS) + 1, "no job is left out"
    assert files["events.jsonl"].count("\n") > len(EVENT_KINDS)
    assert "Left out: secrets, your code, values of variables" in files["README.txt"]
    assert "jobs without values of env, labels, metadata and notify" in files["README.txt"]


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


def test_a_file_that_does_not_fit_is_not_left_behind(home: Path) -> None:
    machine = Machine(environ={"HOME": str(home)}, world=None, clock=WallClock())
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with pytest.raises(NotAllowed, match="File too large"):
            write_report(home / "r.tgz", [], machine)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(home.iterdir()) == []
