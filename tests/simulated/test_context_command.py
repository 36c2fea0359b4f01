"""`herd context`, and how a command line becomes a job."""

import json
import stat
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from json_schemas import SCHEMAS

from tests.simulated.conftest import Herd, use_home
from tpuherd.cli.job_options import JobArguments, parse_setting, read_job_input, shell_text
from tpuherd.errors import InvalidInput
from tpuherd.jobfile.read_job import JobSpec, read_document
from tpuherd.settings import project_settings

MAIL = "> **32 spot Cloud TPU v4 chips in zone us-central2-b**\n"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return use_home(tmp_path, monkeypatch)


def test_contexts_are_added_and_removed(herd: Herd, tmp_path: Path) -> None:
    assert herd("context", "list")[2] == "No contexts. herd uses the default project of gcloud.\n"
    added = herd("context", "add", "lab", "--project", "mine", "--login", "ada", "--via", "a@b")
    assert added == (0, "lab: project mine, current\n", "")
    herd("context", "add", "rehearsal", "--world", "w")
    rows = [row.split() for row in herd("context", "list")[1].splitlines()]
    assert rows == [
        ["NAME", "CLOUD", "LOGIN"],
        ["*", "lab", "project", "mine", "ada"],
        ["rehearsal", "world", f"{tmp_path}/w"],
    ]
    assert herd("context", "use", "rehearsal")[0] == 0
    shown = json.loads(herd("context", "show", "--json")[1])
    assert (shown["name"], shown["world"], shown["everything"]) == (
        "rehearsal", f"{tmp_path}/w", True,
    )  # fmt: skip
    assert herd("context", "remove", "rehearsal") == (0, "Removed rehearsal\n", "")
    listed = json.loads(herd("context", "list", "--json")[1])
    assert listed["current"] is None
    assert listed["contexts"]["lab"] == {"project": "mine", "login": "ada", "via": "a@b"}
    jsonschema.validate(shown, SCHEMAS["herd context show --json"])
    jsonschema.validate(listed, SCHEMAS["herd context list --json"])
    file = tmp_path / ".config/tpuherd/contexts.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_grants_from_a_mail_and_by_hand(herd: Herd, tmp_path: Path) -> None:
    (tmp_path / "mail").write_text(MAIL)
    herd("context", "add", "lab", "--project", "mine")
    assert "us-central2-b  v4    spot  32     free" in herd("context", "grant", "--mail", "mail")[1]
    more = ("--zone", "us-east5-a", "--type", "v5litepod", "--tier", "spot", "--chips", "8")
    found = json.loads(herd("context", "grant", *more, "--json")[1])
    assert found[1] == {"zone": "us-east5-a", "type": "v5e", "tier": "spot", "chips": 8}
    assert "v5e" in herd("context", "show")[1]
    assert herd("context", "grant", "--clear")[1] == "mine has no grants\n"
    assert "No grants. herd asks" in herd("context", "show")[1]


def test_a_broken_file_is_reported_and_kept(herd: Herd, tmp_path: Path) -> None:
    file = tmp_path / ".config/tpuherd/contexts.json"
    file.parent.mkdir(parents=True)
    for text in ("{", "[]", '{"contexts": []}', '{"contexts": {"a": 1}}'):
        file.write_text(text)
        done = herd("context", "add", "x", "--project", "p")
        assert done[0] == 2
        assert "contexts.json can't be used" in done[2]
        assert file.read_text() == text
    file.write_text('{"projects": {"p": {"grants": [{"zone": "z"}]}}}')
    with pytest.raises(InvalidInput, match=r"contexts\.json can't be used"):
        project_settings.load_allowance(file.parent, world=None, project="p")


def test_mistakes_of_a_job_come_before_a_missing_project(herd: Herd, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("name: gpt\naccelerator: v4-9\nrun: 'true'\n")
    status, _, said = herd("run", "job.yaml")
    assert (status, said.count("\n")) == (2, 1)
    assert said.startswith("herd run: job.yaml:2: accelerator: unknown type v4-9")
    (tmp_path / "job.yaml").write_text("name: gpt\naccelerator: v4-8\nrun: 'true'\n")
    status, _, said = herd("run", "job.yaml")
    assert status == 2 and "job.yaml" not in said


# ---- a job on the command line -------------------------------------------------------------------


def said(file: str | None = None, folder: Path = Path(), **words: Any) -> JobSpec:
    page, _ = read_job_input(
        JobArguments(file=file, fields=words.pop("fields", {}), **words), folder
    )
    found = read_document(page)
    assert isinstance(found, JobSpec), found
    return found


def test_options_give_the_same_job_as_a_file(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(
        "name: gpt\naccelerator: v4-32\ntier: spot\nworkdir: .\nrun: python train.py\n"
        "copies: 3\nenv: {A: '1', B: x=y}\nsecrets: [KEY]\nretry: {failures: 9}\nmax_cost: 5\n"
    )
    spoken_ = said(
        fields={
            "name": ("gpt",),
            "accelerator": ("v4-32",),
            "tier": ("spot",),
            "copies": ("3",),
            "workdir": (".",),
        },
        command=("python", "train.py"),
        env=("A=1", "B=x=y"),
        secrets=("KEY",),
        settings=("retry.failures=9", "max_cost=5"),
    )
    assert spoken_ == said("job.yaml", tmp_path)


def test_options_override_the_file(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(
        "name: gpt\naccelerator: v4-32\nrun: a\nenv: {A: 1}\nsecrets: [K]\nmax_cost: 1\n"
    )
    found = said(
        "job.yaml",
        tmp_path,
        fields={"accelerator": ("v4-8", "v4-16")},
        command=("echo", "a b"),
        env=("B=2",),
        secrets=("L",),
        settings=("max_cost=", "setup=a: b", "zones=any"),
    )
    assert (found.accelerator, found.run) == (("v4-8", "v4-16"), "echo 'a b'")
    assert found.env == {"A": "1", "B": "2"}
    assert [one.name for one in found.secrets] == ["K", "L"]
    assert found.max_cost == float("inf")
    assert found.setup == ("a: b",)
    assert found.workdir == ""


def test_a_folder_is_shipped_only_on_request() -> None:
    fields = {"name": ("gpt",), "accelerator": ("v4-8",), "run": ("hostname",)}
    assert said(fields=fields).workdir == ""
    assert said(fields={**fields, "workdir": (".",)}).workdir == "."
    assert said(fields=fields, settings=("workdir=code",)).workdir == "code"


def test_words_of_a_command() -> None:
    assert shell_text(["python", "a b.py", "$HOME"]) == "python 'a b.py' '$HOME'"
    assert shell_text(["cd x && make"]) == "cd x && make"
    assert parse_setting("env.A=") == (("env", "A"), None)
    assert parse_setting("copies=3") == (("copies",), 3)
    assert parse_setting("labels.a=0.10") == (("labels", "a"), "0.10")
    for word in ("copies", "=3"):
        with pytest.raises(InvalidInput, match="write FIELD=VALUE"):
            parse_setting(word)
