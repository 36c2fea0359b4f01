"""Wishes as they are made, changed and dropped, in a store that no engine looks after."""

import asyncio
import json
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
from tpuherd.jobs.load_history import refused_zones
from tpuherd.jobs.open_project import Session, job_event
from tpuherd.jobs.remove import gone_events, not_yet_returned
from tpuherd.model.slot_history import History
from tpuherd.model.slots_and_plan import Goal, HistoryEvent
from tpuherd.settings import project_access, project_settings
from tpuherd.store.database import Database
from tpuherd.sync.snapshot_store import open_archive

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

    async def ask_confirmation(self, question: str, details: str = "") -> bool:
        self.asked.append(question)
        return self.answer


class Office:
    """A desk in a world of its own."""

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
        self.desk = Session(
            place=place, store=store, clock=WallClock(), prompter=self.person, cloud=self.cloud
        )

    async def cloud(self) -> Cloud:
        office = self

        class Storage(Cloud):
            async def check_access(self) -> None:
                if office.trouble is not None:
                    raise office.trouble

            async def get_bucket_location(self, name: str) -> str:
                found = office.buckets[name]
                if isinstance(found, Exception):
                    raise found
                return str(found)

            async def list_nodes(self) -> NodeList:
                if office.nodes is None:
                    raise NotReached("no network")
                return NodeList(nodes=tuple(office.nodes), unknown=())

            async def check_runtime(self, zone: str, version: str) -> None:
                if office.runtimes is None:
                    raise NotReached("no network")
                if version not in office.runtimes:
                    raise NotFound("no")

        return Storage(None, "demo")  # type: ignore[arg-type]  # nothing else of it is asked

    def wish(self, text: str, goal: Goal = Goal.RUN) -> submit.SubmitResult | list[str]:
        """What became of a job file, or its mistakes."""
        found = read_yaml(text)

        async def work() -> submit.SubmitResult | list[str]:
            made = await submit.check_submission(found, self.folder, goal, self.desk)
            if made is None:
                found.mistakes.sort(key=lambda one: one.line)
                return [one.format_line("job.yaml") for one in found.mistakes]
            done = await submit.submit(made, self.desk, "")
            return ["no"] if done is None else done

        return asyncio.run(work())

    def word(self, text: str, goal: Goal = Goal.RUN) -> str:
        made = self.wish(text, goal)
        assert isinstance(made, submit.SubmitResult), made
        return made.word

    def set(self, **fields: Any) -> submit.SubmitResult | None:
        """With these values; None takes one back."""
        document = {**self.desk.get_job("gpt").document, **fields}
        said = YamlDocument(value={name: it for name, it in document.items() if it is not None})
        return asyncio.run(submit.change_job("gpt", said, self.desk))

    def log(self) -> list[HistoryEvent]:
        return [one for _, one in self.desk.store.read_events()]

    def tell(self, kind: str, **facts: Any) -> None:
        """What an engine would write."""
        line = HistoryEvent(
            at=5.0, kind=kind, job="gpt", slot="gpt-0", facts={"why": "so", **facts}
        )
        self.desk.store.append_events([line])


@pytest.fixture
def office(tmp_path: Path) -> Any:
    found = Office(tmp_path)
    yield found
    found.desk.store.close()


def test_a_job_is_submitted_once(office: Office) -> None:
    assert office.word(JOB) == "submitted"
    wish = office.desk.get_job("gpt")
    assert (wish.goal, wish.revision, wish.snapshot) == (Goal.RUN, 1, "")
    assert wish.document == {"name": "gpt", "accelerator": "v4-16", "run": "hostname -f"}
    assert office.word(JOB) == "unchanged"
    assert office.desk.get_job("gpt") == wish
    assert [one.kind for one in office.log()] == ["job.submitted"]
    assert office.log()[0].facts["goal"] == "run"
    assert office.person.asked == []


