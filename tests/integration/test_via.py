"""Jobs whose engine is on another machine: commands go there."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from tests.conformance.world import started, until
from tests.integration.engines import Owner
from tests.integration.second_machine import Machine, second_machine
from tests.integration.slurm_cluster import free_ports
from tests.integration.users import Terminal, line
from tpuherd.cli.via_layout import ROOT
from tpuherd.cli.via_upload import LITTLE

pytestmark = pytest.mark.real


@dataclass(frozen=True)
class Traveller(Owner):
    """A user whose context is a world; nothing else says which cloud is meant."""

    ssh: str = ""

    @property
    def env(self) -> dict[str, str]:
        plain = {name: value for name, value in super().env.items() if name != "HERD_WORLD"}
        return {**plain, "HERD_SSH": self.ssh, "USER": "ada"}

    def says(self, *words: str | Path) -> str:
        """What a command prints."""
        done = self.herd(*words)
        assert done.returncode == 0, done.stderr
        return str(done.stdout)


@pytest.fixture
def machine() -> Iterator[Machine]:
    with second_machine() as found:
        yield found


@pytest.fixture
def user(machine: Machine) -> Iterator[Traveller]:
    with started("--time-scale", "60") as world:
        found = Traveller(world.home, world, machine.ssh)
        found.says("context", "add", "lab", "--world", world.folder)
        machine.furnish()
        yield found
        found.leave_all()  # there, or here
        found.herd("context", "remove", "lab")
        found.leave_all()
        for line in found.runtime.glob("v-????????"):
            words = [*machine.ssh.split(), "-o", f"ControlPath={line}", "-O", "exit", "vm"]
            subprocess.run(words, capture_output=True, check=False)


def there(user: Traveller, machine: Machine) -> Traveller:
    """The same user's files on the other machine."""
    folder = next((machine.home / ROOT).glob("lab-*"))
    (folder / ".local").mkdir(exist_ok=True)
    if not (folder / ".local/state").exists():
        (folder / ".local/state").symlink_to(folder / "state")
    return Traveller(folder, user.world, machine.ssh)


def test_commands_run_there_with_what_they_need(user: Traveller, machine: Machine) -> None:
    user.says("context", "add", "lab", "--via", "vm")
    folder = user.home / "code"
    folder.mkdir()
    (folder / "train.py").write_text("print('words')")
    (folder / "weights").write_bytes(os.urandom(LITTLE + 1))  # so much is asked for first
    token = user.home / "token"
    token.write_text("k1")
    (folder / "job.yaml").write_text(json.dumps({
        "name": "gpt", "accelerator": "v4-8", "workdir": ".",
        "secrets": {"TOKEN": {"file": str(token)}}, "run": 'python3 train.py; echo "has-$TOKEN"',
    }))  # fmt: skip
    done = user.herd("run", folder / "job.yaml", "--follow", "--yes", seconds=120)
    assert done.returncode == 0, done.stderr
    assert "words" in done.stdout
    assert "has-k1" in done.stdout
    assert not user.store_folder.exists()
    far = there(user, machine)
    assert [one.facts["verdict"] for one in far.events("attempt.ended")] == ["success"]
    assert [one["job"] for one in json.loads(user.says("ls", "--json"))] == ["gpt"]
    assert list((far.home / "carried").iterdir()) == []  # secrets are where they belong
    (folder / "train.py").write_text("print('other words')")
    assert "other words" in user.says("run", folder / "job.yaml", "--follow", "--yes")
    missing = user.herd(
        "run", "--name", "x", "--accelerator", "v4-8", "--secret", "NO", "--", "x", cwd=folder
    )
    assert missing.returncode == 2
    assert "the variable NO is not set in your environment" in missing.stderr


def test_code_that_uses_wandb_gets_the_key_of_the_users_machine(
    user: Traveller, machine: Machine
) -> None:
    user.says("context", "add", "lab", "--via", "vm")
    folder = user.home / "code"
    folder.mkdir()
    (folder / "wandb.py").write_text("")
    (folder / "train.py").write_text(
        "import os, wandb\nprint('key of', len(os.environ['WANDB_' + 'API_KEY']))\n"
    )
    command = ("python3", "train.py")
    words = ("run", "--name", "gpt", "--accelerator", "v4-8", "--workdir", ".", "--yes")
    refused = user.herd(*words, "--detach", "--", *command, cwd=folder, seconds=120)
    assert refused.returncode == 2
    assert "train.py:1 uses wandb, and the variable WANDB_API_KEY is not set" in refused.stderr
    dry = user.herd(*words, "--dry-run", "--", *command, cwd=folder, seconds=120)
    assert (dry.returncode, "`wandb login` here" in dry.stderr) == (2, True)
    (user.home / ".netrc").write_text("machine api.wandb.ai login user password k1k2k3\n")
    done = user.herd(*words, "--follow", "--", *command, cwd=folder, seconds=120)
    assert done.returncode == 0, done.stderr
    assert "herd: train.py:1 uses wandb: the job gets WANDB_API_KEY from ~/.netrc" in done.stderr
    assert "key of 6" in done.stdout
    far = there(user, machine)
    assert list((far.home / "carried").iterdir()) == []


