"""Runs a policy with a deadline through one window of capacity, as Can't Be Late counts.

Time goes by ticks. A policy sees which zones have spot in this tick and chooses a node. A new node
needs `start_s` before it works; a start that is not over begins anew with the next node. A tick
costs the price of its node. Work is never lost: what is lost is the time of the starts.
Model: Wu et al., NSDI 2024, and its simulator (Frontier-CS, cant_be_late).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from tpuherd.planner.deadline_choice import (
    DeadlineFacts,
    DeadlineMode,
    NodeTier,
    choose_deadline_mode,
    even_pace,
)

NO_NODE, FIRM_NODE = -2, -1  #: beside the numbers of zones
HOUR_S = 3600.0


@dataclass(frozen=True, kw_only=True, slots=True)
class DeadlineWindow:
    """In which ticks each zone has spot."""

    name: str
    tick_s: float
    zones: tuple[tuple[bool, ...], ...]

    def zones_with_spot(self, tick: int) -> list[int]:
        """Their numbers; beyond the end of the window there is no spot."""
        return [zone for zone, has in enumerate(self.zones) if tick < len(has) and has[tick]]


@dataclass(frozen=True, kw_only=True, slots=True)
class DeadlineTask:
    """What is to be done, until when, and at which prices."""

    work_s: float = 48 * HOUR_S
    deadline_s: float = 52 * HOUR_S
    start_s: float = 0.2 * HOUR_S
    spot_price: float = 0.97
    firm_price: float = 3.06


@dataclass(frozen=True, kw_only=True, slots=True)
class DeadlineRun:
    """What a policy did in one window."""

    dollars: float
    ended_s: float  #: infinite: not by the deadline
    firm_s: float
    idle_s: float
    starts: int


@dataclass(kw_only=True, slots=True)
class DeadlineState:
    """A run at the begin of a tick, as its policy sees it."""

    task: DeadlineTask
    tick_s: float
    now_s: float = 0.0
    work_s: float = 0.0  #: left
    node: int = NO_NODE  #: a zone, FIRM_NODE or NO_NODE; a lost one is gone already
    spot: Sequence[int] = ()  #: zones that have some now
    notes: dict[str, bool] = field(default_factory=dict)  #: what a policy remembers

    @property
    def left_s(self) -> float:
        """Until the last tick that ends by the deadline."""
        return self.task.deadline_s // self.tick_s * self.tick_s - self.now_s

    def spot_or(self, other: int) -> int:
        """The zone it is in while that has spot, else another one that has, else `other`."""
        if self.node in self.spot:
            return self.node
        return self.spot[0] if self.spot else other


DeadlinePolicy = Callable[[DeadlineState], int]


def run_deadline(window: DeadlineWindow, task: DeadlineTask, policy: DeadlinePolicy) -> DeadlineRun:
    tick_s = window.tick_s
    state = DeadlineState(task=task, tick_s=tick_s, work_s=task.work_s)
    starting_s = dollars = firm_s = idle_s = 0.0
    starts = 0
    for tick in range(int(task.deadline_s // tick_s)):
        state.now_s = tick * tick_s
        state.spot = window.zones_with_spot(tick)
        if state.node >= 0 and state.node not in state.spot:
            state.node = NO_NODE
        node = policy(state)
        if node != state.node and node != NO_NODE:
            starting_s, starts = task.start_s, starts + 1
        state.node = node
        if node == NO_NODE:
            idle_s += tick_s
            continue
        firm_s += tick_s if node == FIRM_NODE else 0.0
        dollars += (task.firm_price if node == FIRM_NODE else task.spot_price) * tick_s / HOUR_S
        worked_s = max(0.0, tick_s - starting_s)
        starting_s = max(0.0, starting_s - tick_s)
        if worked_s >= state.work_s - 1e-6:
            return DeadlineRun(dollars=dollars, ended_s=state.now_s + tick_s, firm_s=firm_s,
                               idle_s=idle_s, starts=starts)  # fmt: skip
        state.work_s -= worked_s
    return DeadlineRun(dollars=dollars, ended_s=inf, firm_s=firm_s, idle_s=idle_s, starts=starts)


def run_firm_only(state: DeadlineState) -> int:
    """On-demand from the first minute."""
    return FIRM_NODE


def run_spot_else_firm(state: DeadlineState) -> int:
    """Spot where there is some, else on-demand; it never waits."""
    return FIRM_NODE if must_stay_firm(state) else state.spot_or(FIRM_NODE)


def run_greedy(state: DeadlineState) -> int:
    """Spot where there is some; it waits until the deadline leaves it no choice."""
    return FIRM_NODE if must_stay_firm(state) else state.spot_or(NO_NODE)


def must_stay_firm(state: DeadlineState) -> bool:
    """Can't Be Late's safety net: what does not run on spot has no time for two more starts."""
    needed_s = 2 * state.task.start_s + state.tick_s
    if state.node not in state.spot and state.left_s - state.work_s < needed_s:
        state.notes["net"] = True
    return state.notes.get("net", False)


def run_uniform_progress(state: DeadlineState) -> int:
    """Can't Be Late's policy, with its four rules (section 4.3 of the paper)."""
    if must_stay_firm(state):
        return FIRM_NODE
    if state.node in state.spot:
        return state.node
    if state.node == FIRM_NODE:
        ahead = is_on_line(state, 2 * state.task.start_s)
        return state.spot_or(FIRM_NODE) if ahead else FIRM_NODE
    return state.spot_or(NO_NODE if is_on_line(state, 0.0) else FIRM_NODE)


def is_on_line(state: DeadlineState, later_s: float) -> bool:
    """Whether as much is done as an even pace would have done so much later."""
    task = state.task
    return task.work_s - state.work_s >= (state.now_s + later_s) * task.work_s / task.deadline_s


def run_tpuherd(state: DeadlineState) -> int:
    """What the planner of herd chooses."""
    task = state.task
    on = NodeTier.NONE
    if state.node != NO_NODE:
        on = NodeTier.FIRM if state.node == FIRM_NODE else NodeTier.SPOT
    mode = choose_deadline_mode(
        DeadlineFacts(
            left_s=state.left_s,
            work_s=state.work_s,
            start_s=task.start_s,
            pace=even_pace(task.work_s, task.deadline_s, task.start_s),
            on=on,
            react_s=state.tick_s,
        )
    )
    if mode is DeadlineMode.FIRM:
        return FIRM_NODE
    return state.spot_or(NO_NODE if mode is DeadlineMode.WAIT else FIRM_NODE)


DEADLINE_POLICIES: Mapping[str, DeadlinePolicy] = {
    "tpuherd": run_tpuherd,
    "uniform-progress": run_uniform_progress,
    "greedy": run_greedy,
    "spot-then-on-demand": run_spot_else_firm,
    "on-demand": run_firm_only,
}
