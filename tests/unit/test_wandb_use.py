"""Where a job's code uses wandb, and whether it surely does."""

from typing import Any

import pytest

from tests.unit.test_jobfile_slots import job
from tpuherd.jobfile.wandb_use import WandbUse, find_wandb_use

INIT = "\nwandb.init(project='x')"


def use(files: dict[str, str], **fields: Any) -> tuple[str, bool] | None:
    fields = {"run": "python3 train.py --lr 0.1", **fields}
    found: WandbUse | None = find_wandb_use(job(**fields), lambda path: files.get(path, ""))
    return None if found is None else (found.at, found.sure)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import jax", None),
        ("# import wandb", None),
        ("import wandbx", None),
        ("import os, wandb" + INIT, 1),
        ("import wandb", 1),
        ("import os\nfrom wandb import init\ninit()", 2),
        ("import wandb.sklearn as w", 1),
        ("def main():\n    wandb.init()\nimport wandb\nmain()", 3),
        ("import wandb\nif jax.process_index() == 0:\n    wandb.init()", 1),
        ("if __name__ == '__main__':\n    import wandb\n    wandb.init()", 2),
        ("with x():\n    import wandb", 2),
        ("from tpuherd_host import train\nlog = train.wandb(run, project='x')", 2),
        # it hangs on something
        ("try:\n    import wandb\nexcept ImportError:\n    wandb = None", -2),
        ("try:\n    import wandb\nexcept (OSError, ModuleNotFoundError):\n    pass", -2),
        ("try:\n    import wandb\nexcept:\n    pass", -2),
        ("def main():\n    import wandb\n    wandb.init()", -2),
        ("if args.wandb:\n    import wandb\n    wandb.init()", -2),
        ("import wandb\nif args.track:\n    wandb.init()", -1),
        ("import wandb\nrun = wandb.init() if args.log else None", -1),
        ("import wandb\nwandb.init(mode=args.mode)", -1),
        ("import os, wandb\nos.environ['WANDB_MODE'] = 'offline'" + INIT, -1),
        ("import wandb\nwandb.login(key=open('key').read())" + INIT, -1),
        ("import wandb\nwandb.init(", None),  # no Python of ours
    ],
)
def test_a_script(source: str, expected: int | None) -> None:
    found = use({"train.py": source})
    assert found == (None if expected is None else (f"train.py:{abs(expected)}", expected > 0))


@pytest.mark.parametrize(
    ("files", "run", "expected"),
    [
        ({"train.py": "import loop", "loop.py": "import wandb"}, None, ("loop.py:1", True)),
        ({"train.py": "from lib import log", "lib/__init__.py": "", "lib/log.py": "import wandb"},
         None, ("lib/log.py:1", True)),
        ({"a/t.py": "import log", "a/log.py": "import wandb"}, "python3 a/t.py",
         ("a/log.py:1", True)),
        ({"a/t.py": "import log", "a/log.py": "import wandb"}, "cd a && python3 t.py",
         ("a/log.py:1", True)),
        ({"p/__main__.py": "from .log import x", "p/__init__.py": "", "p/log.py": "import wandb"},
         "python3 -m p", ("p/log.py:1", True)),
        ({"go.sh": "cd x\npython3 train.py", "train.py": "import wandb"}, "bash go.sh",
         ("train.py:1", True)),
        ({"go.sh": "if true; then\npython3 train.py; fi", "train.py": "import wandb"}, "bash go.sh",
         ("train.py:1", False)),
        ({"train.py": "def f():\n    import loop", "loop.py": "import wandb"}, None,
         ("loop.py:1", False)),
        ({"train.py": "import loop", "loop.py": "if __name__ == '__main__':\n  import wandb"}, None,
         ("loop.py:2", False)),
        ({"train.py": "import jax", "examples/other.py": "import wandb"}, None, None),
        ({"a.py": "import b", "b.py": "import a\nimport wandb"}, "python3 a.py", ("b.py:2", True)),
        ({}, "wandb agent me/p/abc", ("run", True)),
        ({}, ["python3", "-m", "tpuherd_host.train.wandb_agent", "a/b/c"], ("run", True)),
    ],
)  # fmt: skip
def test_what_the_command_reaches(
    files: dict[str, str], run: Any, expected: tuple[str, bool] | None
) -> None:
    assert use(files, **({"run": run} if run else {})) == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"env": {"WANDB_MODE": "offline"}}, None),
        ({"env": {"WANDB_MODE": "disabled"}}, None),
        ({"env": {"WANDB_MODE": "dryrun"}}, None),
        ({"env": {"WANDB_MODE": "online"}}, ("train.py:1", True)),
        ({"run": "WANDB_MODE=offline python3 train.py"}, ("train.py:1", False)),
        ({"run": "wandb offline && python3 train.py"}, ("train.py:1", False)),
        ({"setup": ["wandb login $KEY"]}, ("train.py:1", False)),
        ({"setup": ["cp key.txt ~/.netrc"]}, ("train.py:1", False)),
        ({"run": "[ -e x ] || python3 train.py"}, ("train.py:1", False)),
    ],
)
def test_who_logs_in_otherwise_is_not_sure_to_need_a_key(
    fields: dict[str, Any], expected: tuple[str, bool] | None
) -> None:
    assert use({"train.py": "import wandb" + INIT}, **fields) == expected
