"""exec, ssh, cp and sync of a job begin in its code, as users expect who sent it there."""

from pathlib import Path

import pytest

from tests.integration.engines import Owner
from tests.integration.users import Terminal
from tests.simulated.tiny_wheel import REQUIREMENTS, write_wheel
from tpuherd import Herd

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def code(user: Owner) -> Path:
    """A node is there with this code and its environment."""
    folder = user.home / "toy"
    folder.mkdir()
    write_wheel(folder / "wheels")
    (folder / "requirements.txt").write_text(REQUIREMENTS)
    (folder / "train.py").write_text("import tiny\nprint('tiny', tiny.version)\n")
    (folder / "configs").mkdir()
    (folder / "configs" / "a.yaml").write_text("one\n")
    words = ("--accelerator", "v2-8", "--workdir", folder)
    done = user.herd("up", "--name", "dev", *words, "--set", "requirements=requirements.txt")
    assert done.returncode == 0, done.stderr
    assert user.herd("wait", "dev", seconds=180).returncode == 0
    return folder


def run(user: Owner, *words: str | Path) -> str:
    done = user.herd(*words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "home" not in done.stderr, done.stderr
    return done.stdout


def test_a_command_begins_in_the_code_with_its_environment(user: Owner, code: Path) -> None:
    assert run(user, "exec", "dev", "--", "python3", "train.py") == "tiny 1.0\n"
    assert run(user, "exec", "dev", "pwd; true").endswith("/herd/dev\n")
    assert run(user, "ssh", "dev", "pwd").endswith("/herd/dev\n")
    done = Herd(environ=user.env).exec("dev", "python3", "train.py")
    assert [one.stdout for one in done.hosts] == ["tiny 1.0\n"]


def test_a_terminal_begins_there_too(user: Owner, code: Path) -> None:
    terminal = Terminal(user, "ssh", "dev")
    terminal.type(b"echo in $(pwd); python3 train.py\n")
    terminal.expect(rb"in \S+/herd/dev")
    terminal.expect(rb"tiny 1.0")
    terminal.type(b"exit\n")
    assert terminal.end() == 0


def test_copies_begin_there_too(user: Owner, code: Path, tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("mine\n")
    run(user, "cp", tmp_path / "notes", "dev:")
    run(user, "cp", tmp_path / "notes", "dev:configs/b.yaml")
    run(user, "cp", "dev/w0:configs", tmp_path / "back")
    assert {one.name for one in (tmp_path / "back").iterdir()} == {"a.yaml", "b.yaml"}
    run(user, "sync", tmp_path / "back", "dev:more")
    (code / "new.py").write_text("")
    run(user, "sync", code, "dev")
    (tmp_path / "back" / "c.yaml").write_text("three\n")
    run(user, "sync", tmp_path / "back", "dev:more")
    shown = run(user, "exec", "dev", "cat notes configs/*.yaml more/c.yaml")
    assert shown.split() == ["mine", "one", "mine", "three"]
    Herd(environ=user.env).sync(tmp_path / "back", "dev", "more2")
    assert run(user, "exec", "dev", "ls more2").split() == ["a.yaml", "b.yaml", "c.yaml"]


def test_what_only_the_home_has_is_taken_from_there_with_a_warning(
    user: Owner, code: Path, tmp_path: Path
) -> None:
    (tmp_path / "f").write_text("old\n")
    done = user.herd("exec", "dev", "mkdir ~/old")
    assert done.returncode == 0
    assert user.herd("cp", tmp_path / "f", "dev:~/old/f").returncode == 0
    assert user.herd("sync", tmp_path, "dev:~/tree").returncode == 0
    done = user.herd("exec", "dev", "--", "cat", "old/f")
    assert (done.returncode, done.stdout) == (0, "old\n"), done.stderr
    assert "write ~/old/f" in done.stderr
    done = user.herd("cp", "dev/w0:old/f", tmp_path / "g")
    assert (done.returncode, (tmp_path / "g").read_text()) == (0, "old\n")
    assert "write ~/old/f" in done.stderr
    done = user.herd("cp", tmp_path / "f", "dev:old/new")
    assert "write ~/old/new" in done.stderr
    done = user.herd("sync", tmp_path, "dev:tree")
    assert "write ~/tree" in done.stderr
    shown = user.herd("exec", "dev", "cat ~/old/new ~/tree/f; ls").stdout.split()
    assert shown[:2] == ["old", "old"]
    assert not {"old", "tree"} & set(shown[2:])


def test_a_folder_to_open_is_one_of_the_code(user: Owner, code: Path) -> None:
    (user.home / "bin").mkdir()
    stand_in = user.home / "bin" / "code"  # notes its arguments
    stand_in.write_text('#!/bin/sh\nprintf "%s\\n" "$@" >> ~/opened.txt\n')
    stand_in.chmod(0o755)
    run(user, "exec", "dev", "mkdir -p ~/runs ~/configs")
    run(user, "ssh", "--config")
    env = {"PATH": f"{user.home / 'bin'}:{user.env['PATH']}"}
    for folder, place, warned in (
        ("configs", "/herd/dev/configs", False),
        ("", "/herd/dev", False),
        ("~/configs", "/configs", False),
        ("runs", "/runs", True),
        ("/tmp", "/tmp", False),
    ):
        done = user.herd("open", "code", "dev", *([folder] if folder else ()), env=env)
        assert done.returncode == 0, done.stderr
        assert ("write ~/runs" in done.stderr) == warned, done.stderr
        opened = (user.home / "opened.txt").read_text().splitlines()[-1].partition("+")[2]
        above = "" if place == "/tmp" else user.herd("exec", "dev", "echo ~").stdout.strip()
        assert opened.partition("/")[2] == f"{above}{place}"[1:]
    done = user.herd("open", "code", "dev", "absent", env=env)
    assert (done.returncode, "there is no folder absent on dev" in done.stderr) == (4, True)


def test_a_node_without_code_stays_at_home(user: Owner) -> None:
    done = user.herd("up", "--name", "bare", "--accelerator", "v2-8")
    assert done.returncode == 0, done.stderr
    assert user.herd("wait", "bare", seconds=180).returncode == 0
    text = run(user, "exec", "bare", 'test "$PWD" = "$HOME" && echo same $VIRTUAL_ENV')
    assert text == "same\n"
