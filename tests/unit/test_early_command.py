"""Which commands may start early, and what starts in their place."""

import pytest

from tpuherd_host.agent.early.early_command import early_argv

SHELL = ("$SHELL", "-c")


@pytest.mark.parametrize(
    ("command", "early"),
    [
        ("python3 train.py", "exec python3 A early train.py"),
        ("python train.py --steps 4", "exec python A early train.py --steps 4"),
        ("exec python3 -u -X dev train.py", "exec python3 -u -X dev A early train.py"),
        ("/venv/bin/python3.11 -m pkg.run -u", "exec /venv/bin/python3.11 A early -m pkg.run -u"),
        ("X=cpu A='b c' python3 t.py", "X=cpu A='b c' exec python3 A early t.py"),
        ("python3 train.py --name 'a; rm -rf x'", None),  # safe, but not obviously so
        ("python3 'my train.py'", "exec python3 A early 'my train.py'"),
    ],
)  # fmt: skip
def test_a_plain_python_program_waits_in_the_agents_program(command: str, early: str) -> None:
    found = early_argv((*SHELL, command), "A")
    assert found == (None if early is None else [*SHELL, early])


@pytest.mark.parametrize(
    "command",
    [
        "./prepare.sh && python3 train.py", "python3 a.py; python3 b.py", "python3 a.py > log",
        "python3 a.py &", "python3 $SCRIPT", "python3 ~/a.py", "python3 a.py *.txt", "python3",
        "python3 -c pass.py", "python3 -I a.py", "python3 -S a.py", "python3 -E a.py",
        "torchrun a.py",
        "python3 -m", "python3 train", "sudo python3 a.py", "python3 a.py 'x", "", "A=1",
        "bash a.py",
        "python3 `cat x`.py", "python3 a.py\nrm x", "python3 -X", "python3 a.py # why",
    ],
)  # fmt: skip
def test_what_does_more_starts_in_its_turn(command: str) -> None:
    assert early_argv((*SHELL, command), "A") is None


def test_words_need_no_shell() -> None:
    assert early_argv(("python3", "-u", "a b.py", "$x"), "A") == [
        "python3", "-u", "A", "early", "a b.py", "$x",
    ]  # fmt: skip
    assert early_argv(("true",), "A") is None
    assert early_argv((), "A") is None
