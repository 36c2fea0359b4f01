"""Folds the stacks of many processes: equal ones are shown once, and the odd one first. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tpuherd.targets import fold_names
from tpuherd.views.format_text import shorten_command

ADDRESS = re.compile(r"0x[0-9a-fA-F]+")
#: The first line of a thread, as faulthandler, py-spy, or our agent for the kernel, write it.
FAULTHANDLER = re.compile(r"(?:Current thread|Thread) \S+( \[.*\])? \(most recent call first\):")
PY_SPY = re.compile(r"Thread \S+ \([^()]*\)(?:: \"(.*)\")?")
KERNEL = re.compile(r"thread \d+ (.*): state (\S+), waits in (\S+)")
SKIPPED = re.compile(r"Process \d+:|Python v\S+ \(.*\)|\s*")
FRAMES_MAX = 100  #: of a thread that are shown


@dataclass(frozen=True, slots=True)
class ThreadStack:
    """A thread: its name, and its frames with the innermost first."""

    name: str
    frames: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessDump:
    """A process of an attempt with the text of its stacks."""

    host: str  #: gpt-0/w3
    slot: str
    attempt: str
    step: int | None  #: the last one that the attempt reported there
    pid: int | None
    command: str
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class StackGroup:
    """Processes whose stacks are equal."""

    threads: tuple[tuple[ThreadStack, int], ...]  #: with how many threads of a process have it
    members: tuple[ProcessDump, ...]

    @property
    def hosts(self) -> frozenset[str]:
        return frozenset(one.host for one in self.members)

    @property
    def steps(self) -> Sequence[int]:
        """The lowest and the highest step of its hosts; empty if none is known."""
        known = [one.step for one in self.members if one.step is not None]
        return (min(known), max(known)) if known else ()


def parse_stacks(text: str) -> tuple[tuple[ThreadStack, int], ...]:
    """Return the Python stacks in this text, or the kernel's if there are none.

    What differs from process to process though they do the same is left out: addresses, numbers
    of threads, and whether a thread runs or waits.
    """
    python: list[ThreadStack] = []
    kernel: list[ThreadStack] = []
    into, name, frames = python, "", list[str]()

    def end_thread() -> None:
        if name:
            into.append(ThreadStack(name, tuple(frames)))
        frames.clear()

    for line in text.splitlines():
        python_thread = FAULTHANDLER.fullmatch(line) or PY_SPY.fullmatch(line)
        kernel_thread = KERNEL.fullmatch(line)
        if python_thread or kernel_thread:
            end_thread()
        if python_thread:
            into, name = python, (python_thread[1] or "").strip(" []") or "thread"
        elif kernel_thread:
            into, name = kernel, f"{kernel_thread[1]}, waits in {kernel_thread[3]}"
        elif name and not SKIPPED.fullmatch(line):
            frames.append(ADDRESS.sub("0x…", line.strip()))
    end_thread()
    counts: dict[ThreadStack, int] = {}
    for one in python or kernel:
        counts[one] = counts.get(one, 0) + 1
    return tuple(counts.items())


def is_python(text: str) -> bool:
    return any(FAULTHANDLER.fullmatch(it) or PY_SPY.fullmatch(it) for it in text.splitlines())


def fold_stacks(dumps: Sequence[ProcessDump]) -> list[StackGroup]:
    """Return the groups with the fewest hosts first. Processes without Python, such as the shell
    of a command, are left out if others of their host have it.
    """
    python = {one.host for one in dumps if is_python(one.text)}
    found: dict[Any, list[ProcessDump]] = {}
    for one in dumps:
        if one.host in python and not is_python(one.text):
            continue
        found.setdefault(parse_stacks(one.text), []).append(one)
    groups = [StackGroup(threads=key, members=tuple(mine)) for key, mine in found.items()]
    return sorted(groups, key=lambda one: (len(one.hosts), *one.steps[:1]))


def stack_text(dumps: Sequence[ProcessDump]) -> str:
    """Return the text of each job; the copies of a job are compared with each other."""
    jobs: dict[str, list[ProcessDump]] = {}
    for one in dumps:
        jobs.setdefault(one.slot.rpartition("-")[0], []).append(one)
    return "\n\n".join(job_text(mine) for mine in jobs.values())


def job_text(dumps: Sequence[ProcessDump]) -> str:
    """Return a summary, then each group: who it is, and where it is."""
    groups = fold_stacks(dumps)
    every = {one.host for one in dumps}
    parts = [summary_line(groups, len(every))]
    for one in groups:
        others = [step for other in groups if other is not one for step in other.steps[:1]]
        lines = [group_head(one, len(every), min(others, default=None)), *thread_lines(one)]
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def summary_line(groups: Sequence[StackGroup], hosts: int) -> str:
    if hosts == 1:
        return "1 host" if len(groups) == 1 else f"1 host, processes at {len(groups)} places"
    if len(groups) == 1:
        return f"all {hosts} hosts are at the same place"
    odd = [one for one in groups if len(one.hosts) * 2 < hosts]
    if odd and hosts > 2:
        names = fold_names(name for one in odd for name in one.hosts)
        return f"{hosts} hosts; apart from most of them: {names}"
    return f"{hosts} hosts at {len(groups)} places"


def group_head(one: StackGroup, hosts: int, others: int | None) -> str:
    """gpt-0/w3 (1 of 8 hosts), step 118, behind all others: python3 train.py

    `others`: the lowest step of the hosts outside of this group.
    """
    processes = len(one.members) / len(one.hosts)
    each = f", {processes:.3g} processes each" if processes > 1 else ""
    step = f", step {'-'.join(map(str, dict.fromkeys(one.steps)))}" if one.steps else ""
    if one.steps and others is not None and one.steps[1] < others:
        step += ", behind all others"
    command = shorten_command(one.members[0].command)
    part = f" ({len(one.hosts)} of {hosts} hosts{each})" if hosts > 1 or each else ""
    return f"{fold_names(one.hosts)}{part}{step}: {command}"


def thread_lines(one: StackGroup) -> Iterator[str]:
    for thread, many in one.threads:
        yield f"  {thread.name}{f' × {many}' if many > 1 else ''}"
        yield from (f"    {frame}" for frame in thread.frames[:FRAMES_MAX])
        if len(thread.frames) > FRAMES_MAX:
            yield f"    … {len(thread.frames) - FRAMES_MAX} more frames"


def list_stack_objects(dumps: Sequence[ProcessDump]) -> list[Mapping[str, Any]]:
    return [
        {
            "host": one.host, "slot": one.slot, "attempt": one.attempt, "step": one.step,
            "pid": one.pid, "command": one.command, "text": one.text,
        }
        for one in dumps
    ]  # fmt: skip
