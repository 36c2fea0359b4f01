"""What a typed script stands for: name, folder, command and packages, each said in a sentence."""

import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpuherd.jobfile.fields import NAME_MAX
from tpuherd.jobfile.read_job import JobSpec, read_fields
from tpuherd.jobfile.run_script import find_script
from tpuherd.jobfile.typed_script import ScriptFacts, TypedJob, describe_node, describe_script

PLAIN: frozenset[str] = frozenset()


def describe(
    script: str = "/home/ann/mnist/train.py",
    *arguments: str,
    stands: str = "/home/ann/mnist",
    root: str = "/home/ann/mnist",
    stated: frozenset[str] = PLAIN,
    install: bool = True,
    **more: Any,
) -> TypedJob:
    facts = ScriptFacts(
        script=script, stands=stands, root=root, reason="the git repository", **more
    )
    return describe_script(facts, arguments, stated, install=install)


def test_the_usual_sentence() -> None:
    typed = describe("/home/ann/mnist/train.py", "--lr", "0.1", "--note", "two words")
    run = "python3 train.py --lr 0.1 --note 'two words'"
    assert typed.document == {"name": "mnist-train", "workdir": ".", "run": run}
    assert typed.assumptions == (
        "is called mnist-train, after its folder and file (--name)",
        "ships /home/ann/mnist, the git repository (--workdir)",
        f"runs in /home/ann/mnist: {run}",
    )
    assert typed.guessed_name


@pytest.mark.parametrize(
    ("stands", "workdir", "run"),
    [
        ("/p", ".", "python3 exp/a/train.py"),
        ("/p/exp", "..", "cd exp && exec python3 a/train.py"),
        ("/p/exp/a", "../..", "cd exp/a && exec python3 train.py"),
        ("/p/my data", "..", "cd 'my data' && exec python3 ../exp/a/train.py"),
        ("/", "p", "python3 exp/a/train.py"),  # outside of what is shipped
        ("/q/r", "../../p", "python3 exp/a/train.py"),
    ],
)
def test_the_command_runs_where_the_user_stands(stands: str, workdir: str, run: str) -> None:
    typed = describe("/p/exp/a/train.py", stands=stands, root="/p")
    assert (typed.document["workdir"], typed.document["run"]) == (workdir, run)
    job = read_fields({**typed.document, "accelerator": "v4-8"})
    assert isinstance(job, JobSpec)
    assert find_script(job) == "exp/a/train.py"


@pytest.mark.parametrize(
    ("script", "starts_itself", "run"),
    [
        ("go.sh", True, "./go.sh"),
        ("go.sh", False, "bash go.sh"),
        ("bin/go.sh", True, "bin/go.sh"),
        ("tool", True, "./tool"),
        ("train.py", True, "python3 train.py"),
        ("OLD.PY", False, "python3 OLD.PY"),
        ("-x.py", False, "python3 ./-x.py"),
        ("-x.sh", False, "bash ./-x.sh"),
        ("my run.sh", True, "'./my run.sh'"),
    ],
)
def test_how_a_file_is_run(script: str, starts_itself: bool, run: str) -> None:
    typed = describe(f"/p/{script}", stands="/p", root="/p", starts_itself=starts_itself)
    assert typed.document["run"] == run


@pytest.mark.parametrize(
    ("root", "script", "name"),
    [
        ("/p/mnist", "train-2.py", "mnist-train2"),
        ("/p/mnist", "train-2-3.py", "mnist-train23"),
        ("/p/mnist", "exp/Train_v2.py", "mnist-exp-train-v2"),
        ("/p/2024", "01.py", "job202401"),
        ("/", "train.py", "train"),
        ("/p/日本", "訓練.py", "job"),
        ("/p/.hidden", "a.b.py", "hidden-a-b"),
        (
            "/p/a-folder-of-a-long-name",
            "deep/er/and/deeper/train.py",
            "a-folder-of-a-long-name-train",
        ),
        ("/p/" + "f" * 50, "train.py", "f" * 30 + "-train"),
    ],
)
def test_names_are_made_legal(root: str, script: str, name: str) -> None:
    path = f"{root.rstrip('/')}/{script}"
    typed = describe(path, stands=root, root=root)
    assert typed.document["name"] == name
    assert f"is called {name}, as " in typed.assumptions[0] or "after its" in typed.assumptions[0]


@given(st.text(string.printable + "äß日", min_size=1), st.text(string.printable, min_size=1))
def test_every_name_is_one_that_a_job_may_have(folder: str, stem: str) -> None:
    folder, stem = (text.replace("/", "") or "x" for text in (folder, stem))
    name = describe(f"/{folder}/{stem}.py", stands=f"/{folder}", root=f"/{folder}").document["name"]
    assert len(name) <= NAME_MAX
    found = read_fields({"name": name, "accelerator": "v4-8", "run": "x"})
    assert isinstance(found, JobSpec), (name, found)


@pytest.mark.parametrize(
    ("packages", "fields"),
    [
        ({}, {}),
        ({"requirements.txt": PLAIN}, {"requirements": "requirements.txt"}),
        ({"requirements.txt": PLAIN, "exp/requirements.txt": PLAIN},
         {"requirements": "exp/requirements.txt"}),
        ({"pyproject.toml": frozenset({"tool"})}, {}),  # settings of ruff
        ({"pyproject.toml": frozenset({"project"})}, {"requirements": "pyproject.toml"}),
        ({"pyproject.toml": frozenset({"project"}), "uv.lock": PLAIN},
         {"requirements": "uv.lock"}),
        ({"pyproject.toml": frozenset({"project", "build-system"})},
         {"requirements": "pyproject.toml", "setup": "pip install --no-deps -e ."}),
        ({"exp/pyproject.toml": frozenset({"project", "build-system"})},
         {"requirements": "exp/pyproject.toml", "setup": "pip install --no-deps -e ./exp"}),
        ({"pyproject.toml": frozenset({"project"}), "requirements.txt": PLAIN},
         {"requirements": "requirements.txt"}),
    ],
)  # fmt: skip
def test_what_the_folder_says_it_needs_is_installed(
    packages: dict[str, frozenset[str]], fields: dict[str, str]
) -> None:
    place: Any = {"script": "/p/exp/train.py", "stands": "/p", "root": "/p", "packages": packages}
    typed = describe(**place)
    document = dict(typed.document)
    assert {
        name: document[name] for name in ("requirements", "setup") if name in document
    } == fields
    assert any("installs" in one for one in typed.assumptions) == bool(fields)
    for kept in (describe(**place, install=False), describe(**place, stated=frozenset({"image"}))):
        assert not {"requirements", "setup"} & kept.document.keys()


def test_what_the_user_states_is_not_assumed() -> None:
    packages = {"pyproject.toml": frozenset({"project", "build-system"})}
    typed = describe(stated=frozenset({"name", "workdir", "setup"}), packages=packages)
    assert typed.document.keys() == {"requirements", "run"}
    assert not typed.guessed_name
    assert not any("is called" in one for one in typed.assumptions)


def test_a_type_alone_stands_for_a_node() -> None:
    assert describe_node("v4-8", has_name=False).document == {"name": "dev", "accelerator": "v4-8"}
    named = describe_node("v4-8", has_name=True)
    assert (named.document, named.assumptions) == ({"accelerator": "v4-8"}, ())