def test_a_change_needs_consent_and_keeps_the_run(office: Office) -> None:
    office.word(JOB)
    made_at = office.desk.get_job("gpt").made_at
    office.person.answer = False
    assert office.wish(JOB.replace("-f", "-i")) == ["no"]
    assert office.desk.get_job("gpt").revision == 1
    office.person.answer = True
    assert office.word(JOB.replace("-f", "-i")) == "changed"
    wish = office.desk.get_job("gpt")
    assert (wish.revision, wish.made_at) == (2, made_at)
    assert office.person.asked[-1].startswith("gpt already exists: this needs a new attempt")
    assert office.log()[-1].facts["difference"] == ["run: hostname -f → hostname -i"]


@pytest.mark.parametrize("end", ["slot.done", "slot.gave_up"])
def test_a_finished_job_runs_again(office: Office, end: str) -> None:
    office.word(JOB)
    made_at = office.desk.get_job("gpt").made_at
    office.tell(end)
    assert office.word(JOB) == "restarted"
    assert office.desk.get_job("gpt").made_at > made_at
    assert office.person.asked == []
    assert [one.kind for one in office.log()] == ["job.submitted", end, "job.submitted"]


def test_stop_and_resume(office: Office) -> None:
    office.word(JOB)
    assert submit.stop_job(office.desk.get_job("gpt"), office.desk)
    assert office.desk.get_job("gpt").goal is Goal.GONE
    assert not submit.stop_job(office.desk.get_job("gpt"), office.desk)
    assert submit.resume_job(office.desk.get_job("gpt"), office.desk)
    assert office.desk.get_job("gpt").goal is Goal.RUN
    assert not submit.resume_job(office.desk.get_job("gpt"), office.desk)
    assert [one.kind for one in office.log()][1:] == ["job.stopped", "job.resumed"]
    office.tell("slot.gave_up")
    assert submit.resume_job(office.desk.get_job("gpt"), office.desk)
    submit.stop_job(office.desk.get_job("gpt"), office.desk)
    assert office.word(JOB) == "resumed"
    office.tell("slot.done")
    with pytest.raises(InvalidInput, match="gpt is done"):
        submit.stop_job(office.desk.get_job("gpt"), office.desk)
        submit.resume_job(office.desk.get_job("gpt"), office.desk)


@pytest.mark.parametrize("refusal", ["permission", "quota", "reservation"])
def test_a_resubmitted_job_asks_refusing_zones_again_at_once(office: Office, refusal: str) -> None:
    office.word(JOB)
    assert not submit.resume_job(office.desk.get_job("gpt"), office.desk)
    again: tuple[Any, ...] = (
        lambda: submit.resume_job(office.desk.get_job("gpt"), office.desk),
        lambda: office.word(JOB) == "unchanged",
    )
    for number, say in enumerate(again):
        bid = f"gpt-0-g{number + 1}-abc"
        offer = {"zone": "us-central2-b", "type": "v4-16", "runtime": "r", "tier": "spot"}
        about = {"generation": number + 1, "offer": offer, "node_digest": "d", "nodes": 1}
        office.tell("bid.requested", bid=bid, **about)
        office.tell("bid.refused", bid=bid, refusal=refusal, message="no")
        assert refused_zones(office.desk.store) == {"us-central2-b"}
        assert say()
        assert refused_zones(office.desk.store) == set()
        assert office.log()[-1].facts["why"].endswith(submit.ASKED_AGAIN)


def test_without_a_login_or_a_permission_nothing_is_stored(office: Office) -> None:
    office.trouble = NoLogin("there are no credentials", hint="log in")
    with pytest.raises(NoLogin):
        office.wish(JOB)
    office.trouble = NotAllowed("Cloud TPU API has not been used in project 1 before")
    with pytest.raises(NotAllowed):
        office.wish(JOB)
    assert (office.desk.store.stored_jobs(), office.log()) == ({}, [])


