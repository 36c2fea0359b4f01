"""Which file of the code a command needs, for every way to write one."""

from typing import Any

import pytest

from tpuherd.jobfile.read_job import JobSpec, read_fields
from tpuherd.jobfile.run_script import find_script, find_setup_files, shell_operator


def script(run: Any, **fields: Any) -> str:
    job = read_fields({"name": "gpt", "accelerator": "v4-8", "run": run, **fields})
    assert isinstance(job, JobSpec), job
    return find_script(job)


@pytest.mark.parametrize(
    ("run", "found"),
    [
        ("python3 train.py --lr 0.1", "train.py"),
        ("python3.11 -u -X dev -W error ./src/train.py", "src/train.py"),
        (["python3", "train.py"], "train.py"),
        ("set -e\nexport A=1; LR=1 sudo nice env B=2 python3 \\\n  train.py", "train.py"),
        ("bash -eu -o pipefail run.sh && true", "run.sh"),
        ("./run.sh", "run.sh"),
        ("python3 package/", "package"),
        ("python3 -u -m tpuherd_host.torch train.py --lr 1", "train.py"),
        ("~/venv/bin/python train.py", "train.py"),
        ("# note\npython3 train.py", "train.py"),
        # If it can't be known, no message is shown.
        ("hostname", ""),
        ("train.sh", ""),
        ("python3 -m train", ""),
        ("python3 -c 'print(1)'", ""),
        ("bash -lc 'python3 x.py'", ""),
        ("python3", ""),
        ("python3 - x.py", ""),
        ("python3 ~/train.py", ""),
        ("python3 /opt/train.py", ""),
        ("python3 ../train.py", ""),
        ("python3 $SCRIPT", ""),
        ("cd src && python3 train.py", "src/train.py"),
        ("cd 'a b' && exec python3 ../train.py", "train.py"),
        ("cd src; python3 train.py", ""),
        ("curl x > train.py; python3 train.py", ""),
        ("python3 'train.py", ""),
        ("LR=1", ""),
    ],
)
def test_the_script_of_a_command(run: Any, found: str) -> None:
    assert script(run) == found


@pytest.mark.parametrize(
    ("setup", "found"),
    [
        ("pip install -r requirements.txt", "train.py"),
        (["sudo apt-get install -y git", "python3 -m pip install jax"], "train.py"),
        ("git clone https://example.com/x.git .", ""),
        ("python3 make.py", ""),
        ("echo 'print(1)' > train.py", ""),
    ],
)
def test_a_script_that_setup_may_create_is_not_required(setup: Any, found: str) -> None:
    assert script("python3 train.py", setup=setup) == found


def test_a_script_of_the_startup_is_not_required() -> None:
    assert script("python3 x.py", metadata={"startup-script": "make x.py"}) == ""


@pytest.mark.parametrize(
    ("setup", "found"),
    [
        ("pip install -r requirements.txt", [(0, "requirements.txt")]),
        ("python3 -m pip install -c ./pins.txt -r req/a.txt", [(0, "pins.txt"), (0, "req/a.txt")]),
        (["pip install uv", "uv pip install -r a.txt"], [(1, "a.txt")]),
        (["bash get.sh", "pip install -r a.txt"], [(0, "get.sh")]),
        ("pip install -r https://example.com/a.txt -c ~/b.txt", []),
        ("conda install -c conda-forge jax", []),
        ("curl -O x/a.txt && pip install -r a.txt", []),
        ("cd sub && pip install -r a.txt", []),
        ("bash -c 'echo 1'", []),
        ("make", []),
    ],
)
def test_files_that_setup_names_and_no_step_before_could_make(
    setup: Any, found: list[tuple[int, str]]
) -> None:
    job = read_fields({"name": "gpt", "accelerator": "v4-8", "run": "x", "setup": setup})
    assert isinstance(job, JobSpec), job
    assert find_setup_files(job) == found


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("cd", "sub", "&&", "python3", "train.py"), "&&"),
        (("python3", "train.py", "2>&1"), "2>&1"),
        (("python3", "train.py", "|", "tee", "log"), "|"),
        (("python3", "train.py", "--text", "a && b"), ""),
        (("test", "a", "<", "b"), ""),
        (("/usr/bin/find", ".", "-exec", "ls", ";"), ""),
        (("bash", "-c", "a && b"), ""),
    ],
)
def test_words_that_only_a_shell_understands(words: tuple[str, ...], found: str) -> None:
    assert shell_operator(words) == found
