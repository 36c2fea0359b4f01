"""The options of Levanter's scripts become a job."""

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.unit.test_command_line import understand
from tpuherd.cli import main as command_line
from tpuherd.cli import via_client
from tpuherd.cli.levanter import NO_IMAGE
from tpuherd.cli.levanter_jobs import LaunchOptions, RunOnNode, SpinUpOptions
from tpuherd.compat import levanter
from tpuherd.compat.levanter import CodeAndSetup, Ending, NodeOptions, RemoteCommand
from tpuherd.compat.levanter_config import LevanterConfig, parse_config
from tpuherd.errors import InvalidInput
from tpuherd.jobfile.read_job import JobSpec, read_fields
from tpuherd.settings.contexts_file import edit_contexts
from tpuherd.settings.folders import resolve_folders

NODE = NodeOptions(name="my-tpu", type="v3-32")
EVERY_SPIN_UP_FLAG = {
    "-z us-central1-f": {"zone": "us-central1-f"},
    "--zone us-central1-f": {"zone": "us-central1-f"},
    "--type v2-8": {"type": "v2-8"},
    "-i tpu-vm-base": {"runtime": "tpu-vm-base"},
    "--image tpu-vm-base": {"runtime": "tpu-vm-base"},
    "-p": {"tier": "preemptible"},
    "--preemptible": {"tier": "preemptible"},
    "-a": {},
    "--autodelete": {},
    "--use-alpha": {},
    "--use_alpha": {},
    "-n default": {},
    "--subnetwork mine": {"subnetwork": "mine"},
    "-s my.sh": {"setup": Path("my.sh")},
    "--setup my.sh": {"setup": Path("my.sh")},
    "-b main": {"branch": "main"},
    "--branch 1a2b3c4": {"branch": "1a2b3c4"},
    "-r https://example.com/x": {"repo": "https://example.com/x"},
    "--repo https://example.com/x": {"repo": "https://example.com/x"},
    "--retries 3": {"retries": 3},
}


def asked(line: str) -> Any:
    """What the command line asks for, without doing it."""
    return understand(line).work.args[0]  # type: ignore[attr-defined]


@pytest.mark.parametrize(("flag", "means"), EVERY_SPIN_UP_FLAG.items())
@pytest.mark.parametrize(
    "script", ["spin-up my-tpu -t v3-32 {}", "babysit my-tpu -t v3-32 {} -- x"]
)
def test_every_flag_of_both_scripts(script: str, flag: str, means: dict[str, Any]) -> None:
    found = asked(f"levanter {script.format(flag)}")
    assert isinstance(found, SpinUpOptions)
    said = {name: getattr(found, name) for name in ("setup", "branch", "repo", "retries")}
    said |= {
        name: getattr(found.node, name) for name in ("name", "zone", "type", "tier", "runtime")
    }
    usual = {
        "setup": Path(), "branch": "", "repo": "", "retries": -1, "name": "my-tpu", "zone": "",
        "type": "v3-32", "tier": "on-demand", "runtime": "",
    }  # fmt: skip
    network = {"subnetwork": found.node.subnetwork}
    assert {**said, **network} == {**usual, "subnetwork": "", **means}


EVERY_LAUNCH_FLAG = {
    "--tpu_name other": {"tpu_name": "other"},
    "--tpu-type v4-8": {"tpu_type": "v4-8"},
    "--zone us-central2-b": {"zone": "us-central2-b"},
    "--node_count 2": {"node_count": 2},
    "--version tpu-vm-base": {"version": "tpu-vm-base"},
    "--capacity_type best-effort": {"capacity_type": "best-effort"},
    "--preemptible": {"capacity_type": "preemptible"},
    "--spot": {"capacity_type": "spot"},
    "--reserved": {"capacity_type": "reserved"},
    "--on-demand": {"capacity_type": "on-demand"},
    "--retries -1": {"retries": -1},
    "--run_id abcd1234": {"run_id": "abcd1234"},
    "-e A 1 --env B '2 3'": {"env": (("A", "1"), ("B", "2 3"))},
    "--foreground": {"foreground": True},
    "--autodelete": {"autodelete": True},
    "--project demo": {"project": "demo"},
}


