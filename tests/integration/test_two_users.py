"""Two users of one project with a job of the same name: commands reach only their own nodes."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import tpuherd
from tests.conformance.world import until
from tests.integration.engines import Owner, owner
from tests.integration.users import Terminal

pytestmark = pytest.mark.real
RUN = "echo $HOME; sleep 3600"
ASK = "belongs to another herd user"


@pytest.fixture
def users() -> Iterator[tuple[Owner, Owner]]:
    """Each with a job gpt that runs."""
    with owner() as first:
        home = first.home.parent / "second"
        home.mkdir()
        second = replace(first, home=home)
        try:
            for user in (first, second):
                user.job("gpt", RUN, accelerator="v4-8")
            for user in (first, second):
                user.happened("attempt.started")
            yield first, second
        finally:
            second.leave_all()


def node_of(user: Owner) -> str:
    return str(user.events("attempt.started")[0].facts["bid"])


def said_by(user: Owner, *words: str | Path) -> str:
    done = user.herd(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_name_means_the_users_own_job(users: tuple[Owner, Owner], tmp_path: Path) -> None:
    first, second = users
    theirs, ours = map(node_of, users)
    assert theirs != ours
    (tmp_path / "code").mkdir()
    (tmp_path / "code/a.txt").write_text("a")
    (tmp_path / "b.txt").write_text("b")
    for target in ("gpt", "gpt-0", "gpt/w0"):
        said_by(second, "exec", target, "-c", "touch ~/of-second")
    said_by(second, "cp", tmp_path / "b.txt", "gpt:b.txt")
    said_by(second, "sync", tmp_path / "code", "gpt:code")
    terminal = Terminal(second, "ssh", "gpt")
    terminal.type(b"touch ~/by-ssh; echo do''ne\r")
    terminal.expect(b"done")
    terminal.type(b"exit\r")
    assert terminal.end() == 0
    said_by(second, "clean", "gpt", "--all")
    found = "ls -d of-second b.txt code by-ssh 2>/dev/null | wc -l"
    assert said_by(second, "exec", "gpt", "-c", found).split()[-1] == "4"
    assert said_by(first, "exec", "gpt", "-c", found).split()[-1] == "0"
    ended = until(lambda: second.events("attempt.ended"), "the second's to be cleaned", seconds=60)
    assert ended[0].slot == "gpt-0"
    assert not first.events("attempt.ended")  # and the first user's training continues
    assert said_by(first, "exec", "gpt", "-c", "pgrep -fc 'sleep 3600'").split()[-1] != "0"


def test_a_foreign_node_needs_its_full_name_and_consent_unless_only_read(
    users: tuple[Owner, Owner], tmp_path: Path
) -> None:
    first, second = users
    theirs = node_of(first)
    (tmp_path / "b.txt").write_text("b")
    for words in (
        ("exec", theirs, "--", "touch", "seen"),
        ("ssh", theirs, "touch seen"),
        ("cp", tmp_path / "b.txt", f"{theirs}:seen"),
        ("sync", tmp_path, f"{theirs}:seen"),
        ("clean", theirs, "--all"),
    ):
        done = second.herd(*words)
        assert (done.returncode, ASK in done.stderr, "--yes" in done.stderr) == (2, True, True)
    assert said_by(first, "exec", "gpt", "-c", "ls seen 2>/dev/null | wc -l").split()[-1] == "0"
    assert theirs in said_by(second, "chips", theirs)
    said_by(first, "exec", "gpt", "-c", "echo read > out.txt")
    said_by(second, "cp", f"{theirs}:out.txt", tmp_path / "out.txt")
    assert (tmp_path / "out.txt").read_text() == "read\n"
    assert said_by(second, "exec", theirs, "--yes", "--output", "stream", "--", "echo", "hi") == (
        f"{theirs}/w0: hi\n"
    )
    assert not first.events("attempt.ended")


def test_python_works_on_a_foreign_node_only_with_consent(
    users: tuple[Owner, Owner], tmp_path: Path
) -> None:
    first, second = users
    theirs = node_of(first)
    (tmp_path / "b.txt").write_text("b")
    herd = tpuherd.Herd(environ=second.env)
    for work in (
        lambda **how: herd.exec(theirs, "mkdir", "-p", "seen", **how),
        lambda **how: herd.sync(tmp_path, theirs, "seen", **how),
    ):
        with pytest.raises(tpuherd.HerdError, match=f"{theirs} {ASK}") as refused:
            work()
        assert refused.value.hint == "pass yes=True to confirm"
        assert (
            said_by(first, "exec", "gpt", "-c", "ls -d seen 2>/dev/null | wc -l").split()[-1] == "0"
        )
    assert herd.exec(theirs, "pwd", yes=True).status == 0
    assert herd.sync(tmp_path, theirs, "seen", yes=True).got
    assert said_by(first, "exec", "gpt", "-c", "ls seen").split()[-1] == "b.txt"


def test_a_terminal_is_asked_for_consent(users: tuple[Owner, Owner]) -> None:
    first, second = users
    theirs = node_of(first)
    for answer, status, count in ((b"n\n", 8, "0"), (b"y\n", 0, "1")):
        terminal = Terminal(second, "exec", theirs, "--", "touch", "seen")
        terminal.expect(ASK.encode())
        terminal.type(answer)
        assert terminal.end() == status
        counted = said_by(first, "exec", "gpt", "-c", "ls seen 2>/dev/null | wc -l")
        assert counted.split()[-1] == count