@pytest.mark.parametrize("trouble", [NotReached("no network"), OperationFailed("HTTP status 503")])
def test_a_cloud_that_does_not_answer_is_reported_and_the_job_is_stored(
    office: Office, trouble: HerdError
) -> None:
    office.trouble = trouble
    assert office.word(JOB) == "submitted"
    assert office.person.notes[0].startswith(f"{trouble.sentence}; the job is saved")
    (noted,) = office.desk.store.troubles.read()
    assert noted.sentence == trouble.sentence
    office.trouble = None
    assert office.word(JOB) == "unchanged"
    assert office.desk.store.troubles.read() == []


def test_a_bucket_with_a_known_location_needs_no_answer(office: Office) -> None:
    job = f"{JOB}checkpoint: gs://mine/x\n"
    office.buckets = {"mine": NotReached("no network")}
    with pytest.raises(NotReached):
        office.wish(job)
    office.buckets = {"mine": "US-CENTRAL2"}
    assert office.word(job) == "submitted"
    office.buckets = {"mine": NotReached("no network")}
    assert office.word(job) == "unchanged"
    office.buckets = {"mine": NoLogin("no login")}
    with pytest.raises(NoLogin):
        office.wish(job)


def test_a_node_without_a_command_gets_one(office: Office) -> None:
    assert office.word("name: gpt\naccelerator: v4-16\nrun: x", Goal.IDLE) == "submitted"
    assert "run" not in office.desk.get_job("gpt").document
    submit.stop_job(office.desk.get_job("gpt"), office.desk)
    submit.resume_job(office.desk.get_job("gpt"), office.desk)
    assert office.desk.get_job("gpt").goal is Goal.IDLE
    assert office.word(JOB) == "changed"
    assert office.desk.get_job("gpt").goal is Goal.RUN
    assert office.log()[-1].facts["difference"] == [
        "run: none → hostname -f",
        "goal: idle → run",
    ]


def test_a_name_is_not_a_prefix(office: Office) -> None:
    office.word(JOB.replace("gpt", "gpt2x"))
    with pytest.raises(NotFound, match=r"there is no job gpt: did you mean gpt2x\?"):
        office.desk.get_job("gpt")


def test_fields_are_set_and_costly_changes_need_consent(office: Office) -> None:
    office.word(JOB)
    made = office.set(max_cost=5)
    assert made is not None
    assert (made.word, office.person.asked) == ("changed", [])
    made = office.set(max_cost=5)
    assert made is not None
    assert made.word == "unchanged"
    office.person.answer = False
    assert office.set(accelerator="v4-8") is None
    assert office.person.asked[-1].startswith("gpt: this needs new nodes")
    office.person.answer = True
    office.set(copies=3)
    assert len(office.person.asked) == 1
    office.set(copies=1)
    assert office.person.asked[-1] == "gpt: 2 of its nodes are deleted, with what runs there"
    for field in ({"workdir": "."}, {"secrets": ["A"]}):
        with pytest.raises(InvalidInput, match="can't be set"):
            office.set(**field)
    with pytest.raises(InvalidInput, match="max_cost_per_hour allows"):
        office.set(max_cost_per_hour=0.01)


@pytest.mark.parametrize(
    ("goal", "run", "sentence"),
    [(Goal.RUN, None, "run can't be removed"), (Goal.IDLE, "hostname", "run can't be set")],
)
def test_a_command_is_neither_removed_nor_added_by_set(
    office: Office, goal: Goal, run: str | None, sentence: str
) -> None:
    office.word(JOB, goal)
    before = office.desk.get_job("gpt")
    with pytest.raises(InvalidInput, match=sentence):
        office.set(run=run)
    assert office.desk.get_job("gpt") == before


def test_two_concurrent_changes(office: Office) -> None:
    office.word(JOB)
    wish = office.desk.get_job("gpt")
    submit.stop_job(wish, office.desk)
    with pytest.raises(Superseded, match="changed by another command"):
        submit.stop_job(wish, office.desk)


# ---- what a page names must be there -------------------------------------------------------------


