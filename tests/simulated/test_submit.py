"""Jobs are submitted, changed and removed, in a store without an engine."""

import asyncio
import json
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

from tests.unit.event_stories import StoryLog
from tpuherd.accounting.goodput import GoodputState
from tpuherd.clock import WallClock
from tpuherd.cloud.nodes_api import Cloud, NodeList
from tpuherd.cloud.parse import Node
from tpuherd.engine.desired_slots import build_desired_state, load_desired_state, snapshot_files
from tpuherd.errors import (
    HerdError,
    InvalidInput,
    NoLogin,
    NotAllowed,
    NotFound,
    NotReached,
    OperationFailed,
    Superseded,
)
from tpuherd.history.apply_event import apply_event
from tpuherd.jobfile import read_job
from tpuherd.jobfile.grants import Allowance, Grant
from tpuherd.jobfile.yaml_with_lines import YamlDocument, read_yaml
from tpuherd.jobs import submit
from tpuherd.jobs.job_queries import job_ending, load_scene
from tpuherd.jobs.load_history import refused_zones
from tpuherd.jobs.open_project import Session, job_event
from tpuherd.jobs.remove import gone_events, not_yet_returned
from tpuherd.model.slot_history import History
from tpuherd.model.slots_and_plan import Goal, HistoryEvent
from tpuherd.settings import project_access, project_settings
from tpuherd.store.database import Database
from tpuherd.sync.snapshot_store import open_archive
from tpuherd.views.job_rows import job_row

JOB = "name: gpt\naccelerator: v4-16\nrun: hostname -f\n"
FACTS = {"project": "demo", "url": "http://127.0.0.1:1", "ssh_port": 2222, "pid": 1}


def a_node(name: str, request: str) -> Node:
    return Node(
        name=name, zone="us-central2-b", state="READY", health="", type="v4-16",
        incarnation="1", created=0.0, workers=(), request=request,
    )  # fmt: skip