def test_a_typed_script_goes_there_as_a_job(user: Traveller, machine: Machine) -> None:
    user.says("context", "add", "lab", "--via", "vm")
    folder = user.home / "mnist"
    folder.mkdir()
    (folder / "train.py").write_text("import sys, time\nprint('got', sys.argv[1:], flush=True)\n"
                                     "time.sleep(600)\n")  # fmt: skip
    sentence = ("run", "train.py", "--accelerator", "v4-8", "--save", "job.yaml", "--detach", "--")
    done = user.herd(*sentence, "--lr", "0.1", cwd=folder, seconds=120)
    assert done.returncode == 0, done.stderr
    assert "runs in" in done.stderr
    assert "Submitted mnist-train" in done.stderr
    assert "run: python3 train.py --lr 0.1\n" in (folder / "job.yaml").read_text()
    until(lambda: "got ['--lr', '0.1']" in user.herd("logs").stdout, "its output", seconds=120)
    other = user.herd(*sentence[:4], "--detach", "--yes", cwd=folder)
    assert other.returncode == 2
    assert other.stderr.endswith("; --name NAME starts another job beside it\n")
    missing = user.herd("run", "train.py", cwd=folder)
    assert (missing.returncode, "say which TPU" in missing.stderr) == (2, True)


@pytest.mark.needs("ssh")
def test_names_for_ssh_are_those_of_existing_nodes(user: Traveller) -> None:
    user.says("context", "add", "lab", "--via", "vm")
    user.says("up", "--name", "dev", "--accelerator", "v4-8", "--yes")
    until(user.all_there_is, "a node", seconds=60)
    until(lambda: "dev-0-w0" in user.says("ssh", "--config"), "its host", seconds=60)
    assert not user.store_folder.exists()
    words = ["ssh", "-F", str(user.home / ".ssh/config"), "dev-0", "whoami"]

    def answer() -> bool:
        return subprocess.run(words, env=user.env, capture_output=True).returncode == 0

    until(answer, "the host", seconds=60)


def test_a_map_takes_its_items_along(user: Traveller) -> None:
    user.says("context", "add", "lab", "--via", "vm")
    folder = user.home / "evals"
    folder.mkdir()
    (folder / "job.yaml").write_text('{"name": "evals", "accelerator": "v4-8"}')
    (folder / "items.txt").write_text("a b\nc\n")
    words = ("map", "job.yaml", "items.txt", "--yes", "--json", "--", "test", "-n")
    done = user.herd(*words, cwd=folder, seconds=120)
    assert done.returncode == 0, done.stderr
    items = json.loads(done.stdout)["items"]
    assert [(one["text"], one["exit"]) for one in items] == [("a b", 0), ("c", 0)]
    assert user.says("map", "status", "evals").startswith("evals: 2 of 2 items have ended")
    piped = user.herd(
        "map", "evals", "-", "--yes", "--", "test", "d", "=", input="e\n", seconds=120
    )
    assert piped.returncode == 1, piped.stderr
    missing = user.herd("map", "job.yaml", "none.txt", "--", "true", cwd=folder)
    assert (missing.returncode, "none.txt can't be read" in missing.stderr) == (2, True)


def test_signals_and_exit_statuses_pass_through(user: Traveller) -> None:
    user.says("context", "add", "lab", "--via", "vm")
    user.says("up", "--name", "dev", "--accelerator", "v4-8", "--set", "workdir=")
    assert user.herd("wait", "dev", seconds=90).returncode == 0
    done = user.herd("exec", "dev", "-i", "--", "sh", "-c", "cat; exit 3", input="piped")
    assert (done.returncode, done.stdout.strip()) == (3, "piped"), done.stderr
    with user.begun("exec", "dev", "--", "sh", "-c", "echo up; sleep 600") as one:
        assert one.stdout is not None
        assert "up" in one.stdout.readline()
        one.send_signal(signal.SIGINT)
        assert one.wait(60) == 130
    listed = json.loads(user.says("exec", "dev", "--list", "--json"))
    assert not [it for it in listed if it["phase"] == "running"]  # it was stopped on the host
    window = Terminal(user, "ssh", "dev/w0")
    window.type(b"echo is-$((1+1)); stty size; exit 9\r")
    window.expect(b"is-2")
    window.expect(b"24 80")
    assert window.end() == 9


def test_running_jobs_are_adopted_there(user: Traveller, machine: Machine) -> None:
    """As the page "Stop here, adopt there" says of `--via`."""
    user.job("gpt", "until [ -e ~/finish ]; do sleep 0.2; done", accelerator="v4-8")
    attempt = user.happened("attempt.started").facts["attempt"]
    user.says("engine", "stop")
    user.leave()
    (user.home / ".local/state/tpuherd").rename(user.home / "before")
    user.says("context", "add", "lab", "--via", "vm")
    user.says("ls")
    far = there(user, machine)
    far.happened("bid.adopted")
    until(lambda: "running" in user.says("ls"), "the job to run there", seconds=60)
    known = far.events("attempt.launched", "attempt.started")
    assert {one.facts["attempt"] for one in known} <= {attempt}
    user.says("down", "--all", "--yes")
    assert user.all_there_is() == []


def test_the_page_is_served_there_and_opened_here(user: Traveller) -> None:
    user.says("context", "add", "lab", "--via", "vm")
    # There is here in this test: two addresses, so that both ends can have the same port.
    [chosen] = free_ports(1)  # the usual one may be taken meanwhile by a test beside this
    with user.begun("ui", "--host", "127.0.0.2", "--port", str(chosen)) as serving:
        address = line(serving).split()[1]
        port, token = int(address.split(":")[2].partition("/")[0]), address.partition("token=")[2]
        request = Request(
            f"http://127.0.0.1:{port}/api/overview", headers={"Authorization": f"Bearer {token}"}
        )
        with urlopen(request, timeout=60) as answer:
            assert json.loads(answer.read())["world"] is True
        serving.send_signal(signal.SIGINT)
        assert serving.wait(60) == 130
