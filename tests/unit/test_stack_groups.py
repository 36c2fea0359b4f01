"""How `herd profile --stacks` folds stacks: equal ones once, the odd host first."""

import pytest

from tpuherd.views.stack_groups import ProcessDump, fold_stacks, parse_stacks, stack_text

WAITS = """\
Thread 0x00007f3c{n:04x} (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 331 in wait
  File "/opt/pool.py", line 9 in work

Thread 0x00007f3d{n:04x} (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 331 in wait
  File "/opt/pool.py", line 9 in work

Current thread 0x00007f3e{n:04x} (most recent call first):
  File "train.py", line {line} in step
  File "train.py", line 90 in <module>
thread {n} python3: state S, waits in futex_wait_queue
thread 1{n} python3: state R, waits in 0
"""
SPY = """\
Process {n}: python3 train.py
Python v3.11.4 (/usr/bin/python3.11)

Thread {n} ({state}): "MainThread"
    step (train.py:12)
    <module> (train.py:90)
"""
SHELL = "thread {n} sh: state S, waits in do_wait\n"


def dump(worker: int, text: str, *, step: int | None = None, command: str = "") -> ProcessDump:
    return ProcessDump(
        host=f"gpt-0/w{worker}", slot="gpt-0", attempt="a", step=step, pid=100 + worker,
        command=command or "python3 train.py", text=text,
    )  # fmt: skip


def frames(worker: int, line: int = 12, step: int | None = 120) -> ProcessDump:
    return dump(worker, WAITS.format(n=worker, line=line), step=step)


def test_addresses_and_states_of_threads_do_not_separate() -> None:
    assert parse_stacks(WAITS.format(n=1, line=5)) == parse_stacks(WAITS.format(n=2, line=5))
    idle, active = SPY.format(n=1, state="idle"), SPY.format(n=22, state="active+gil")
    assert parse_stacks(idle) == parse_stacks(active) != ()


def test_equal_threads_of_a_process_are_counted() -> None:
    found = parse_stacks(WAITS.format(n=1, line=5))
    assert [(thread.frames[0].rpartition("line ")[2], many) for thread, many in found] == [
        ("331 in wait", 2), ("5 in step", 1),
    ]  # fmt: skip


def test_the_host_that_differs_comes_first_and_is_behind() -> None:
    dumps = [frames(worker) for worker in range(7)] + [frames(7, line=33, step=118)]
    text = stack_text(dumps)
    lines = text.splitlines()
    assert lines[0] == "8 hosts; apart from most of them: gpt-0/w7"
    assert lines[2] == "gpt-0/w7 (1 of 8 hosts), step 118, behind all others: python3 train.py"
    assert 'File "train.py", line 33 in step' in lines[3:][4]
    assert "gpt-0/w[0-6] (7 of 8 hosts), step 120: python3 train.py" in lines
    assert text.count("line 12 in step") == 1


def test_equal_stacks_are_shown_once() -> None:
    text = stack_text([frames(worker) for worker in range(64)])
    assert text.startswith("all 64 hosts are at the same place\n")
    assert text.count("in step") == 1


def test_the_shell_of_a_command_is_left_out_beside_python() -> None:
    shells = [dump(worker, SHELL.format(n=worker), command="sh -c x") for worker in range(2)]
    both = fold_stacks([*shells, frames(0), frames(1)])
    assert [one.hosts for one in both] == [{"gpt-0/w0", "gpt-0/w1"}]
    assert both[0].members[0].command == "python3 train.py"
    (alone,) = fold_stacks(shells)
    assert alone.threads[0][0].name == "sh, waits in do_wait"


@pytest.mark.parametrize("text", ["", "\x1b[2J", "Thread", "Thread x (most recent call first):"])
def test_odd_texts_are_no_error(text: str) -> None:
    assert stack_text([dump(0, text)]).startswith("1 host")


def test_reports_that_are_not_of_the_same_moment_do_not_put_a_host_behind() -> None:
    dumps = [frames(0, step=100), frames(1, step=109), frames(2, line=33, step=101)]
    lines = [line for line in stack_text(dumps).splitlines() if " of 3 hosts)" in line]
    assert lines == [
        "gpt-0/w2 (1 of 3 hosts), step 101: python3 train.py",
        "gpt-0/w[0-1] (2 of 3 hosts), step 100-109: python3 train.py",
    ]


def test_each_job_is_compared_with_itself() -> None:
    other = ProcessDump(
        host="eval-0/w0", slot="eval-0", attempt="b", step=None, pid=1, command="sleep 500",
        text=SHELL.format(n=1),
    )  # fmt: skip
    text = stack_text([frames(0), frames(1), other])
    heads = [line for line in text.splitlines() if line and not line.startswith(" ")]
    assert heads == [
        "all 2 hosts are at the same place",
        "gpt-0/w[0-1] (2 of 2 hosts), step 120: python3 train.py",
        "1 host",
        "eval-0/w0: sleep 500",
    ]
