"""What is typed without a job file or a name: what it is taken for, and what is refused."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.simulated.fixed_world import JOBS, FixedWorld, open_fixed_world
from tpuherd.jobs import script_folder

NEAR = ("src/tpuherd/cli/*.py", "src/tpuherd/jobfile/typed_*.py")


@pytest.fixture
def fixed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[FixedWorld]:
    with open_fixed_world(tmp_path, monkeypatch, capfd) as world:
        yield world


def keep_jobs(fixed: FixedWorld, *kept: str) -> None:
    store = fixed.store()
    for job in JOBS.keys() - set(kept):
        store.remove_job(job)
    store.close()


@pytest.mark.parametrize("command", ["logs", "status", "why"])
def test_the_only_job_needs_no_name(command: str, fixed: FixedWorld) -> None:
    keep_jobs(fixed, "gpt")
    named = fixed.run(command, "gpt")
    status, out, err = fixed.run(command)
    assert (status, out) == named[:2]
    assert err == f"herd {command}: gpt, the only job there is\n{named[2]}"


def test_wait_and_ssh_take_the_only_job(fixed: FixedWorld) -> None:
    keep_jobs(fixed, "fine")
    assert fixed.run("wait") == (
        0, "", "herd wait: fine, the only job there is\nherd wait: fine-0 is done\n",
    )  # fmt: skip
    status, _, err = fixed.run("ssh")
    first, second = err.splitlines()
    assert first == "herd ssh: fine, the only job there is"
    assert status and second.startswith("herd ssh: fine is finished and its node is deleted")


@pytest.mark.parametrize("command", ["logs", "status", "why", "wait", "ssh"])
def test_among_several_jobs_none_is_guessed(command: str, fixed: FixedWorld) -> None:
    keep_jobs(fixed, "gpt", "fine")
    status, out, err = fixed.run(command)
    assert (status, out) == (2, "")
    assert err == f"herd {command}: say which job: fine,gpt; such as: herd {command} fine\n"
    keep_jobs(fixed)
    status, out, err = fixed.run(command)
    assert (status, out) == (4, "")
    assert err == f"herd {command}: no jobs; start one with `herd run`\n"


def test_exec_always_names_its_target(fixed: FixedWorld) -> None:
    keep_jobs(fixed, "gpt")
    status, _, err = fixed.run("exec", "ls -l")
    assert status == 2
    assert "give a target and a command" in err


# ---- scripts -------------------------------------------------------------------------------------


TYPED = ("run", "train.py", "--accelerator", "v4-8", "--zones", "us-central2-b")


@pytest.fixture
def folder(fixed: FixedWorld, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a script in the home, in which the user stands."""
    folder = fixed.home / "mnist"
    folder.mkdir()
    (folder / "train.py").write_text("print('step 1')\n")
    monkeypatch.chdir(folder)
    return folder


def notes(err: str) -> list[str]:
    return [line.removeprefix("herd run: ") for line in err.splitlines()]


def test_a_dry_run_shows_the_job_file_of_a_sentence(fixed: FixedWorld, folder: Path) -> None:
    (folder / "requirements.txt").write_text("numpy\n")
    before = fixed.kept()
    status, out, err = fixed.run(*TYPED, "--dry-run", "--", "--lr", "0.1")
    assert status == 0, err
    page, _, table = out.partition("\n\n")
    assert page == (
        "# the same as a job file (--save FILE):\nname: mnist-train\naccelerator: v4-8\n"
        "zones: us-central2-b\nworkdir: .\nrequirements: requirements.txt\n"
        "run: python3 train.py --lr 0.1"
    )
    assert table.startswith("TYPE")
    assert notes(err) == [
        "is called mnist-train, after its folder and file (--name)",
        "ships HOME/mnist, the script's folder: 2 files, 22 B (--workdir)",
        "installs requirements.txt (--no-requirements)",
        "runs in HOME/mnist: python3 train.py --lr 0.1",
    ]
    assert fixed.kept() == before
    _, out, _ = fixed.run(*TYPED, "--dry-run", "--no-requirements")
    assert "requirements" not in out


