"""`herd explain` as typed: files, folders, standard input, and jobs of a store."""

import gzip
import json
import os
import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from json_schemas import SCHEMAS

from tests.simulated.conftest import Herd, use_home
from tests.unit.event_stories import START, StoryLog
from tpuherd.commands.log_windows import HEAD_BYTES, TAIL_BYTES
from tpuherd.model.slot_history import Verdict
from tpuherd.settings import project_access
from tpuherd.settings.project_access import ProjectScope
from tpuherd.store.database import Database
from tpuherd.store.log_store import SETUP, LogHost, LogInfo, LogStore
from tpuherd_host.agent.log_records import Record

FULL = "OSError: [Errno 28] No space left on device"
GLOO = "JaxRuntimeError: UNKNOWN: Gloo AllGather failed: Connection reset by peer"
FATAL = "Terminating process because the JAX distributed service detected fatal errors"


@pytest.fixture
def scope(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProjectScope:
    use_home(tmp_path / "home", monkeypatch)
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "mine")
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.chdir(tmp_path)
    return project_access.resolve_scope(dict(os.environ))


@pytest.fixture
def explain(scope: ProjectScope, herd: Herd) -> Herd:
    return partial(herd, "explain")


def rows(explain: Herd, *words: str) -> list[dict[str, Any]]:
    status, out, err = explain(*words, "--json")
    assert status == 0, err
    found: list[dict[str, Any]] = json.loads(out)
    jsonschema.validate(found, SCHEMAS["herd explain NAME --json"])
    return found


# ---- files ---------------------------------------------------------------------------------------


def test_a_file_is_explained(explain: Herd) -> None:
    Path("train.log").write_text(f"step 1\n{FULL}\n{GLOO}\nTask 1 heartbeat timeout\n")
    status, out, err = explain("./train.log")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith("train.log: a disk of the host is full")
    assert lines[1:3] == ["  line 2", f"  | {FULL}"]
    assert lines[3].startswith("  fix: `herd exec NODE -- df -h`")
    assert lines[4].startswith("  rule: disk-full (skypilot#2778")
    assert lines[5:7] == ["What follows from a lost host:", lines[6]]
    assert lines[6].startswith("  line 4: another host ended, or was silent")
    assert [(one["id"], one["role"], one["line"]) for one in rows(explain, "train.log")] == [
        ("disk-full", "cause", 2),
        ("peer-heartbeat", "consequence", 4),
    ]


def test_a_healthy_log_is_no_failure(explain: Herd) -> None:
    Path("train.log").write_text("step 1\nstep 2, 0 errors\n")
    said = "Nothing in train.log points to a known failure.\n"
    assert explain("train.log") == (0, said, "")
    assert rows(explain, "train.log") == []
    Path("train.log").write_text("step 1\nConfigError: no batch\n")
    out = explain("train.log")[1]
    assert out.splitlines()[1:] == [
        "The last line that sounds like an error:",
        "  | ConfigError: no batch",
    ]


def test_only_a_lost_peer_is_no_cause(explain: Herd) -> None:
    Path("train.log").write_text(f"{GLOO}\n")
    out = explain("train.log")[1]
    assert out.startswith("train.log: no log tells the cause, only that a host was lost: another")


def test_each_file_of_a_folder_is_a_host(explain: Herd) -> None:
    Path("logs/late").mkdir(parents=True)
    Path("logs/w0.log").write_text(f"step 1\n{GLOO}\n{FATAL}\n")
    with gzip.open("logs/late/w1.gz", "wt") as packed:
        packed.write(f"{FULL}\n")
    Path("logs/core").write_bytes(random.Random(1).randbytes(4000))
    status, out, err = explain("logs")
    assert (status, err) == (0, "herd explain: left out: logs/core is no text\n")
    assert out.splitlines()[1] == "  late/w1.gz, line 1"
    Path("logs/other").write_bytes(bytes(100))
    assert explain("logs")[2].endswith("is no text, and 1 more like it\n")
    Path("logs/w8.log").touch()
    assert explain("logs")[2].endswith("herd explain: logs/w8.log is empty\n")
    Path("logs/w9.log").touch()
    assert explain("logs")[2].endswith("herd explain: logs/w8.log is empty, and 1 more\n")
    found = rows(explain, "./logs")
    assert (found[0]["host"], found[1]["hosts"]) == ("late/w1.gz", ["w0.log"])