class Person:
    """Answers as was agreed before, and remembers what was asked."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.environ = environ
        self.answer = True
        self.asked: list[str] = []
        self.notes: list[str] = []

    async def show_message(self, sentence: str) -> None:
        self.notes.append(sentence)

    async def ask_confirmation(
        self, question: str, details: str = "", *, instead: str = ""
    ) -> bool:
        self.asked.append(question)
        return self.answer


class SubmitRig:
    """A session in a world of its own."""

    def __init__(self, folder: Path, *, google: bool = False) -> None:
        self.folder = folder
        self.person = Person({"HOME": str(folder), "PATH": "/usr/bin:/bin", "TOKEN": "hush"})
        world = folder / "world"
        world.mkdir()
        (world / "world.json").write_text(json.dumps(FACTS))
        place = project_access.resolve_access(self.person.environ, world=world)
        if google:
            place = replace(place, world=None, project="mine")
        self.buckets: dict[str, Any] = {}
        self.runtimes: set[str] | None = set()
        self.nodes: list[Node] | None = []
        self.trouble: HerdError | None = None
        store = Database(place.store_folder, 0.0)
        self.session = Session(
            place=place, store=store, clock=WallClock(), prompter=self.person, cloud=self.cloud
        )

    async def cloud(self) -> Cloud:
        rig = self

        class Storage(Cloud):
            async def check_access(self) -> None:
                if rig.trouble is not None:
                    raise rig.trouble

            async def get_bucket_location(self, name: str) -> str:
                found = rig.buckets[name]
                if isinstance(found, Exception):
                    raise found
                return str(found)

            async def list_nodes(self) -> NodeList:
                if rig.nodes is None:
                    raise NotReached("no network")
                return NodeList(nodes=tuple(rig.nodes), unknown=())

            async def check_runtime(self, zone: str, version: str) -> None:
                if rig.runtimes is None:
                    raise NotReached("no network")
                if version not in rig.runtimes:
                    raise NotFound("no")

        return Storage(None, "demo")  # type: ignore[arg-type]  # nothing else of it is asked

    def submit_file(self, text: str, goal: Goal = Goal.RUN) -> submit.SubmitResult | list[str]:
        """Submit a job file; return the result or its mistakes."""
        found = read_yaml(text)

        async def work() -> submit.SubmitResult | list[str]:
            made = await submit.check_submission(found, self.folder, goal, self.session)
            if made is None:
                found.mistakes.sort(key=lambda one: one.line)
                return [one.format_line("job.yaml") for one in found.mistakes]
            done = await submit.submit(made, self.session, "")
            return ["no"] if done is None else done

        return asyncio.run(work())

    def word(self, text: str, goal: Goal = Goal.RUN) -> str:
        made = self.submit_file(text, goal)
        assert isinstance(made, submit.SubmitResult), made
        return made.word

    def set(self, **fields: Any) -> submit.SubmitResult | None:
        """Change fields of the job; None resets one."""
        document = {**self.session.get_job("gpt").document, **fields}
        said = YamlDocument(value={name: it for name, it in document.items() if it is not None})
        return asyncio.run(submit.change_job("gpt", said, self.session))

    def log(self) -> list[HistoryEvent]:
        return [one for _, one in self.session.store.read_events()]

    def tell(self, kind: str, **facts: Any) -> None:
        """What an engine would write."""
        line = HistoryEvent(
            at=5.0, kind=kind, job="gpt", slot="gpt-0", facts={"why": "so", **facts}
        )
        self.session.store.append_events([line])


@pytest.fixture
def rig(tmp_path: Path) -> Any:
    found = SubmitRig(tmp_path)
    yield found
    found.session.store.close()


def test_a_job_is_submitted_once(rig: SubmitRig) -> None:
    assert rig.word(JOB) == "submitted"
    stored_job = rig.session.get_job("gpt")
    assert (stored_job.goal, stored_job.revision, stored_job.snapshot) == (Goal.RUN, 1, "")
    assert stored_job.document == {"name": "gpt", "accelerator": "v4-16", "run": "hostname -f"}
    assert rig.word(JOB) == "unchanged"
    assert rig.session.get_job("gpt") == stored_job
    assert [one.kind for one in rig.log()] == ["job.submitted"]
    assert rig.log()[0].facts["goal"] == "run"
    assert rig.person.asked == []


def test_a_change_needs_consent_and_keeps_the_run(rig: SubmitRig) -> None:
    rig.word(JOB)
    made_at = rig.session.get_job("gpt").made_at
    rig.person.answer = False
    assert rig.submit_file(JOB.replace("-f", "-i")) == ["no"]
    assert rig.session.get_job("gpt").revision == 1
    rig.person.answer = True
    assert rig.word(JOB.replace("-f", "-i")) == "changed"
    stored_job = rig.session.get_job("gpt")
    assert (stored_job.revision, stored_job.made_at) == (2, made_at)
    assert rig.person.asked[-1].startswith("gpt already exists: this needs a new attempt")
    assert rig.log()[-1].facts["difference"] == ["run: hostname -f → hostname -i"]


@pytest.mark.parametrize("end", ["slot.done", "slot.gave_up"])
def test_a_finished_job_runs_again(rig: SubmitRig, end: str) -> None:
    rig.word(JOB)
    made_at = rig.session.get_job("gpt").made_at
    rig.tell(end)
    assert rig.word(JOB) == "restarted"
    assert rig.session.get_job("gpt").made_at > made_at
    assert rig.person.asked == []
    assert [one.kind for one in rig.log()] == ["job.submitted", end, "job.submitted"]


def test_stop_and_resume(rig: SubmitRig) -> None:
    rig.word(JOB)
    assert submit.stop_job(rig.session.get_job("gpt"), rig.session)
    assert rig.session.get_job("gpt").goal is Goal.GONE
    assert not submit.stop_job(rig.session.get_job("gpt"), rig.session)
    assert submit.resume_job(rig.session.get_job("gpt"), rig.session)
    assert rig.session.get_job("gpt").goal is Goal.RUN
    assert not submit.resume_job(rig.session.get_job("gpt"), rig.session)
    assert [one.kind for one in rig.log()][1:] == ["job.stopped", "job.resumed"]
    rig.tell("slot.gave_up")
    assert submit.resume_job(rig.session.get_job("gpt"), rig.session)
    submit.stop_job(rig.session.get_job("gpt"), rig.session)
    assert rig.word(JOB) == "resumed"
    rig.tell("slot.done")
    with pytest.raises(InvalidInput, match="gpt is done"):
        submit.stop_job(rig.session.get_job("gpt"), rig.session)
        submit.resume_job(rig.session.get_job("gpt"), rig.session)


@pytest.mark.parametrize("kept", [False, True], ids=["without a node", "with its node"])
def test_a_done_job_stays_done_when_it_is_stopped(rig: SubmitRig, kept: bool) -> None:
    """`stop`, `resume`, `wait` and `ls` agree; a node that is kept is given back."""
    rig.word(JOB)
    if kept:
        offer = {"zone": "us-central2-b", "type": "v4-16", "runtime": "r", "tier": "spot"}
        about = {"generation": 1, "offer": offer, "node_digest": "d", "nodes": 1}
        rig.tell("bid.requested", bid="gpt-0-g1-abc", **about)
    rig.tell("slot.done")
    assert submit.stop_job(rig.session.get_job("gpt"), rig.session) is kept
    goal = Goal.GONE if kept else Goal.RUN
    assert rig.session.get_job("gpt").goal is goal
    with pytest.raises(InvalidInput, match="gpt is done"):
        submit.resume_job(rig.session.get_job("gpt"), rig.session)
    view = load_scene(rig.session.store, 9.0)
    assert job_ending(view, "gpt") == (0, "gpt-0 is done")
    assert job_row(view, "gpt")["phase"] == "done"


@pytest.mark.parametrize("refusal", ["permission", "quota", "reservation"])
def test_a_resubmitted_job_asks_refusing_zones_again_at_once(rig: SubmitRig, refusal: str) -> None:
    rig.word(JOB)
    assert not submit.resume_job(rig.session.get_job("gpt"), rig.session)
    again: tuple[Any, ...] = (
        lambda: submit.resume_job(rig.session.get_job("gpt"), rig.session),
        lambda: rig.word(JOB) == "unchanged",
    )
    for number, say in enumerate(again):
        bid = f"gpt-0-g{number + 1}-abc"
        offer = {"zone": "us-central2-b", "type": "v4-16", "runtime": "r", "tier": "spot"}
        about = {"generation": number + 1, "offer": offer, "node_digest": "d", "nodes": 1}
        rig.tell("bid.requested", bid=bid, **about)
        rig.tell("bid.refused", bid=bid, refusal=refusal, message="no")
        assert refused_zones(rig.session.store) == {"us-central2-b"}
        assert say()
        assert refused_zones(rig.session.store) == set()
        assert rig.log()[-1].facts["why"].endswith(submit.ASKED_AGAIN)


def test_without_a_login_or_a_permission_nothing_is_stored(rig: SubmitRig) -> None:
    rig.trouble = NoLogin("there are no credentials", hint="log in")
    with pytest.raises(NoLogin):
        rig.submit_file(JOB)
    rig.trouble = NotAllowed("Cloud TPU API has not been used in project 1 before")
    with pytest.raises(NotAllowed):
        rig.submit_file(JOB)
    assert (rig.session.store.stored_jobs(), rig.log()) == ({}, [])


@pytest.mark.parametrize("trouble", [NotReached("no network"), OperationFailed("HTTP status 503")])
def test_a_cloud_that_does_not_answer_is_reported_and_the_job_is_stored(
    rig: SubmitRig, trouble: HerdError
) -> None:
    rig.trouble = trouble
    assert rig.word(JOB) == "submitted"
    assert rig.person.notes[0].startswith(f"{trouble.sentence}; nodes are requested")
    (noted,) = rig.session.store.troubles.read()
    assert noted.sentence == trouble.sentence
    rig.trouble = None
    assert rig.word(JOB) == "unchanged"
    assert rig.session.store.troubles.read() == []


def test_a_bucket_with_a_known_location_needs_no_answer(rig: SubmitRig) -> None:
    job = f"{JOB}checkpoint: gs://mine/x\n"
    rig.buckets = {"mine": NotReached("no network")}
    with pytest.raises(NotReached):
        rig.submit_file(job)
    rig.buckets = {"mine": "US-CENTRAL2"}
    assert rig.word(job) == "submitted"
    rig.buckets = {"mine": NotReached("no network")}
    assert rig.word(job) == "unchanged"
    rig.buckets = {"mine": NoLogin("no login")}
    with pytest.raises(NoLogin):
        rig.submit_file(job)


def test_a_node_without_a_command_gets_one(rig: SubmitRig) -> None:
    assert rig.word("name: gpt\naccelerator: v4-16\nrun: x", Goal.IDLE) == "submitted"
    assert "run" not in rig.session.get_job("gpt").document
    submit.stop_job(rig.session.get_job("gpt"), rig.session)
    submit.resume_job(rig.session.get_job("gpt"), rig.session)
    assert rig.session.get_job("gpt").goal is Goal.IDLE
    assert rig.word(JOB) == "changed"
    assert rig.session.get_job("gpt").goal is Goal.RUN
    assert rig.log()[-1].facts["difference"] == [
        "run: none → hostname -f",
        'node: default → {"done": "keep", "failed": "keep"}',
        "goal: idle → run",
    ]


def test_a_node_of_up_stays_after_each_command_unless_its_file_says_otherwise(
    rig: SubmitRig,
) -> None:
    rig.word("name: gpt\naccelerator: v4-16", Goal.IDLE)
    for text, kept in (
        (JOB, True),
        (JOB.replace("hostname -f", "date"), True),
        (f"{JOB}\nnode: {{done: delete}}", False),
        (JOB, False),
    ):
        rig.word(text)
        node = rig.session.get_job("gpt").document.get("node", {})
        assert (node.get("done") == "keep") is kept, text


def test_a_name_is_not_a_prefix(rig: SubmitRig) -> None:
    rig.word(JOB.replace("gpt", "gpt2x"))
    with pytest.raises(NotFound, match=r"there is no job gpt: did you mean gpt2x\?"):
        rig.session.get_job("gpt")


def test_fields_are_set_and_costly_changes_need_consent(rig: SubmitRig) -> None:
    rig.word(JOB)
    made = rig.set(max_cost=5)
    assert made is not None
    assert (made.word, rig.person.asked) == ("changed", [])
    made = rig.set(max_cost=5)
    assert made is not None
    assert made.word == "unchanged"
    rig.person.answer = False
    assert rig.set(accelerator="v4-8") is None
    assert rig.person.asked[-1].startswith("gpt: this needs new nodes")
    rig.person.answer = True
    rig.set(copies=3)
    assert len(rig.person.asked) == 1
    rig.set(copies=1)
    assert rig.person.asked[-1] == "gpt: 2 of its nodes are deleted, with what runs there"
    for field in ({"workdir": "."}, {"secrets": ["A"]}):
        with pytest.raises(InvalidInput, match="can't be set"):
            rig.set(**field)
    with pytest.raises(InvalidInput, match="max_cost_per_hour allows"):
        rig.set(max_cost_per_hour=0.01)


@pytest.mark.parametrize(
    ("goal", "run", "sentence"),
    [(Goal.RUN, None, "run can't be removed"), (Goal.IDLE, "hostname", "run can't be set")],
)
def test_a_command_is_neither_removed_nor_added_by_set(
    rig: SubmitRig, goal: Goal, run: str | None, sentence: str
) -> None:
    rig.word(JOB, goal)
    before = rig.session.get_job("gpt")
    with pytest.raises(InvalidInput, match=sentence):
        rig.set(run=run)
    assert rig.session.get_job("gpt") == before


def test_two_concurrent_changes(rig: SubmitRig) -> None:
    rig.word(JOB)
    stored_job = rig.session.get_job("gpt")
    submit.stop_job(stored_job, rig.session)
    with pytest.raises(Superseded, match="changed by another command"):
        submit.stop_job(stored_job, rig.session)


# ---- what a page names must be there -------------------------------------------------------------


def test_all_mistakes_are_reported_at_once_and_nothing_is_stored(rig: SubmitRig) -> None:
    rig.buckets = {"mine": NotFound("no"), "theirs": NotAllowed("no")}
    text = (
        "name: gpt\naccelerator: v4-17\nworkdir: nowhere\nsecrets: [TOKEN, ABSENT]\n"
        "checkpoint: gs://mine/x\ncopies: x\n"
    )
    assert rig.submit_file(text) == [
        "job.yaml:1: run is missing: write run: python3 train.py, or append -- python3 train.py",
        "job.yaml:2: accelerator: unknown type v4-17: did you mean v4-8 or v4-16?",
        "job.yaml:3: workdir: nowhere is not a folder",
        "job.yaml:4: secrets.ABSENT: the variable ABSENT is not set in your environment",
        "job.yaml:5: checkpoint: bucket mine does not exist",
        "job.yaml:6: copies: should be a whole number, not 'x'",
    ]
    assert rig.submit_file(JOB + "checkpoint: gs://theirs") == [
        "job.yaml:4: checkpoint: you are not allowed to read bucket theirs: write where it is,"
        " such as buckets: {theirs: US}, or {theirs: ignore} if it is not used"
    ]
    assert rig.log() == []
    assert rig.session.store.stored_jobs() == {}
    assert rig.session.store.secrets.get("gpt") == {}


def test_a_misspelled_command_is_not_also_missing(rig: SubmitRig) -> None:
    assert rig.submit_file("name: gpt\naccelerator: v4-8\nrunn: x\n") == [
        "job.yaml:3: runn: unknown field: did you mean run?"
    ]


SCRIPT = JOB.replace("hostname -f", "python3 train.py")


def test_a_script_that_is_not_shipped_is_noticed_before_a_node_is_paid(
    rig: SubmitRig, tmp_path: Path
) -> None:
    code = tmp_path / "code"
    code.mkdir()
    assert rig.submit_file(SCRIPT + "workdir: code") == [
        "job.yaml:3: run: train.py is not in workdir code"
    ]
    assert rig.submit_file(SCRIPT) == [
        "job.yaml:3: run: new hosts have no train.py: set what to ship with workdir or repo"
    ]
    (tmp_path / "train.py").write_text("1")
    assert rig.submit_file(SCRIPT) == [
        "job.yaml:3: run: train.py would not be shipped: add --workdir . (workdir: .)"
    ]
    assert rig.word(SCRIPT, Goal.IDLE) == "submitted", "its command is not run"
    (code / "train.py").write_text("1")
    assert rig.word(SCRIPT + "workdir: code") == "changed"
    (code / "other.py").write_text("1")
    (code / ".herdignore").write_text("train.py\n")
    with pytest.raises(InvalidInput, match=r"run: train\.py would not be shipped, because git or"):
        rig.submit_file(SCRIPT + "workdir: code")


@pytest.mark.parametrize(
    ("lines", "text", "says"),
    [
        ('setup: ["pip install jax", "pip install -r pins.txt"]\n', "1",
         "job.yaml:5: setup[1]: pins.txt is not in workdir code"),
        ("", "def f(:\n", "job.yaml:3: run: train.py:1: invalid syntax (Python cannot run it)"),
        ('python: "3.14"\n', "def f(:\n", ""),  # is newer than ours: perhaps it can
    ],
)  # fmt: skip
def test_what_cannot_run_is_refused_before_a_node_is_paid(
    rig: SubmitRig, tmp_path: Path, lines: str, text: str, says: str
) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code/train.py").write_text(text)
    job = SCRIPT + "workdir: code\n" + lines
    if says:
        assert rig.submit_file(job) == [says]
    else:
        assert rig.word(job) == "submitted"


def test_a_list_of_words_with_an_operator_of_the_shell_is_refused(rig: SubmitRig) -> None:
    job = JOB.replace("hostname -f", '[cd, sub, "&&", ls]')
    assert rig.submit_file(job) == [
        "job.yaml:3: run: && is for a shell, and a list of words has none: write one line of text"
    ]


def test_a_command_that_needs_no_code_needs_no_folder(rig: SubmitRig, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert rig.word(JOB + "workdir: empty") == "submitted"
    assert rig.session.get_job("gpt").snapshot == ""


def test_a_checkpoint_must_be_shared_by_all_hosts(rig: SubmitRig) -> None:
    for place in ("~/ckpt", "/tmp/ckpt"):
        assert rig.submit_file(JOB + f"checkpoint: {place}") == [
            f"job.yaml:4: checkpoint: {place} is a different folder on each of the 2 hosts: use a"
            " bucket, gs://BUCKET/PATH, or mount a shared folder: `nfs`"
        ]
    assert rig.word(JOB + "checkpoint: /nfs/x\nsetup: sudo mount nfs:/x /nfs\n") == "submitted"
    one = JOB.replace("gpt", "one").replace("v4-16", "v4-8")
    assert rig.word(one + "checkpoint: ~/ckpt") == "submitted"
    assert isinstance(rig.submit_file(one + "checkpoint: ~/ckpt\nslices: 2"), list)


def test_an_unknown_runtime_is_refused(rig: SubmitRig) -> None:
    rig.runtimes = {"tpu-new-2030"}
    assert rig.word(JOB + "runtime: tpu-new-2030") == "submitted"
    assert rig.submit_file(JOB + "runtime: tpu-old-1999") == [
        "job.yaml:4: runtime: us-central2-b has no runtime tpu-old-1999: omit it to"
        " get the default, or see: gcloud compute tpus tpu-vm versions list"
    ]
    rig.runtimes = None  # the cloud is not reached: that is no reason to refuse it
    assert rig.word(JOB + "runtime: tpu-old-1999") == "changed"


def test_an_exact_name_that_is_in_use_is_refused_with_whose_it_is(rig: SubmitRig) -> None:
    text = JOB + "node_name: my-tpu"
    mine = project_access.get_owner_id(rig.session.config_folder)
    for bid, says in {
        "": "herd did not create it: `herd engine adopt` takes it over, or choose another name",
        "gpt-0-g1-zzz": "it belongs to another herd user: choose another name",
        f"old-0-g1-{mine}": "it belongs to job old: `herd down old`",
    }.items():
        rig.nodes = [a_node("my-tpu", bid)]
        assert rig.submit_file(text) == [
            f"job.yaml:4: node_name: a node my-tpu already exists in us-central2-b, and {says}"
        ]
    rig.nodes = [a_node("my-tpu", f"gpt-0-g1-{mine}"), a_node("my-tpu-1", "")]
    assert rig.word(text) == "submitted"
    assert rig.submit_file(text.replace("gpt", "other")) == [
        "job.yaml:4: node_name: job gpt uses the name my-tpu: `herd down gpt`"
    ]
    assert rig.submit_file(text + "\ncopies: 2") == [
        "job.yaml:4: node_name: a node my-tpu-1 already exists in us-central2-b, and herd did not"
        " create it: `herd engine adopt` takes it over, or choose another name"
    ]
    rig.nodes = None  # the cloud is not reached: that is no reason to refuse it
    assert rig.word(text + "\ncopies: 2") == "changed"


def test_the_location_of_a_bucket_limits_the_zones_and_is_remembered(rig: SubmitRig) -> None:
    rig.buckets = {"mine": "EUROPE-WEST4"}
    text = "name: gpt\naccelerator: v5litepod-16\nrun: x\ncheckpoint: gs://mine/x\n"
    assert rig.word(text) == "submitted"
    rig.buckets = {"mine": "EUROPE-WEST4"}
    slot = load_desired_state(
        rig.session.store.stored_jobs(), rig.session.place, owner="abc"
    ).desired_slots.slots["gpt-0"]
    assert {one.zone for one in slot.offers} == {"europe-west4-a", "europe-west4-b"}
    with pytest.raises(
        InvalidInput, match="bucket mine is in EUROPE-WEST4, and no v4-16 is available"
    ):
        rig.submit_file(JOB + "checkpoint: gs://mine")


def test_secrets_are_found_and_kept_separately(rig: SubmitRig, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("from a file\n")
    text = JOB + (
        "secrets:\n  TOKEN:\n  OTHER: {env: TOKEN}\n  FILE: {file: key}\n"
        "  COMMAND: {command: echo said}\n"
    )
    assert rig.word(text) == "submitted"
    assert rig.session.store.secrets.get("gpt") == {
        "TOKEN": "hush", "OTHER": "hush", "FILE": "from a file", "COMMAND": "said",
    }  # fmt: skip
    for told in (rig.session.get_job("gpt").document, *(one.facts for one in rig.log())):
        assert "hush" not in json.dumps(told)
    launch = load_desired_state(rig.session.store.stored_jobs(), rig.session.place, owner="abc")
    order = launch.launch(launch.desired_slots.slots["gpt-0"])
    assert order.secrets == ("COMMAND", "FILE", "OTHER", "TOKEN")
    assert "hush" not in repr(order)


WANDB_JOB = "name: gpt\naccelerator: v4-16\nworkdir: code\nrun: python3 train.py\n"
NETRC = "machine api.wandb.ai\n  login user\n  password hush-hush\n"


def wandb_code(rig: SubmitRig, text: str = "import wandb\nwandb.init()\n") -> None:
    (rig.folder / "code").mkdir()
    (rig.folder / "code" / "train.py").write_text(text)


@pytest.mark.parametrize("place", ["your environment", "~/.netrc"])
def test_code_that_uses_wandb_gets_the_users_key(rig: SubmitRig, place: str) -> None:
    wandb_code(rig)
    if place == "~/.netrc":
        (rig.folder / ".netrc").write_text(NETRC)
    else:
        rig.person.environ = {**rig.person.environ, "WANDB_API_KEY": "hush-hush"}
    assert rig.word(WANDB_JOB) == "submitted"
    assert rig.person.notes == [
        f"train.py:1 uses wandb: the job gets WANDB_API_KEY from {place}, as a secret"
    ]
    assert rig.session.store.secrets.get("gpt") == {"WANDB_API_KEY": "hush-hush"}
    document = rig.session.get_job("gpt").document
    assert document["secrets"] == {"WANDB_API_KEY": {"env": "WANDB_API_KEY"}}
    assert "hush" not in json.dumps([document, *(one.facts for one in rig.log())])
    launch = load_desired_state(rig.session.store.stored_jobs(), rig.session.place, owner="abc")
    assert launch.launch(launch.desired_slots.slots["gpt-0"]).secrets == ("WANDB_API_KEY",)
    assert rig.word(WANDB_JOB) == "unchanged"


def test_a_key_of_another_server_is_not_taken(rig: SubmitRig) -> None:
    wandb_code(rig)
    (rig.folder / ".netrc").write_text(NETRC)
    text = WANDB_JOB + "env: {WANDB_BASE_URL: 'https://wandb.example.org'}\n"
    [mistake] = rig.submit_file(text)  # type: ignore[misc]
    assert "~/.netrc has no login for wandb.example.org" in mistake
    (rig.folder / ".netrc").write_text(NETRC.replace("api.wandb.ai", "wandb.example.org"))
    assert rig.word(text) == "submitted"


def test_a_named_key_is_found_where_wandb_login_keeps_it(rig: SubmitRig) -> None:
    (rig.folder / ".netrc").write_text(NETRC)
    assert rig.word(JOB + "secrets: [WANDB_API_KEY]") == "submitted"
    assert rig.session.store.secrets.get("gpt") == {"WANDB_API_KEY": "hush-hush"}


def test_without_a_key_the_job_is_refused_and_told_what_to_do(rig: SubmitRig) -> None:
    wandb_code(rig)
    (rig.folder / ".netrc").write_text("machine api.wandb.ai passwort hush-hush\n")
    mistakes = rig.submit_file(WANDB_JOB)
    assert mistakes == [
        "job.yaml:4: run: train.py:1 uses wandb, and the variable WANDB_API_KEY is not set in your"
        " environment, and ~/.netrc can't be read: `wandb login` here, name it in `secrets`, or set"
        " `env: {WANDB_MODE: offline}` or disabled"
    ]
    assert rig.session.store.stored_jobs() == {}
    for ending in ("env: {WANDB_MODE: offline}", "env: {WANDB_MODE: disabled}"):
        assert rig.word(WANDB_JOB + ending) in ("submitted", "changed")
    assert rig.person.notes == []


def test_who_may_do_without_a_key_is_not_refused(rig: SubmitRig) -> None:
    wandb_code(rig, "try:\n    import wandb\nexcept ImportError:\n    wandb = None\n")
    assert rig.word(WANDB_JOB) == "submitted"
    assert rig.session.store.secrets.get("gpt") == {}


def test_a_node_of_up_may_have_been_logged_in_by_hand(rig: SubmitRig) -> None:
    wandb_code(rig)
    assert rig.word(WANDB_JOB, Goal.IDLE) == "submitted"
    assert rig.word(WANDB_JOB) == "changed"
    assert rig.person.notes == [
        "train.py:1 may use wandb, for which there is no key here: `wandb login` makes one"
    ]


def test_code_of_a_repository_gets_the_key_too(rig: SubmitRig) -> None:
    wandb_code(rig)
    for words in (
        ["init", "-q"],
        ["add", "."],
        ["-c", "user.name=a", "-c", "user.email=b", "commit", "-qm", "x"],
    ):
        subprocess.run(["git", "-C", rig.folder / "code", *words], check=True)
    text = WANDB_JOB.replace("workdir: code", f"repo: file://{rig.folder}/code")
    with pytest.raises(InvalidInput, match=r"run: train\.py:1 uses wandb, and the"):
        rig.submit_file(text)
    assert rig.session.store.stored_jobs() == {}
    (rig.folder / ".netrc").write_text(NETRC)
    assert rig.word(text) == "submitted"
    assert rig.session.store.secrets.get("gpt") == {"WANDB_API_KEY": "hush-hush"}


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("{file: absent}", "absent can't be read: No such file or directory"),
        ("{file: empty}", "empty is empty"),
        ("{file: binary}", "binary is not text that an environment variable can hold"),
        ("{command: exit 3}", "its command ended with exit status 3"),
        ("{command: 'true'}", "the output of its command is empty"),
        ("{env: ABSENT}", "the variable ABSENT is not set in your environment"),
    ],
)
def test_missing_secrets(rig: SubmitRig, tmp_path: Path, source: str, sentence: str) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "binary").write_bytes(b"a\0b")
    mistakes = rig.submit_file(f"{JOB}secrets: {{S: {source}}}")
    assert mistakes == [f"job.yaml:4: secrets.S: {sentence}"]


# ---- code ----------------------------------------------------------------------------------------


def test_the_code_is_taken_as_it_is_now(rig: SubmitRig, tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text("1")
    (code / "requirements.txt").write_text("jax")
    text = JOB + "workdir: code\nsetup: pip install -r requirements.txt\n"
    assert rig.word(text) == "submitted"
    first = rig.session.get_job("gpt").snapshot
    stamp = setup_hash(rig)
    assert rig.word(text) == "unchanged"
    (code / "train.py").write_text("22")
    assert rig.word(text) == "changed"
    assert rig.session.get_job("gpt").snapshot != first
    assert setup_hash(rig) == stamp
    (code / "requirements.txt").write_text("jax flax")
    assert rig.word(text) == "changed"
    assert setup_hash(rig) != stamp
    assert rig.log()[-1].facts["difference"][0].startswith("code: ")
    archive = open_archive(rig.session.place.folders.state)
    assert archive.pinned_ids() == {rig.session.get_job("gpt").snapshot}
    found = snapshot_files(archive, rig.session.get_job("gpt").snapshot)
    assert found is not None
    assert found.keys() == {"train.py", "requirements.txt"}
    assert snapshot_files(archive, "0" * 64) is None


def setup_hash(rig: SubmitRig) -> str:
    found = load_desired_state(rig.session.store.stored_jobs(), rig.session.place, owner="abc")
    (step,) = found.launch(found.desired_slots.slots["gpt-0"]).setup
    return str(step["hash"])


def test_code_that_looks_secret_needs_consent(rig: SubmitRig, tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code/id_rsa").write_text("-----BEGIN OPENSSH PRIVATE KEY-----\nx\n")
    rig.person.answer = False
    assert rig.submit_file(JOB + "workdir: code\n") == ["no"]
    assert "id_rsa" in rig.person.asked[0]
    assert rig.session.store.stored_jobs() == {}
    rig.person.answer = True
    assert rig.word(JOB + "workdir: code\n") == "submitted"
    assert rig.word(JOB + "workdir: code\n") == "unchanged"
    assert len(rig.person.asked) == 2


# ---- Google --------------------------------------------------------------------------------------


def test_without_grants_herd_asks_once_per_project(tmp_path: Path) -> None:
    rig = SubmitRig(tmp_path, google=True)
    rig.person.answer = False
    assert rig.submit_file(JOB) == ["no"]
    assert rig.person.asked[0].startswith("no grants are configured for mine")
    rig.person.answer = True
    assert rig.word(JOB) == "submitted"
    assert rig.word(JOB.replace("gpt", "other")) == "submitted"
    assert len(rig.person.asked) == 2
    rig.session.store.close()


def test_with_grants_no_question_is_asked(tmp_path: Path) -> None:
    rig = SubmitRig(tmp_path, google=True)
    grants = [Grant(zone="us-east5-a", type="v5e", tier="spot", chips=16, free=True)]
    project_settings.add_grants(
        rig.session.config_folder, world=None, project="mine", grants=grants
    )
    with pytest.raises(InvalidInput, match="no grant covers v4-16 at spot"):
        rig.submit_file(JOB)
    with pytest.raises(
        InvalidInput, match="at on-demand: you have spot v5litepod-16 in us-east5-a"
    ):
        rig.submit_file(JOB.replace("v4-16", "v5litepod-16") + "tier: on-demand")
    assert rig.word(JOB.replace("v4-16", "v5litepod-16")) == "submitted"
    assert rig.person.asked == []
    found = load_desired_state(rig.session.store.stored_jobs(), rig.session.place, owner="abc")
    (offer,) = found.desired_slots.slots["gpt-0"].offers
    assert (offer.zone, offer.price) == ("us-east5-a", 0.0)
    rig.session.store.close()


def test_a_job_with_fields_of_a_newer_herd_is_left_alone(rig: SubmitRig) -> None:
    rig.word(JOB)
    stored_job = rig.session.get_job("gpt")
    newer = replace(stored_job, document={**stored_job.document, "warp": 9})
    found = build_desired_state({"gpt": newer}, Allowance(everything=True), owner="abc")
    assert found.desired_slots.slots == {}
    assert isinstance(read_job.read_fields(newer.document), list)


def test_an_event_has_its_author_and_reason(rig: SubmitRig) -> None:
    rig.word(JOB)
    line = job_event("job.changed", rig.session.get_job("gpt"), "did it")
    assert line.facts["who"] in line.facts["why"]
    assert line.at == rig.session.get_job("gpt").changed_at


def test_a_bid_missing_from_the_list_is_gone_if_it_was_withdrawn_before() -> None:
    """Not what is asked for just now: it may come about yet."""
    story = StoryLog()
    story.get(1, 1, 1)
    story.tell("bid.withdrawn", bid=story.bid, why="not wanted")
    withdrawn_at = story.now
    story.wait(5, GoodputState.CAPACITY_WAIT)
    story.ask()
    history = reduce(apply_event, story.events, History())

    def listed(jobs: list[str], at: float) -> list[str]:
        return [one.facts["bid"] for one in gone_events(jobs, history, at, at)]

    assert listed(["gpt"], withdrawn_at) == listed(["gp"], withdrawn_at + 9) == []
    assert listed(["gpt"], withdrawn_at + 9) == ["gpt-0-g1-7kq"]
    assert (not_yet_returned(["gpt"], history), not_yet_returned(["gp"], history)) == (
        ["gpt-0-g2-7kq"],
        [],
    )
    left = reduce(apply_event, gone_events(["gpt"], history, withdrawn_at + 9, story.now), history)
    assert list(left.slots["gpt-0"].bids) == ["gpt-0-g2-7kq"]