def test_the_saved_job_file_stands_for_the_same(
    fixed: FixedWorld, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / ".git").mkdir()  # what is above the script
    (folder / "exp" / "jobs").mkdir(parents=True)
    (folder / "exp" / "a-2.py").write_text("import sys\n")
    monkeypatch.chdir(folder / "exp")
    (folder / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    for name in ("objects", "refs"):
        (folder / ".git" / name).mkdir()
    words = ("a-2.py", *TYPED[2:])
    saved = ("--save", "jobs/job.yaml", "-e", "LR=0.10", "--dry-run", "--json")
    status, typed, err = fixed.run("run", *words, *saved, "--", "x y")
    assert status == 0, err
    text = (folder / "exp" / "jobs" / "job.yaml").read_text()
    assert "workdir: ../..\nrun: cd exp && exec python3 a-2.py 'x y'\n" in text
    status, read, err = fixed.run("run", "jobs/job.yaml", "--dry-run", "--json")
    assert status == 0, err
    one, two = (json.loads(out)["job"] for out in (typed, read))
    assert one.pop("workdir") == ".."
    assert two.pop("workdir") == "../.."
    assert one == two
    status, _, err = fixed.run("run", *words, "--save", "a-2.py", "--dry-run")
    assert (status, notes(err)[-1]) == (2, "a-2.py exists already; choose another name for --save")


def test_the_same_sentence_attaches_and_another_one_replaces_nothing(
    fixed: FixedWorld, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = (*TYPED, "--", "--lr", "0.1")
    status, _, err = fixed.run(*words)
    assert status == 0, err
    assert "Submitted mnist-train: v4-8 spot in us-central2-b" in err
    kept = fixed.kept()
    status, _, err = fixed.run(*words)
    assert status == 0
    assert "Attached to mnist-train: v4-8" in err
    monkeypatch.chdir(folder.parent)  # the same script, seen from elsewhere
    status, _, err = fixed.run("run", "mnist/train.py", *words[2:])
    assert (status, "Attached to mnist-train: v4-8" in err) == (0, True), err
    monkeypatch.chdir(folder)
    for other in ((*TYPED, "--", "--lr", "0.2"), (*TYPED, "--yes", "--", "--lr", "0.2")):
        status, _, err = fixed.run(*other)
        assert status == 2
        assert "  run: python3 train.py --lr 0.1 → python3 train.py --lr 0.2\n" in err
        assert err.endswith("; --name NAME starts another job beside it\n")
    (folder / "train.py").write_text("print('step 2')\n")
    status, _, err = fixed.run(*words)
    assert (status, "\n  code: " in err) == (2, True)
    assert fixed.kept() == kept
    status, _, err = fixed.run(*TYPED, "--name", "mnist-train", "--yes")
    assert (status, "Changed mnist-train" in err) == (0, True)  # named by the user


@pytest.mark.parametrize("large", ["home", "git at home", "files", "bytes"])
def test_a_large_folder_is_shipped_only_after_a_question(
    large: str, fixed: FixedWorld, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = "HOME would be shipped, your home folder"
    if large == "home":
        (fixed.home / "train.py").write_text("")
        monkeypatch.chdir(fixed.home)
    elif large == "git at home":
        (fixed.home / ".git").mkdir()
    elif large == "files":
        monkeypatch.setattr(script_folder, "FILES_MAX", 20)
        (folder / "data").mkdir()
        for number in range(20):
            (folder / "data" / str(number)).touch()
        expected = "more than 20 files of HOME/mnist would be shipped, most of them in data"
    else:
        with (folder / "weights").open("wb") as file:
            file.truncate(script_folder.BYTES_MAX)
        expected = "more than 200 MB of HOME/mnist would be shipped, most of them in weights"
    before = fixed.kept()
    for words in (TYPED, (*TYPED, "--yes")):  # --yes agrees to what was typed only
        status, _, err = fixed.run(*words)
        assert status == 2
        assert notes(err)[-1] == (
            f"{expected}; give the script a folder of its own, leave files out by .herdignore, or"
            " name the folder to ship: --workdir FOLDER"
        )
    assert fixed.kept() == before
    status, _, err = fixed.run(*TYPED, "--workdir", ".", "--dry-run")
    assert (status, "would be shipped" in err) == (0, False)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("tran.py", "tran.py does not exist; did you mean train.py?"),
        ("train.py", "say which TPU, such as v2-8, v4-8 or v5litepod-8 (`herd types` lists all);"
                     " herd run train.py --accelerator v4-8"),
        ("nb.ipynb", "nb.ipynb is a notebook; make a script of it: jupyter nbconvert --to script"
                     " nb.ipynb"),
        ("tool", "tool is not executable; chmod +x tool"),
        ("train.py --lr 0.1", "no such option '--lr'; arguments of a script go after --: herd run"
                              " train.py … -- ARGUMENTS"),
        ("python3 train.py", "got unexpected extra argument (train.py); arguments of a script go"
                             " after --: herd run train.py … -- ARGUMENTS"),
        ("train.py --repo x.git", "a script is shipped with its folder, not from --repo; to run a"
                                  " script of a repository: herd run --name NAME --repo URL … --"
                                  " COMMAND"),
        ("train.py --workdir ..", "say which TPU"),
        ("train.py --set workdir=sub", "HOME/mnist/train.py is not in workdir sub"),
        ("train.py --workdir sub", "HOME/mnist/train.py is not in workdir sub"),
        ("job.yaml --no-requirements", "--no-requirements is for a script: herd run train.py"
                                       " --no-requirements …"),
        ("train.py --accelerator v4-8 --save no/job.yaml", "no/job.yaml can't be written: No such"
                                                           " file or directory"),
    ],
)  # fmt: skip
def test_mistakes_are_answered(words: str, sentence: str, fixed: FixedWorld, folder: Path) -> None:
    (folder / "nb.ipynb").write_text("{}")
    (folder / "tool").write_text("#!/bin/sh\n")
    (folder / "sub").mkdir()
    status, out, err = fixed.run("run", *words.split())
    assert (status, out) == (2, "")
    assert notes(err)[-1].startswith(sentence)


def test_without_a_type_the_grants_are_named(fixed: FixedWorld, folder: Path) -> None:
    words = ("--zone", "us-central2-b", "--type", "v4", "--tier", "spot", "--chips", "32")
    assert fixed.run("context", "grant", *words)[0] == 0
    status, _, err = fixed.run("run", "train.py")
    assert (status, err) == (
        2, "herd run: say which TPU: your grants have v4-8, v4-64; herd run train.py --accelerator"
           " v4-8\n",
    )  # fmt: skip


def test_a_type_is_enough_for_a_node(fixed: FixedWorld) -> None:
    keep_jobs(fixed)
    status, _, err = fixed.run("up", "v4-8")
    assert (status, err.splitlines()[0]) == (0, "herd up: is called dev (--name)")
    assert err.splitlines()[1].startswith("Submitted dev: v4-8")
    status, _, err = fixed.run("up", "v4-16", "--yes")
    assert status == 2
    assert err.endswith("; --name NAME starts another job beside it\n")
    status, _, err = fixed.run("up", "v4-8", "--accelerator", "v4-16")
    assert (status, err) == (
        2, "herd up: v4-8 and --accelerator say the type twice: omit one\n",
    )  # fmt: skip
    status, _, err = fixed.run("up", "v4-9")
    assert (status, err) == (
        2, "herd up: accelerator: unknown type v4-9: did you mean v4-8 or v4-16?\n",
    )  # fmt: skip