@pytest.mark.parametrize(
    ("name", "status", "sentence"),
    [
        ("nothing", 4, "nothing is neither a file nor a job with logs: there is no log of nothing"),
        ("./nothing", 4, "there is no file nothing"),
        ("rubbish", 2, "rubbish is no text"),
        ("zeros", 2, "zeros is no text"),
        ("empty-folder", 4, "there is no log in empty-folder"),
        ("pipe", 2, "pipe is no file; give what it has as standard input: herd explain - < pipe"),
        ("cut.gz", 1, "cut.gz is damaged: it can't be unpacked"),
    ],
)
def test_what_can_not_be_read_is_one_sentence(
    explain: Herd, name: str, status: int, sentence: str
) -> None:
    Path("rubbish").write_bytes(random.Random(1).randbytes(4000))
    Path("zeros").write_bytes(b"step 1\n" + bytes(3))
    Path("empty-folder").mkdir()
    os.mkfifo("pipe")
    Path("cut.gz").write_bytes(gzip.compress(b"step 1\n" * 100)[:20])
    done, out, err = explain(name)
    assert (done, out) == (status, "")
    assert err.startswith(f"herd explain: {sentence}") and err.count("\n") == 1


def test_an_empty_or_half_damaged_log_is_said_to_be_so(explain: Herd) -> None:
    Path("empty.log").touch()
    assert explain("empty.log") == (
        0,
        "Nothing in empty.log points to a known failure.\n",
        "herd explain: empty.log is empty\n",
    )
    whole = gzip.compress(random.Random(1).randbytes(300_000).hex().encode() + b"\n")
    Path("cut.gz").write_bytes(whole[:-4000])
    status, _, err = explain("cut.gz")
    assert status == 0 and err.startswith("herd explain: cut.gz is damaged: only its first ")


def test_the_middle_of_a_large_log_is_left_out_and_said(explain: Herd) -> None:
    line = b"INFO the weather is fine, and nothing else is to be said\n"
    many = (HEAD_BYTES + TAIL_BYTES + (3 << 20)) // len(line)
    with Path("large.log").open("wb") as file:
        file.write(line * many + FULL.encode() + b"\n")
    status, out, err = explain("large.log")
    assert (status, out.splitlines()[1]) == (0, f"  line {many + 1}")
    assert err == "herd explain: large.log is large: 3 MiB in the middle of it were not searched\n"


