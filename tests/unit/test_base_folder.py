"""Where relative paths of commands and copies begin on a host."""

from pathlib import Path

import pytest

from tpuherd.ports import Host
from tpuherd_host.agent.base_folder import place_path, words_only_in_home

CODE = "herd/gpt"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for file in ("both", "old/at-home", f"{CODE}/both", f"{CODE}/train.py", f"{CODE}/out/1.json"):
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return tmp_path


@pytest.mark.parametrize(
    ("text", "path", "only_home"),
    [
        ("train.py", f"{CODE}/train.py", False),
        (".", f"{CODE}/.", False),
        ("both", f"{CODE}/both", False),
        ("new", f"{CODE}/new", False),
        ("new/", f"{CODE}/new/", False),
        ("out/*.json", f"{CODE}/out/*.json", False),
        ("out/new", f"{CODE}/out/new", False),
        ("old", "old", True),
        ("old/at-*", "old/at-*", True),
        ("old/new", "old/new", True),
        ("herd/gpt/out", "herd/gpt/out", True),
        ("~/both", "~/both", False),
        ("~", "~", False),
        ("/tmp/x", "/tmp/x", False),
    ],
)
def test_relative_paths_begin_in_the_code(
    home: Path, text: str, path: str, only_home: bool
) -> None:
    assert place_path(home, text, CODE) == (path, only_home)
    assert place_path(home, text, "") == (text, False), "no job has the node"
    assert place_path(home, text, "herd/other") == (text, False), "the job has no code"


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("python3", "train.py"), []),
        (("python3", "old/at-home"), ["old/at-home"]),
        (("python3", "train.py", "--data", "old"), []),
        (("old/at-home",), ["old/at-home"]),
        (("old", "-l"), []),
        (("chown", "herd", "both"), []),
        (("id", "herd"), []),
        (("ls", "herd/gpt"), ["herd/gpt"]),
        (("ls", "~/old", "/old", "$old", "-old", "nothing"), []),
        (("$SHELL", "-c", "ls old|tail -1"), ["old"]),
        (("$SHELL", "-c", "ls --dir=old"), ["old"]),
        (("$SHELL", "-c", "cat both old"), []),
        (("$SHELL", "-c", "ls out; ls old"), []),
        (("$SHELL", "-l"), []),
    ],
)
def test_a_command_begins_at_home_only_for_files_of_the_home(
    home: Path, argv: tuple[str, ...], words: list[str]
) -> None:
    assert words_only_in_home(home, argv, CODE) == words


@pytest.mark.parametrize(
    ("node", "bid", "folder"),
    [
        ("gpt-0-g2-x7k", "gpt-0-g2-x7k", "herd/gpt"),
        ("my-tpu", "big-run-3-g1-x7k", "herd/big-run"),
        ("pod", "", ""),
    ],
)
def test_the_code_folder_is_that_of_the_nodes_job(node: str, bid: str, folder: str) -> None:
    host = Host(
        node=node, bid=bid, zone="z", worker=0, incarnation="1", internal_ip="", external_ip=None
    )
    assert host.code_folder == folder
