"""What the shipped code calls, for every way to import it, and what follows for the variables."""

from typing import Any

import pytest

from tests.unit.test_jobfile_slots import EVERYTHING, job, stored_job
from tpuherd.jobfile.code_calls import CodeCalls, count_calls, process_group_call
from tpuherd.jobfile.expand_slots import expand_slots
from tpuherd.jobfile.launch_spec import build_launch_spec

ONCE = "import wandb\nwandb.init()"


@pytest.mark.parametrize(
    ("source", "starts"),
    [
        ("print('no wandb.init() here')", 0),
        ("# wandb.init()\nwandb.log({})", 0),
        (ONCE, 1),
        ("import wandb as wb\nwith wb.init(project='x') as run: pass", 1),
        ("from wandb import init as begin\nbegin()", 1),
        ("import wandb, wandb.sklearn\nwandb.init(); wandb.init()", 2),
        ("import wandb\nfor seed in range(3):\n    wandb.init()", 2),
        ("import wandb\nruns = [wandb.init() for _ in range(3)]", 2),
        ("import wandb\nprint 'Python 2'\nwandb.init()  # wandb.init()", 1),
        ("import wandb\nprint('\\d')\nwandb.init()", 1),
    ],
)
def test_starts_of_wandb_are_counted(source: str, starts: int) -> None:
    assert count_calls([source]).wandb_starts == starts


def test_all_files_count_and_an_agent_is_seen() -> None:
    assert count_calls([ONCE, "", ONCE]) == CodeCalls(wandb_starts=2)
    assert count_calls(["wandb agent me/p/abc"]).wandb_agent
    assert count_calls(["import wandb\nwandb.agent(id, main)"]).wandb_agent
    assert not count_calls(["wandb login; python3 agent.py"]).wandb_agent


@pytest.mark.parametrize(
    ("fields", "calls", "chosen"),
    [
        ({}, CodeCalls(), True),
        ({}, CodeCalls(wandb_starts=1), True),
        ({}, CodeCalls(wandb_starts=2), False),
        ({}, CodeCalls(wandb_agent=True), False),
        ({}, None, False),  # the code is not on this machine
        ({"env": {"WANDB_RUN_ID": "x"}}, CodeCalls(), False),
        ({"env": {"WANDB_RESUME": "never"}}, CodeCalls(), False),
        ({"secrets": ["WANDB_SWEEP_ID"]}, CodeCalls(), False),
        ({"env": {"WANDB_PROJECT": "p"}, "secrets": ["WANDB_API_KEY"]}, CodeCalls(), True),
        ({"run": "export WANDB_RUN_ID=$RUN_ID\npython3 train.py"}, CodeCalls(), False),
        ({"run": "wandb agent me/p/abc"}, CodeCalls(), False),
        ({"run": ["python3", "-m", "tpuherd_host.train.wandb_agent", "a/b/c"]}, CodeCalls(), False),
    ],
)
def test_a_run_of_wandb_is_chosen_if_and_only_if_there_is_one(
    fields: dict[str, Any], calls: CodeCalls | None, chosen: bool
) -> None:
    one = job(workdir=".", **fields)
    row = stored_job(one, "s1")
    slot = expand_slots(one, row, EVERYTHING)[0]
    assert build_launch_spec(one, slot, row, {}, calls=calls).wandb == chosen


def test_a_command_without_code_is_looked_at_alone() -> None:
    one = job(run="wandb agent me/p/abc"), job(run="python3 -m trainer")
    rows = [stored_job(each, "") for each in one]
    slots = [expand_slots(each, row, EVERYTHING)[0] for each, row in zip(one, rows, strict=True)]
    assert not build_launch_spec(one[0], slots[0], rows[0]).wandb
    assert build_launch_spec(one[1], slots[1], rows[1]).wandb


@pytest.mark.parametrize(
    ("run", "source", "found"),
    [
        ("python3 train.py", "import torch\ntorch.distributed.init_process_group()", "train.py:2"),
        ("python3 train.py", "import torch.distributed as d\nd.init_process_group()", "train.py:2"),
        ("python3 train.py", "from torch import distributed\ndistributed.init_process_group()",
         "train.py:2"),
        ("python3 train.py", "from torch.distributed import init_process_group as go\ngo('gloo')",
         "train.py:2"),
        ("python3 train.py", "# init_process_group", ""),
        ("torchrun train.py", "import torch\ntorch.distributed.init_process_group()", ""),
        ("python3 -m tpuherd_host.torch train.py",
         "import torch\ntorch.distributed.init_process_group()", ""),
    ],
)  # fmt: skip
def test_a_process_group_is_found_where_nothing_gives_processes_their_place(
    run: str, source: str, found: str
) -> None:
    assert process_group_call(job(run=run), {"train.py": source}) == found
