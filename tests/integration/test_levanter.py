"""Levanter's command lines in a world: one run over preemptions, and exact names of nodes."""

import re
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conformance.world import HERD, until
from tests.integration.engines import Owner, owner

ZONE = "europe-west4-a"
NAME = "my-tpu-1"
TRAIN = """\
import os, sys, time
print("run", os.environ["RUN_ID"], sys.argv[1:], len(os.environ["WANDB_API_KEY"]), flush=True)
while not os.path.exists(os.path.expanduser("~/enough")):
    time.sleep(0.1)
"""

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def user() -> Iterator[Owner]:
    with owner() as found:
        yield found
        found.herd("down", "--all", "--yes", seconds=120)


@pytest.fixture(scope="module")
def clone(user: Owner) -> Path:
    """What the user has of Levanter; hosts get their own by the user's set-up."""
    folder = user.home / "levanter"
    (folder / "src").mkdir(parents=True)
    script = f"mkdir -p levanter; cat >levanter/train.py <<'EOF'\n{TRAIN}EOF\necho set-up \"$@\"\n"
    (folder / "my-setup.sh").write_text(script)
    return folder


def node_names(user: Owner) -> list[str]:
    return [name.rpartition("/")[2] for name in user.all_there_is() if "/nodes/" in name]


def test_a_babysat_run_keeps_its_id_and_its_nodes_name(user: Owner, clone: Path) -> None:
    words = (
        "babysit", NAME, "-z", ZONE, "-t", "v3-8", "--preemptible", "-s", "my-setup.sh",
        "--branch", "main", "--repo", "https://example.com/x", "--",
        "WANDB_API_KEY=s3cret", "python3", "levanter/train.py", "--name", "it's a run",
    )  # fmt: skip
    with user.begun("levanter", *words, cwd=clone) as process:
        user.happened("attempt.started")
        assert node_names(user) == [NAME]
        sudden = {"target": NAME, "notice_s": 0, "flag": False, "acpi": False}
        user.world.ask("POST", "sim/v1/weather/preempt", sudden)
        user.happened("attempt.started", many=2)
        assert node_names(user) == [NAME]
        done = user.herd("exec", NAME, "--", "touch", "enough")
        assert done.returncode == 0, done.stderr
        said, notes = process.communicate(timeout=120)
    assert process.returncode == 0, notes
    found = re.findall(r"run ([a-z0-9]{8}) \['--name', \"it's a run\"\] 6\n", said)
    assert len(found) == 2 and len(set(found)) == 1, said + notes
    assert "set-up --branch main --repo https://example.com/x" in said
    assert f"RUN_ID is not set, so it is {found[0]}" in notes
    until(lambda: user.all_there_is() == [], "the node to be deleted", seconds=60)
    assert "s3cret" not in str(user.events()) + said + notes


def test_a_node_of_another_owner_is_refused_by_name(
    user: Owner, clone: Path, tmp_path: Path
) -> None:
    made = user.herd("levanter", "spin-up", "levanter1", "-z", ZONE, "-t", "v3-8",
                     "-s", "my-setup.sh", "-b", "main", "-r", "https://example.com/x",
                     cwd=clone, seconds=120)  # fmt: skip
    assert made.returncode == 0, made.stderr
    assert re.fullmatch(r"[0-9.]+\n", made.stdout), made.stdout
    other = replace(user, home=tmp_path)
    words = ("-z", ZONE, "-t", "v3-8", "-s", "my-setup.sh", "-b", "main", "-r", "x", "--", "ls")
    done = other.herd("levanter", "babysit", "levanter1", *words, cwd=clone)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        f"herd levanter babysit: node_name: a node levanter1 already exists in {ZONE}, and it"
        " belongs to another herd user: choose another name"
    )
    other.leave_all()
    ran = user.herd("levanter", "run", "levanter1", "--", "RUN_ID=mine", "sh", "-c",
                    "echo $RUN_ID in $PWD", cwd=clone, seconds=60)  # fmt: skip
    assert (ran.returncode, "mine in /home/" in ran.stdout) == (0, True), ran.stderr + ran.stdout
    assert node_names(user) == ["levanter1"], "the node is kept"


def test_launch_takes_its_defaults_from_the_config(user: Owner, clone: Path) -> None:
    (clone / ".levanter.yaml").write_text(f"zone: {ZONE}\ntpu: from-file\nenv: {{A: 0.10}}\n")
    words = ("launch", "--tpu_type", "v3-8", "--dry-run", "--", "python", "x")
    done = user.herd("levanter", *words, cwd=clone)
    assert done.returncode == 0, done.stderr
    assert re.search(rf"v3-8 +{ZONE} +on-demand", done.stdout)
    assert "from-file: " in done.stdout
    wrong = user.herd("levanter", "launch", "--project", "theirs", *words[1:], cwd=clone)
    assert wrong.returncode == 2
    assert "the project is demo, not theirs" in wrong.stderr
    (clone / ".levanter.yaml").write_text("zone: a\nzon: b\n")
    wrong = user.herd("levanter", *words, cwd=clone)
    assert (wrong.returncode, wrong.stderr) == (
        2, "herd levanter launch: .levanter.yaml:2: zon: unknown key: did you mean zone?\n",
    )  # fmt: skip


def test_outside_of_a_clone_it_says_what_to_give(user: Owner, tmp_path: Path) -> None:
    words = ("levanter", "spin-up", "new", "-t", "v3-8")
    done = user.herd(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert "run it in your clone of Levanter; or give --repo and --branch" in done.stderr
    done = user.herd(*words, "-s", "none.sh", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (
        2, "herd levanter spin-up: none.sh is not a file; herd's own set-ups are setup-tpu-vm.sh"
        " and setup-tpu-vm-nfs.sh\n",
    )  # fmt: skip
    done = user.herd(*words, "-s", "setup-tpu-vm-nfs.sh", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (
        2, "herd levanter spin-up: set NFS_SERVER in your shell, such as"
        " NFS_SERVER=10.0.0.2:/share\n",
    )  # fmt: skip


def test_the_shells_file_server_is_mounted_by_the_job(user: Owner, clone: Path) -> None:
    words = ("levanter", "spin-up", "new", "-t", "v3-8", "-s", "setup-tpu-vm-nfs.sh", "-b", "main",
             "-r", "https://example.com/x", "--dry-run")  # fmt: skip

    def spin_up(server: str) -> subprocess.CompletedProcess[str]:
        env = {**user.env, "NFS_SERVER": server}
        return subprocess.run([HERD, *words], env=env, cwd=clone, capture_output=True, text=True)

    wrong = spin_up("10.0.0.2:share")
    assert (wrong.returncode, wrong.stderr) == (
        2, "herd levanter spin-up: nfs./files: '10.0.0.2:share' is not a server and its path, such"
        " as 10.0.0.2:/share, or w0 for a folder of worker 0\n",
    )  # fmt: skip
    assert spin_up("10.0.0.2:/share").returncode == 0