@pytest.mark.parametrize(("flag", "means"), EVERY_LAUNCH_FLAG.items())
@pytest.mark.parametrize("dashes", ["-- ", ""])
def test_every_flag_of_launch(flag: str, means: dict[str, Any], dashes: str) -> None:
    found = asked(f"levanter launch {flag} {dashes}python train.py --lr 1")
    assert isinstance(found, LaunchOptions)
    assert found.words == ("python", "train.py", "--lr", "1")
    assert {name: found.said[name] for name in means} == means
    others = [found.said[name] for name in found.said if name not in means]
    assert not any(others)


def test_run_names_a_node_and_a_command() -> None:
    found = asked("levanter run my-tpu --detach -- A=1 python x.py")
    assert isinstance(found, RunOnNode)
    assert (found.name, found.words, found.follow) == ("my-tpu", ("A=1", "python", "x.py"), False)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("babysit x -- y", "herd levanter babysit: give the TPU's type: -t v3-32"),
        ("spin-up x", "herd levanter spin-up: give the TPU's type: -t v3-32"),
        ("babysit x -t v3-32", "give the command after --, such as -- python3 train.py"),
        ("babysit x y -t v3-32 -- z", "got unexpected extra argument (y)"),
        ("babysit -t v3-32 -- z", "missing argument 'NAME'."),
        ("babysit x -t v3-32 --colour -- z", "no such option '--colour'"),
        ("babysit x -t", "option '-t' requires an argument."),
        ("babysit x -t v3-32 --retries many -- z", "'many' is not a valid integer"),
        ("spin-up x -t v3-32 -- z", "spin-up takes no command; babysit does"),
        ("run x", "give the command after --"),
        ("launch", "give the command after --"),
        ("launch --capacity_type free -- z", "'free' is not one of"),
        *((f"launch --{name} x -- z", f"--{name} has no meaning here") for name in NO_IMAGE),
    ],
)
def test_mistakes_are_one_sentence(
    line: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line.run(shlex.split(f"levanter {line}"), {}, lambda _: 0) == 2
    said = capsys.readouterr().err
    assert says in said and said.count("\n") == 1, said


def test_through_another_machine_it_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """There is no clone there; it says so before anything connects."""
    environ = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    contexts = {"lab": {"project": "p", "via": "ada@nowhere.invalid"}}
    with edit_contexts(resolve_folders(environ).config) as content:
        content |= {"contexts": contexts, "current": "lab"}
    assert via_client.run(["levanter", "spin-up", "x", "-t", "v3-8"], environ) == 2
    assert "does not work through ada@nowhere.invalid" in capsys.readouterr().err


def document(command: RemoteCommand | None, ending: Ending, **node: Any) -> JobSpec:
    code = CodeAndSetup(workdir="/code", setup="true", nfs={"/files": "10.0.0.2:/share"})
    options = NodeOptions(**{"name": "my-tpu-1", "type": "v3-32", **node})
    found = read_fields(levanter.build_job(options, code, command, ending, "abcd1234"))
    assert isinstance(found, JobSpec), found
    return found


def test_the_job_keeps_the_nodes_name_the_run_and_its_secrets() -> None:
    words = ["WANDB_API_KEY=s3cret", "LR=0.1", "MSG=a b", "python", "train.py", "--name", "it's a"]
    command = levanter.parse_command(words)
    job = document(command, Ending(failures=None, keep=False), tier="preemptible")
    assert (job.name, job.node_name, job.accelerator) == ("my-tpu-1-run", "my-tpu-1", ("v3-32",))
    assert (job.zones, job.tier) == ((), ("preemptible",))
    assert job.env == {"LR": "0.1", "MSG": "a b", "RUN_ID": "abcd1234"}
    assert job.nfs == {"/files": "10.0.0.2:/share"}
    assert [one.name for one in job.secrets] == ["WANDB_API_KEY"]
    assert "s3cret" not in str(job)
    assert isinstance(job.run, str)
    assert shlex.split(job.run)[-4:] == ["python", "train.py", "--name", "it's a"]
    assert job.retry.failures is None and job.retry.preemptions is None
    assert (job.node.done, job.node.failed) == (0.0, 0.0)


def test_a_launched_node_is_kept_and_slices_are_one_run() -> None:
    command = levanter.parse_command(["x"])
    job = document(
        command, Ending(failures=10, keep=True), slices=2, zone="us-central2-b",
        runtime="tpu-vm-v4-base", subnetwork="mine", name="levanter1", type="v4-8",
    )  # fmt: skip
    assert (job.name, job.node_name, job.slices) == ("levanter1", "levanter1", 2)
    assert (job.zones, job.runtime, job.network.subnetwork) == (
        ("us-central2-b",), ("tpu-vm-v4-base",), "mine",
    )  # fmt: skip
    assert (job.retry.failures, job.node.done) == (10, float("inf"))


def test_a_run_id_is_eight_letters_and_digits_and_new_each_time() -> None:
    ids = {levanter.new_run_id() for _ in range(100)}
    assert len(ids) == 100
    assert all(re.fullmatch(r"[a-z0-9]{8}", one) for one in ids)


@pytest.mark.parametrize("name", ["My_TPU", "1x", "x-", "", "a/b"])
def test_a_name_that_no_tpu_can_have_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="can't be a TPU's name"):
        levanter.job_name_for_node(name)


