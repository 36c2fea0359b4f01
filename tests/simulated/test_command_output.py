"""What commands print in a fixed world, as the files in tests/scenarios/cli/json and text say."""

import json
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import jsonschema  # type: ignore[import-untyped]
import pytest
from json_schemas import SCHEMAS

from tests.simulated.fixed_world import JOBS, FixedWorld, open_fixed_world
from tests.simulated.golden_files import check_golden, check_no_other_files
from tests.simulated.wrong_commands import leaf_commands
from tpuherd.cli.main import herd

NEAR = (
    "src/tpuherd/cli/*.py", "src/tpuherd/views/*.py", "src/tpuherd/results.py",
    "tests/scenarios/cli/json/*", "tests/scenarios/cli/text/*",
)  # fmt: skip
HEAD = click.Context(herd, info_name="herd")
#: By command: a line with --json, after others that it needs; and its exit status, unless 0.
JSON: dict[str, tuple[str, ...]] = {
    "bucket check": ("bucket check ann-runs --json",),
    "bucket create": ("bucket create ann-data --location us-central2 --yes --json",),
    "bucket grant": ("bucket grant ann-runs --yes --json",),
    "context grant": ("context grant --zone us-central2-b --type v4-32 --tier spot --json",),
    "context list": ("context add lab --project demo", "context list --json"),
    "context show": ("context add lab --project demo", "context show lab --json"),
    "down": ("down fine --yes --no-wait --json",),
    "engine adopt": ("engine adopt --json",),
    "engine plan": ("engine plan --json",),
    "engine status": ("engine status --json",),
    "events": ("events gpt --json",),
    "explain": ("explain sad --json",),
    "export jobset": ("export jobset gpt --json",),
    "export slurm": ("export slurm gpt --json",),
    "gc": ("gc --json",),
    "hosts": ("hosts gpt --json",),
    "logs": ("logs gpt --json",),
    "ls": ("ls --json",),
    "map JOB": ("map job.yaml items.txt --yes --detach --json",),
    "map status": ("map status evals --json",),
    "metrics": ("metrics gpt --json",),
    "notify list": ("notify set receivers.yaml", "notify list --json"),
    "quota": ("quota --json",),
    "quota --share": ("quota --share ann=2 --json",),
    "cost": ("cost gpt --json",),
    "resume": ("stop gpt", "resume gpt --json"),
    "run": ("run job.yaml --json",),
    "run --dry-run": ("run job.yaml --dry-run --json",),
    "set": ("set gpt max_cost=5 --yes --json",),
    "setup gcp": ("setup gcp --dry-run --json",),
    "sim env": ("sim env --json",),
    "sim log": ("sim log --json",),
    "sim preempt": ("sim preempt gpt-0-g1-7kq --json",),
    "sim weather": ("sim weather clear --json",),
    "smi": ("smi gpt --json", "7"),
    "status": ("status lost --json",),
    "stop": ("stop gpt --json",),
    "sweep FILE": ("sweep sweep.yaml --yes --json",),
    "sweep best": ("sweep best lrs --json",),
    "sweep status": ("sweep status lrs --json",),
    "types": ("types v4-8 --json",),
    "types --zones": ("types --zones --json",),
    "up": ("up job.yaml --json",),
    "wait": ("wait fine sad --json", "1"),
    "why": ("why sad --json",),
}
AGENTS = "hosts of this world have no agents; tests/integration/"
#: By command with --json that has no file here: why, and what tests its JSON.
WITHOUT = {
    "check": "looks at the machine it runs on; tests/integration/test_check.py",
    "clean": f"{AGENTS}test_exec_commands.py",
    "cp": f"{AGENTS}test_files_and_logs.py",
    "engine daemon status": "has the times of a process; tests/integration/test_daemon.py",
    "exec": f"{AGENTS}test_exec_commands.py",
    "map logs": "its items write no logs; tests/integration/test_map_life.py",
    "notify test": "sends a message; tests/integration/test_notify_life.py",
    "outputs": f"{AGENTS}test_ordinary_script.py",
    "profile": f"{AGENTS}test_profile_life.py",
    "sim start": "starts a process; tests/integration/test_cli_sim.py",
    "sim status": "asks a world's own server; tests/integration/test_cli_sim.py",
    "sim stop": "ends a process; tests/integration/test_cli_sim.py",
    "sync": f"{AGENTS}test_files_and_logs.py",
}
#: By file: lines whose tables and sentences people read.
TEXTS = {
    "events": ("events gpt", "events sad"),
    "explain": ("explain sad",),
    "logs": ("logs gpt", "logs sad"),
    "ls": ("ls",),
    "plan": ("engine plan", "engine plan gpt", "engine plan bert", "engine plan lost"),
    "status": tuple(f"status {job}" for job in JOBS),
    "why": tuple(f"why {job}" for job in JOBS),
}


@pytest.fixture
def fixed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[FixedWorld]:
    with open_fixed_world(tmp_path, monkeypatch, capfd) as world:
        world.look()
        yield world


def find_schema(command: str) -> Mapping[str, Any] | None:
    """Return the schema of a command's JSON, if it has one."""

    def plain(words: str) -> str:
        return " ".join(word for word in words.split() if not word.isupper() and "=" not in word)

    keys = [key for key in SCHEMAS if plain(key) == f"herd {plain(command)} --json"]
    return SCHEMAS[keys[0]] if keys else None


def file_name(command: str) -> str:
    return f"json/{command.replace(' --', '-').replace(' ', '-').lower()}.json"


@pytest.mark.parametrize("command", JSON)
def test_json_is_as_before(command: str, fixed: FixedWorld) -> None:
    *before, line = [words for words in JSON[command] if not words.isdigit()]
    for words in before:
        assert fixed.run(*shlex.split(words))[0] == 0, words
    status, out, err = fixed.run(*shlex.split(line))
    assert status == int(JSON[command][-1] if JSON[command][-1].isdigit() else 0), err
    check_golden(file_name(command), out)
    if (schema := find_schema(command)) is not None:
        for text in out.splitlines() if command in ("events", "logs") else [out]:
            jsonschema.validate(json.loads(text), schema)


@pytest.mark.parametrize("name", TEXTS)
def test_sentences_and_tables_are_as_before(name: str, fixed: FixedWorld) -> None:
    text = ""
    for line in TEXTS[name]:
        status, out, err = fixed.run(*line.split())
        assert (status, err) == (0, "")
        text += f"$ herd {line}\n{out}\n"
    check_golden(f"text/{name}.txt", text)


def test_every_command_with_json_has_a_file_or_a_reason() -> None:
    found = set()
    for name in herd.list_commands(HEAD):
        command = herd.get_command(HEAD, name)
        assert command is not None
        for path, leaf in leaf_commands(command, name):
            names = {name for param in leaf.params for name in param.opts}
            found |= {path} if "--json" in names or path == "exec" else set()
    listed = {command.partition(" --")[0] for command in JSON}
    assert listed.isdisjoint(WITHOUT)
    assert found == listed | WITHOUT.keys(), "list it in JSON, or in WITHOUT with the reason"
    without_schema = {command for command in JSON if find_schema(command) is None}
    assert {command.partition(" ")[0] for command in without_schema} == {"sim"}
    check_no_other_files("json/*", [file_name(command) for command in JSON])
    check_no_other_files("text/*", [f"text/{name}.txt" for name in TEXTS])


@pytest.mark.parametrize("command", WITHOUT)
def test_what_has_no_file_names_where_it_is_tested(command: str) -> None:
    assert (Path(__file__).parents[2] / WITHOUT[command].partition("; ")[2]).is_file()