def test_standard_input_is_explained(explain: Herd, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.write(writer, f"{FULL}\n".encode())
    os.close(writer)
    kept = os.dup(0)
    os.dup2(reader, 0)
    try:
        status, out, err = explain("-")
    finally:
        os.dup2(kept, 0)
        os.close(kept)
        os.close(reader)
    assert (status, err) == (0, "")
    assert out.startswith("standard input: a disk of the host is full")


def test_rules_of_a_user_come_beside_the_known_ones(explain: Herd) -> None:
    rule = {"id": "no-shards", "pattern": "no shards in (?P<at>.+)", "cause": "{at} is empty",
            "fix": "fill it"}  # fmt: skip
    Path("rules.json").write_text(json.dumps([rule]))
    Path("train.log").write_text("E: no shards in gs://x\n")
    status, out, _ = explain("train.log", "--rules", "rules.json")
    assert (status, out.splitlines()[0]) == (0, "train.log: gs://x is empty")
    assert out.splitlines()[-1] == "  rule: no-shards"
    assert rows(explain, "train.log") == []
    Path("rules.json").write_text(json.dumps([{**rule, "pattern": "("}]))
    status, out, err = explain("train.log", "--rules", "rules.json")
    assert (status, out) == (2, "")
    assert err.startswith("herd explain: rules.json: rule 1 (no-shards): pattern is no regular")
    for name, said in (("none.json", "can't be read: No such file"), ("train.gz", "is no text")):
        Path("train.gz").write_bytes(b"\xff\xfe")
        status, _, err = explain("train.log", "--rules", name)
        assert status == 2 and said in err and err.count("\n") == 1


# ---- jobs ----------------------------------------------------------------------------------------


class StoredRun:
    """A store with a job's events, and the logs of its hosts."""

    def __init__(self, scope: ProjectScope) -> None:
        self.scope = scope
        self.story = StoryLog()
        self.story.get(1, 1, 1)

    def write_log(self, id: str, logs: Mapping[int, str], *, kind: str = "attempt") -> None:
        shelf, at = LogStore(self.scope.logs_folder), self.story.now
        places = tuple(
            LogHost(zone="z", node=self.story.bid, worker=worker, incarnation="i")
            for worker in range(4)
        )
        number = self.story.number if kind == "attempt" else 0
        shelf.write_info(
            LogInfo(id=id, kind=kind, title="gpt-0", target="gpt-0", started=at, places=places,
                    number=number)
        )  # fmt: skip
        for worker, text in logs.items():
            writer = shelf.open_writer(id, places[worker])
            for line in text.splitlines(keepends=True):
                at += 0.001
                writer.put(writer.offset, Record(at, 1, line.encode()))
            writer.close()

    def attempt(self, verdict: Verdict | None, logs: Mapping[int, str], **facts: Any) -> None:
        self.story.launch(5)
        self.write_log(self.story.attempt, logs)
        if verdict is not None:
            why = facts.pop("why", "it ended")
            self.story.end(verdict, **facts)
            self.story.events[-1].facts["why"] = why  # type: ignore[index]

    def save(self) -> None:
        store = Database(self.scope.store_folder, START)
        store.append_events(self.story.events)
        store.close()


@pytest.fixture
def stored(scope: ProjectScope) -> Iterator[StoredRun]:
    yield StoredRun(scope)


def test_the_cause_in_the_logs_of_all_hosts_of_a_job(explain: Herd, stored: StoredRun) -> None:
    lost = f"step 1\n{GLOO}\n{FATAL}\n"
    stored.attempt(Verdict.FAILURE, {0: f"{FULL}\n"}, host="x", exit=1)
    stored.attempt(Verdict.FAILURE, {0: lost, 1: lost, 2: f"step 1\n{FULL}\n{lost}", 3: lost})
    stored.save()
    Path("gpt").mkdir()
    for name in ("gpt", "gpt-0"):
        status, out, err = explain(name)
        assert (status, err) == (0, "")
        assert out.startswith("attempt 2 of gpt-0: a disk of the host is full")
        assert "  gpt-0/w2, line 2\n" in out and "`herd exec gpt-0 -- df -h`" in out
        assert "  gpt-0/w0, line 2; also gpt-0/w[1,3]: another host ended" in out
    assert explain("gpt", "--attempt", "1")[1].startswith("attempt 1 of gpt-0: a disk")
    assert [one["id"] for one in rows(explain, "gpt-0/w1")] == ["peer-socket"]
    found = rows(explain, "gpt")
    assert {one["attempt"] for one in found} == {"gpt-0-a2-7kq"}
    assert explain("./gpt")[2] == "herd explain: there is no log in gpt\n"
    status, _, err = explain("gpt", "--attempt", "3")
    assert status == 4 and "there is no log 3 of gpt, only 1-2" in err
    assert explain("./gpt", "--attempt", "1")[0] == 2


def test_what_only_the_engine_knows_counts(explain: Herd, stored: StoredRun) -> None:
    stored.attempt(
        Verdict.PREEMPTED, {0: "step 1\nSIGTERM caught at noon\n"}, why="x was preempted"
    )
    stored.attempt(
        Verdict.FAILURE, {0: "step 1\n", 1: f"{GLOO}\n"}, host="gpt-0-g1-7kq/w0", exit=None,
        finding="killed", why="w0 was killed by signal 9",
    )  # fmt: skip
    stored.attempt(Verdict.FAILURE, {1: f"{GLOO}\n"}, host="gpt-0-g1-7kq/w0", exit=137)
    stored.save()
    found = rows(explain, "gpt", "--attempt", "1")
    assert [(one["id"], one["role"]) for one in found] == [
        ("preempted", "cause"),
        ("sigterm", "also"),
    ]
    assert (found[0]["host"], found[0]["text"]) == ("gpt-0-g1-7kq", "x was preempted")
    found = rows(explain, "gpt", "--attempt", "2")
    assert [(one["id"], one["role"]) for one in found] == [
        ("killed", "cause"),
        ("peer-socket", "consequence"),
    ]
    first = rows(explain, "gpt")[0]
    assert (first["id"], first["host"]) == ("killed", "gpt-0/w0")


def test_an_attempt_that_did_not_fail_is_not_explained(explain: Herd, stored: StoredRun) -> None:
    stored.attempt(Verdict.SUCCESS, {0: f"{FULL}\n"})
    stored.attempt(Verdict.STOPPED, {0: f"{FULL}\n"}, why="you said so")
    stored.attempt(Verdict.FAILURE, {0: "step 1\n"}, why="it exited with 3")
    stored.attempt(None, {0: "step 1\n"})
    stored.save()
    said = [explain("gpt", "--attempt", str(number))[1] for number in range(1, 5)]
    assert said == [
        "Attempt 1 of gpt-0 succeeded.\n",
        "Attempt 2 of gpt-0 was stopped: you said so.\n",
        "Attempt 3 of gpt-0 ended: it exited with 3. No rule knows this failure.\n",
        "Attempt 4 of gpt-0 runs, and nothing in its logs points to a known failure.\n",
    ]
    assert rows(explain, "gpt") == []


def test_a_setup_after_the_last_attempt_is_explained(explain: Herd, stored: StoredRun) -> None:
    stored.attempt(Verdict.FAILURE, {0: "step 1\n"})
    stored.story.now += 10
    stored.write_log("gpt-0-g1-7kq-setup-abc", {0: "E: Could not get lock /var/lib/dpkg/lock\n"},
                     kind=SETUP)  # fmt: skip
    stored.save()
    assert explain("gpt")[1].startswith("the setup of gpt-0: a new host installs updates")


def test_of_many_slots_the_failed_ones_are_explained(explain: Herd, stored: StoredRun) -> None:
    stored.attempt(Verdict.FAILURE, {0: "step 1\n"})
    shelf = LogStore(stored.scope.logs_folder)
    (about,) = shelf.list_logs()
    place = replace(about.places[0], node="gpt-1-g1-7kq")
    other = replace(about, id="gpt-1-a1-7kq", target="gpt-1", places=(place,))
    shelf.write_info(other)
    said = "Nothing in the logs of attempt 1 of {} points to a known failure.\n"
    assert explain("gpt")[1] == said.format("gpt-0") + said.format("gpt-1")
    writer = shelf.open_writer(other.id, place)
    writer.put(0, Record(stored.story.now, 2, f"{FULL}\n".encode()))
    writer.close()
    assert explain("gpt")[1].startswith("attempt 1 of gpt-1: a disk of the host is full")
    assert "gpt-0" not in explain("gpt")[1]


def test_without_a_store_the_logs_are_enough(explain: Herd, stored: StoredRun) -> None:
    stored.attempt(Verdict.FAILURE, {0: f"{FULL}\n"})
    assert explain("gpt")[1].startswith("attempt 1 of gpt-0: a disk of the host is full")
    stored.attempt(Verdict.FAILURE, {0: "step 1\n"})
    said = "Nothing in the logs of attempt 2 of gpt-0 points to a known failure.\n"
    assert explain("gpt")[1] == said


def test_status_and_why_show_cause_and_fix(herd: Herd, stored: StoredRun) -> None:
    stored.attempt(Verdict.FAILURE, {}, host="gpt-0-g1-7kq/w0", exit=1, lines=[FULL],
                   finding="disk-full", bid=stored.story.bid)  # fmt: skip
    stored.save()
    store = Database(stored.scope.store_folder, START)
    store.put_slot_messages({"gpt-0": "will be tried again soon"})
    store.close()
    for words in (("status", "gpt-0"), ("why", "gpt-0")):
        status, out, _ = herd(*words)
        assert status == 0
        assert "  cause: a disk of the host is full" in out and "(disk-full)\n" in out
        assert "  fix: `herd exec gpt-0 -- df -h`" in out
        told = json.loads(herd(*words, "--json")[1])
        jsonschema.validate(told, SCHEMAS[f"herd {words[0]} NAME --json"])
        assert '"id": "disk-full"' in json.dumps(told)


def test_why_explains_a_setup_that_failed(herd: Herd, stored: StoredRun) -> None:
    line = "ERROR: Could not find a version that satisfies the requirement jax==99"
    hosts = [{"host": "gpt-0/w0", "exit": 1, "tail": ["Collecting jax", line]}]
    facts: dict[str, Any] = {"bid": stored.story.bid, "message": "pip failed", "hosts": hosts}
    stored.story.tell("slot.setup_failed", **facts, finding="pip-no-match")
    stored.save()
    assert "  cause: pip finds no jax==99: its name is wrong" in herd("why", "gpt-0")[1]
    stored.story.events.clear()
    stored.story.tell("slot.prepared", bid=stored.story.bid, code_digest="c", hosts=["x"])
    stored.save()
    status, out, _ = herd("why", "gpt-0")
    assert status == 0 and "cause:" not in out


def test_a_long_log_of_a_host_is_read_at_its_ends(
    explain: Herd, stored: StoredRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tpuherd.commands.explain_job.HEAD_BYTES", 2000)
    monkeypatch.setattr("tpuherd.commands.explain_job.TAIL_BYTES", 4000)
    slow = "No GPU/TPU found, falling back to CPU\n"
    stored.attempt(Verdict.FAILURE, {0: slow + "well\n" * 2000 + FULL + "\n"})
    _, out, err = explain("gpt")
    assert err == (
        "herd explain: the log of gpt-0/w0 is large: 0 MiB in the middle of it were not searched\n"
    )
    assert out.startswith("attempt 1 of gpt-0: a disk of the host is full")
    assert [one["id"] for one in rows(explain, "gpt")] == ["disk-full"]