def test_variables_alone_are_no_command() -> None:
    with pytest.raises(InvalidInput, match="give the command after --"):
        levanter.parse_command(["A=1"])


@pytest.mark.parametrize(
    ("remote", "address"),
    [
        ("git@github.com:me/levanter.git", "https://github.com/me/levanter.git"),
        ("ssh://git@github.com/me/levanter", "https://github.com/me/levanter"),
        ("https://github.com/me/levanter", "https://github.com/me/levanter"),
    ],
)
def test_hosts_get_an_address_that_needs_no_key(remote: str, address: str) -> None:
    assert levanter.https_address(remote) == address


CONFIG = """\
env:
    WANDB_API_KEY:
    WANDB_ENTITY: me
    TPU_MIN_LOG_LEVEL: 2
    LR: 0.10
accel_env:
  v6e:
    LIBTPU_INIT_ARGS: "--generation"
    LR: 0.20
  v6e-16: {LR: 0.30}
docker_repository: levanter
github_token: hush
zone: us-west4-a
tpu: test-32
retries: 3
autodelete: true
capacity_type: "preemptible"
"""


def test_the_config_of_launch() -> None:
    config = parse_config(CONFIG)
    assert config.find_value("tpu_name", {}) == "test-32"
    assert config.find_value("tpu_name", {"TPU_NAME": "mine"}) == "mine"
    assert config.find_value("retries", {}) == "3"
    assert config.find_value("version", {}, "usual") == "usual"
    assert config.is_set("autodelete", {}) and not config.is_set("foreground", {})
    assert not config.is_set("autodelete", {"AUTODELETE": "0"})
    assert config.image_keys == ["docker_repository", "github_token"]


def test_variables_of_the_type_win_over_those_of_its_generation() -> None:
    config = parse_config(CONFIG)
    base = {"WANDB_ENTITY": "me", "TPU_MIN_LOG_LEVEL": "2"}
    v6e = {**base, "LIBTPU_INIT_ARGS": "--generation"}
    assert config.env_for("v4-8", {}) == {**base, "LR": "0.10"}
    assert config.env_for("v6e-8", {}) == {**v6e, "LR": "0.20"}
    assert config.env_for("v6e-16", {}) == {**v6e, "LR": "0.30"}
    assert config.env_for("v4-8", {"WANDB_API_KEY": "mine"})["WANDB_API_KEY"] == "mine"