def test_all_mistakes_are_reported_at_once_and_nothing_is_stored(office: Office) -> None:
    office.buckets = {"mine": NotFound("no"), "theirs": NotAllowed("no")}
    text = (
        "name: gpt\naccelerator: v4-17\nworkdir: nowhere\nsecrets: [TOKEN, ABSENT]\n"
        "checkpoint: gs://mine/x\ncopies: x\n"
    )
    assert office.wish(text) == [
        "job.yaml:1: run is missing: write run: python3 train.py, or append -- python3 train.py",
        "job.yaml:2: accelerator: unknown type v4-17: did you mean v4-8 or v4-16?",
        "job.yaml:3: workdir: nowhere is not a folder",
        "job.yaml:4: secrets.ABSENT: the variable ABSENT is not set in your environment",
        "job.yaml:5: checkpoint: bucket mine does not exist",
        "job.yaml:6: copies: should be a whole number, not 'x'",
    ]
    assert office.wish(JOB + "checkpoint: gs://theirs") == [
        "job.yaml:4: checkpoint: you are not allowed to read bucket theirs: write where it is,"
        " such as buckets: {theirs: US}, or {theirs: ignore} if it is not used"
    ]
    assert office.log() == []
    assert office.desk.store.stored_jobs() == {}
    assert office.desk.store.secrets.get("gpt") == {}


def test_a_misspelled_command_is_not_also_missing(office: Office) -> None:
    assert office.wish("name: gpt\naccelerator: v4-8\nrunn: x\n") == [
        "job.yaml:3: runn: unknown field: did you mean run?"
    ]


SCRIPT = JOB.replace("hostname -f", "python3 train.py")


def test_a_script_that_is_not_shipped_is_noticed_before_a_node_is_paid(
    office: Office, tmp_path: Path
) -> None:
    code = tmp_path / "code"
    code.mkdir()
    assert office.wish(SCRIPT + "workdir: code") == [
        "job.yaml:3: run: train.py is not in workdir code"
    ]
    assert office.wish(SCRIPT) == [
        "job.yaml:3: run: new hosts have no train.py: set what to ship with workdir or repo"
    ]
    (tmp_path / "train.py").write_text("1")
    assert office.wish(SCRIPT) == [
        "job.yaml:3: run: train.py would not be shipped: add --workdir . (workdir: .)"
    ]
    assert office.word(SCRIPT, Goal.IDLE) == "submitted", "its command is not run"
    (code / "train.py").write_text("1")
    assert office.word(SCRIPT + "workdir: code") == "changed"
    (code / "other.py").write_text("1")
    (code / ".herdignore").write_text("train.py\n")
    with pytest.raises(InvalidInput, match=r"run: train\.py would not be shipped, because git or"):
        office.wish(SCRIPT + "workdir: code")


def test_a_command_that_needs_no_code_needs_no_folder(office: Office, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert office.word(JOB + "workdir: empty") == "submitted"
    assert office.desk.get_job("gpt").snapshot == ""


def test_a_checkpoint_must_be_shared_by_all_hosts(office: Office) -> None:
    for place in ("~/ckpt", "/tmp/ckpt"):
        assert office.wish(JOB + f"checkpoint: {place}") == [
            f"job.yaml:4: checkpoint: {place} is a different folder on each of the 2 hosts: use a"
            " bucket, gs://BUCKET/PATH, or mount a shared folder in setup"
        ]
    assert office.word(JOB + "checkpoint: /nfs/x\nsetup: sudo mount nfs:/x /nfs\n") == "submitted"
    one = JOB.replace("gpt", "one").replace("v4-16", "v4-8")
    assert office.word(one + "checkpoint: ~/ckpt") == "submitted"
    assert isinstance(office.wish(one + "checkpoint: ~/ckpt\nslices: 2"), list)


def test_an_unknown_runtime_is_refused(office: Office) -> None:
    office.runtimes = {"tpu-new-2030"}
    assert office.word(JOB + "runtime: tpu-new-2030") == "submitted"
    assert office.wish(JOB + "runtime: tpu-old-1999") == [
        "job.yaml:4: runtime: us-central2-b has no runtime tpu-old-1999: omit it to"
        " get the default, or see: gcloud compute tpus tpu-vm versions list"
    ]
    office.runtimes = None  # the cloud is not reached: that is no reason to refuse it
    assert office.word(JOB + "runtime: tpu-old-1999") == "changed"


def test_an_exact_name_that_is_in_use_is_refused_with_whose_it_is(office: Office) -> None:
    text = JOB + "node_name: my-tpu"
    mine = project_access.get_owner_id(office.desk.config_folder)
    for bid, says in {
        "": "herd did not create it: delete it, or choose another name",
        "gpt-0-g1-zzz": "it belongs to another herd user: choose another name",
        f"old-0-g1-{mine}": "it belongs to job old: `herd down old`",
    }.items():
        office.nodes = [a_node("my-tpu", bid)]
        assert office.wish(text) == [
            f"job.yaml:4: node_name: a node my-tpu already exists in us-central2-b, and {says}"
        ]
    office.nodes = [a_node("my-tpu", f"gpt-0-g1-{mine}"), a_node("my-tpu-1", "")]
    assert office.word(text) == "submitted"
    assert office.wish(text.replace("gpt", "other")) == [
        "job.yaml:4: node_name: job gpt uses the name my-tpu: `herd down gpt`"
    ]
    assert office.wish(text + "\ncopies: 2") == [
        "job.yaml:4: node_name: a node my-tpu-1 already exists in us-central2-b, and herd did not"
        " create it: delete it, or choose another name"
    ]
    office.nodes = None  # the cloud is not reached: that is no reason to refuse it
    assert office.word(text + "\ncopies: 2") == "changed"


def test_the_location_of_a_bucket_limits_the_zones_and_is_remembered(office: Office) -> None:
    office.buckets = {"mine": "EUROPE-WEST4"}
    text = "name: gpt\naccelerator: v5litepod-16\nrun: x\ncheckpoint: gs://mine/x\n"
    assert office.word(text) == "submitted"
    office.buckets = {"mine": "EUROPE-WEST4"}
    slot = load_desired_state(
        office.desk.store.stored_jobs(), office.desk.place, owner="abc"
    ).desired_slots.slots["gpt-0"]
    assert {one.zone for one in slot.offers} == {"europe-west4-a", "europe-west4-b"}
    with pytest.raises(
        InvalidInput, match="bucket mine is in EUROPE-WEST4, and no v4-16 is available"
    ):
        office.wish(JOB + "checkpoint: gs://mine")


def test_secrets_are_found_and_kept_separately(office: Office, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("from a file\n")
    text = JOB + (
        "secrets:\n  TOKEN:\n  OTHER: {env: TOKEN}\n  FILE: {file: key}\n"
        "  COMMAND: {command: echo said}\n"
    )
    assert office.word(text) == "submitted"
    assert office.desk.store.secrets.get("gpt") == {
        "TOKEN": "hush", "OTHER": "hush", "FILE": "from a file", "COMMAND": "said",
    }  # fmt: skip
    for told in (office.desk.get_job("gpt").document, *(one.facts for one in office.log())):
        assert "hush" not in json.dumps(told)
    launch = load_desired_state(office.desk.store.stored_jobs(), office.desk.place, owner="abc")
    order = launch.launch(launch.desired_slots.slots["gpt-0"])
    assert order.secrets == ("COMMAND", "FILE", "OTHER", "TOKEN")
    assert "hush" not in repr(order)


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
def test_missing_secrets(office: Office, tmp_path: Path, source: str, sentence: str) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "binary").write_bytes(b"a\0b")
    assert office.wish(f"{JOB}secrets: {{S: {source}}}") == [f"job.yaml:4: secrets.S: {sentence}"]


# ---- code ----------------------------------------------------------------------------------------


def test_the_code_is_taken_as_it_is_now(office: Office, tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text("1")
    (code / "requirements.txt").write_text("jax")
    text = JOB + "workdir: code\nsetup: pip install -r requirements.txt\n"
    assert office.word(text) == "submitted"
    first = office.desk.get_job("gpt").snapshot
    stamp = setup_hash(office)
    assert office.word(text) == "unchanged"
    (code / "train.py").write_text("22")
    assert office.word(text) == "changed"
    assert office.desk.get_job("gpt").snapshot != first
    assert setup_hash(office) == stamp
    (code / "requirements.txt").write_text("jax flax")
    assert office.word(text) == "changed"
    assert setup_hash(office) != stamp
    assert office.log()[-1].facts["difference"][0].startswith("code: ")
    archive = open_archive(office.desk.place.folders.state)
    assert archive.pinned_ids() == {office.desk.get_job("gpt").snapshot}
    found = snapshot_files(archive, office.desk.get_job("gpt").snapshot)
    assert found is not None
    assert found.keys() == {"train.py", "requirements.txt"}
    assert snapshot_files(archive, "0" * 64) is None


def setup_hash(office: Office) -> str:
    found = load_desired_state(office.desk.store.stored_jobs(), office.desk.place, owner="abc")
    (step,) = found.launch(found.desired_slots.slots["gpt-0"]).setup
    return str(step["hash"])


def test_code_that_looks_secret_needs_consent(office: Office, tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code/id_rsa").write_text("-----BEGIN OPENSSH PRIVATE KEY-----\nx\n")
    office.person.answer = False
    assert office.wish(JOB + "workdir: code\n") == ["no"]
    assert "id_rsa" in office.person.asked[0]
    assert office.desk.store.stored_jobs() == {}
    office.person.answer = True
    assert office.word(JOB + "workdir: code\n") == "submitted"
    assert office.word(JOB + "workdir: code\n") == "unchanged"
    assert len(office.person.asked) == 2


# ---- Google --------------------------------------------------------------------------------------


def test_without_grants_herd_asks_once_per_project(tmp_path: Path) -> None:
    office = Office(tmp_path, google=True)
    office.person.answer = False
    assert office.wish(JOB) == ["no"]
    assert office.person.asked[0].startswith("no grants are configured for mine")
    office.person.answer = True
    assert office.word(JOB) == "submitted"
    assert office.word(JOB.replace("gpt", "other")) == "submitted"
    assert len(office.person.asked) == 2
    office.desk.store.close()


def test_with_grants_no_question_is_asked(tmp_path: Path) -> None:
    office = Office(tmp_path, google=True)
    grants = [Grant(zone="us-east5-a", type="v5e", tier="spot", chips=16, free=True)]
    project_settings.add_grants(office.desk.config_folder, "mine", grants)
    with pytest.raises(InvalidInput, match="no grant covers v4-16 at spot"):
        office.wish(JOB)
    with pytest.raises(
        InvalidInput, match="at on-demand: you have spot v5litepod-16 in us-east5-a"
    ):
        office.wish(JOB.replace("v4-16", "v5litepod-16") + "tier: on-demand")
    assert office.word(JOB.replace("v4-16", "v5litepod-16")) == "submitted"
    assert office.person.asked == []
    found = load_desired_state(office.desk.store.stored_jobs(), office.desk.place, owner="abc")
    (offer,) = found.desired_slots.slots["gpt-0"].offers
    assert (offer.zone, offer.price) == ("us-east5-a", 0.0)
    office.desk.store.close()


def test_a_job_with_fields_of_a_newer_herd_is_left_alone(office: Office) -> None:
    office.word(JOB)
    wish = office.desk.get_job("gpt")
    newer = replace(wish, document={**wish.document, "warp": 9})
    found = build_desired_state({"gpt": newer}, Allowance(everything=True), owner="abc")
    assert found.desired_slots.slots == {}
    assert isinstance(read_job.read_fields(newer.document), list)


def test_an_event_has_its_author_and_reason(office: Office) -> None:
    office.word(JOB)
    line = job_event("job.changed", office.desk.get_job("gpt"), "did it")
    assert line.facts["who"] in line.facts["why"]
    assert line.at == office.desk.get_job("gpt").changed_at


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