def test_no_config_is_an_empty_one() -> None:
    assert parse_config("") == LevanterConfig()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("zone: a\nzon: b", ".levanter.yaml:2: zon: unknown key: did you mean zone?"),
        ("env: [a", ".levanter.yaml:1: not valid YAML: expected ',' or ']'"),
        ("env: hello", ".levanter.yaml:1: env: should map names to values, not 'hello'"),
        ("env:\n  A: [1]", ".levanter.yaml:2: env.A: should be text, not [1]"),
        ("accel_env: {v4: 1}", ".levanter.yaml:1: accel_env.v4: should map names to values"),
        ("zone: {a: 1}", ".levanter.yaml:1: zone: should be text"),
        ("just text", ".levanter.yaml:1: it maps keys to values"),
    ],
)
def test_a_bad_line_of_the_config_is_named(text: str, says: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(says)) as refused:
        parse_config(text)
    assert "\n" not in refused.value.sentence


@pytest.mark.parametrize("name", [levanter.VENV_SETUP, levanter.NFS_SETUP])
def test_the_setups_are_shell_that_parses(name: str) -> None:
    done = subprocess.run(
        ["bash", "-n"], input=levanter.setup_text(name), text=True, capture_output=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_users_own_setup_arrives_unchanged(tmp_path: Path) -> None:
    content = "echo \"$1 $2 $3 $4\" '$HOME'\ncat <<'EOF'\nEND_OF_LEVANTER_FILE\nEOF"
    text = levanter.own_setup_text("my setup.sh", content, branch="a b", repo="https://x")
    done = subprocess.run(
        ["bash"], input=text, text=True, capture_output=True, env={"HOME": str(tmp_path)}
    )
    assert done.stdout == "--branch a b --repo https://x $HOME\nEND_OF_LEVANTER_FILE\n", done.stderr
    assert (tmp_path / ".levanter/own-setup.sh").read_text() == content + "\n"


@pytest.mark.parametrize("there", ["$VENV", "infra/venv_path.txt", ".venv", "made by herd"])
def test_the_runner_takes_the_first_environment_that_exists(tmp_path: Path, there: str) -> None:
    """And those after it in the list are there as well."""
    order = ["$VENV", "infra/venv_path.txt", ".venv", "made by herd"]
    home = tmp_path / "home"
    (home / "levanter/infra").mkdir(parents=True)
    (home / ".levanter").mkdir()
    env = {"HOME": str(home), "PATH": "/usr/bin:/bin", "PYTHONPATH": "/mine"}
    for place in order[order.index(there) :]:
        folder = home / "levanter/.venv" if place == ".venv" else tmp_path / str(order.index(place))
        (folder / "bin").mkdir(parents=True)
        (folder / "bin/activate").write_text(f"FOUND='{place}'; export FOUND\n")
        if place == "$VENV":
            env["VENV"] = str(folder)
        elif place == "infra/venv_path.txt":
            (home / "levanter/infra/venv_path.txt").write_text(f"{folder}\n")
        elif place == "made by herd":
            (home / ".levanter/venv_path").write_text(f"{folder}\n")
    runner = levanter.SCRIPTS / "run.sh"
    line = 'echo "$FOUND|$1|$PYTHONPATH"'
    done = subprocess.run(
        ["bash", runner, "sh", "-c", line, "sh", "a b"], env=env, text=True, capture_output=True
    )
    code = home / "levanter"
    assert done.stdout == f"{there}|a b|{code}:{code}/src:{code}/examples:/mine\n", done.stderr


def test_the_nfs_setup_says_what_it_needs(tmp_path: Path) -> None:
    done = subprocess.run(
        ["bash", "-c", levanter.setup_text(levanter.NFS_SETUP)],
        cwd=tmp_path, env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
        text=True, capture_output=True,
    )  # fmt: skip
    assert done.returncode == 78
    assert "set NFS_SERVER in your shell" in done.stderr
