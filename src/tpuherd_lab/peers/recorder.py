"""Runs a controller that does one thing at a time, and accounts for every second of it.

A model of a policy calls the methods in the order in which its controller acts: each moves the
clock, and books where the time went. What lies behind the end of the traces is not booked.
"""

from bisect import bisect_right
from dataclasses import dataclass
from enum import Enum

from tpuherd_lab.capacity import Capacity, join_capacities, round_time
from tpuherd_lab.constants import HOUR, Constants, Spread
from tpuherd_lab.peers.call_log import CallLog
from tpuherd_lab.peers.faults import fault_times
from tpuherd_lab.policy_run import (
    BUCKETS,
    CAPACITY,
    CONTROLLER,
    DOWN,
    HUNG,
    QUEUE,
    RESTART,
    SAVE,
    SETUP,
    WASTED,
    PolicyRun,
    Recovery,
    digest_of,
)
from tpuherd_lab.saves import SavedWork, saved_work
from tpuherd_sim.model.world_parts import Dice
from tpuherd_sim.weather.storm import random_stream

CREATE, DELETE, GET, LIST = "nodes.create", "nodes.delete", "nodes.get", "nodes.list"
#: After this many refusals one by one, it does not matter any more when the first one was.
SINGLE_REFUSALS = 5


class Ending(Enum):
    """How a script stopped stepping."""

    LOST = "lost"
    CRASHED = "crashed"
    HUNG = "hung"
    OVER = "over"


@dataclass(frozen=True, kw_only=True, slots=True)
class Scene:
    """What a policy is tried on."""

    policy: str
    traces: str
    zones: tuple[Capacity, ...]  #: those that it may use
    constants: Constants
    seed: int
    length_s: float
    gang: int = 1
    tick_s: float = 60.0  #: of the traces


@dataclass(frozen=True, slots=True)
class NodeLife:
    """A node from READY to the end of its zone's capacity."""

    zone: Capacity
    ready_at: float
    lost_at: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Supervision:
    """What a policy sees of a crash; a hang is seen by a human only."""

    crash_seen_s: Spread | None = None  #: after this time; None: when a human looks
    sets_up_again: bool = False


class RunRecorder:
    """The clock and the books of one run."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.constants = scene.constants
        self.end = scene.length_s
        self.now = 0.0
        self.log = CallLog(self.end)
        self.states: list[tuple[float, str]] = []
        self._any = join_capacities(scene.zones)
        self._spent = dict.fromkeys(BUCKETS, 0.0)
        self._productive = self._steps_lost = self._billed = 0.0
        self._hops, self._region = 0, ""
        self._losses: list[Recovery] = []
        self._lost_at: float | None = None
        self._detected_at: float | None = None
        self._replaced_at: float | None = None
        self._dice: dict[str, Dice] = {}
        length, made = scene.length_s, scene.constants
        self._faults = sorted(
            [
                (at, Ending.CRASHED)
                for at in self._fault_moments("crash", made.crash_every_s, length)
            ]
            + [(at, Ending.HUNG) for at in self._fault_moments("hang", made.hang_every_s, length)],
            key=lambda fault: fault[0],
        )

    def _fault_moments(
        self, kind: str, every_s: float | None, length_s: float
    ) -> tuple[float, ...]:
        return fault_times(self.scene.seed, kind, every_s, length_s)

    @property
    def over(self) -> bool:
        return self.now >= self.end

    def note_state(self, state: str) -> None:
        """Take down what happens now; what is repeated is taken down once."""
        if not self.over and (not self.states or self.states[-1][1] != state):
            self.states.append((self.now, state))

    def draw_seconds(self, purpose: str, spread: Spread) -> float:
        """Return the next random duration of this purpose; policies of a seed draw the same."""
        if purpose not in self._dice:
            self._dice[purpose] = random_stream(self.scene.seed, "draw", purpose)
        low, high = spread
        return round_time(self._dice[purpose].random_between(low, high))

    # ---- without a node

    def wait_until(self, at: float) -> None:
        """Go on to a later moment, with no node to run on."""
        self._book_gap(self.now, at)
        self.now = max(self.now, at)

    def wait_for(self, seconds: float) -> None:
        self.wait_until(self.now + seconds)

    def request_node(self, zone: Capacity) -> NodeLife | None:
        """Ask once for a node and wait for the answer; None: there is no capacity."""
        self.log.add_call(CREATE, self.now)
        self.note_state(f"create {zone.zone}")
        until = zone.up_until(self.now)
        if until is None:
            self.wait_for(self.draw_seconds("stockout", self.constants.stockout_s))
            return None
        ready_at = self.now + self.draw_seconds("create", self.constants.create_s)
        if until <= ready_at:
            self.wait_until(until)
            self.note_state(f"lost {zone.zone}")
            return None
        self.wait_until(ready_at)
        self._take_node(zone)
        return NodeLife(zone, ready_at, until)

    def _take_node(self, zone: Capacity) -> None:
        self.note_state(f"ready {zone.zone}")
        if self.over:
            return
        self._hops += self._region not in ("", zone.region)
        self._region = zone.region
        self._replaced_at = self.now

    def request_until_granted(self, zone: Capacity, pause_s: float) -> NodeLife | None:
        """Ask again and again; None: the traces are over."""
        period_s = sum(self.constants.stockout_s) / 2 + pause_s
        while not self.over:
            self.skip_refusals(zone, period_s)
            if node := self.request_node(zone):
                return node
            self.wait_for(pause_s)
        return None

    def skip_refusals(self, zone: Capacity, period_s: float) -> None:
        """Pass most of a long time without capacity at once, with a request every period."""
        back_at = zone.next_up(self.now)
        until = self.end if back_at is None else min(back_at, self.end)
        rounds = (until - self.now) // period_s - SINGLE_REFUSALS
        if rounds > 0:
            self.note_state(f"create {zone.zone}")
            skipped_until = self.now + round_time(rounds * period_s)
            self.log.add_polls(CREATE, self.now, skipped_until, period_s)
            self.wait_until(skipped_until)

    def delete_node(self) -> None:
        """Delete the node and wait until it is gone."""
        self.log.add_call(DELETE, self.now)
        self.note_state("delete")
        self.wait_for(self.draw_seconds("delete", self.constants.delete_s))

    # ---- with a node

    def train_until_lost(
        self, node: NodeLife, supervision: Supervision, *, before_s: float = 0.0
    ) -> None:
        """Set the node up and train on it, through faults of the script, until it is lost.

        `before_s` passes between READY and the set-up.
        """
        self._spend_on(CONTROLLER, node, before_s)
        ending = self._run_script(node, set_up=True)
        while ending in (Ending.CRASHED, Ending.HUNG):
            seen_at, set_up = self._seen_at(ending, supervision)
            self._spend_on(DOWN if ending is Ending.CRASHED else HUNG, node, seen_at - self.now)
            ending = self._run_script(node, set_up=set_up)
        self._billed += min(node.lost_at, self.end) - min(node.ready_at, self.end)
        if ending is Ending.LOST and self._lost_at is None:
            self._lost_at = node.lost_at
            self._detected_at = self._replaced_at = None

    def _seen_at(self, ending: Ending, supervision: Supervision) -> tuple[float, bool]:
        """Return when a fault is seen, and whether the hosts are set up again then."""
        if ending is Ending.CRASHED and supervision.crash_seen_s is not None:
            seen_s = self.draw_seconds("crash", supervision.crash_seen_s)
            return self.now + seen_s, supervision.sets_up_again
        return self.next_look(), False

    def next_look(self) -> float:
        """Return when a human looks next."""
        every = self.constants.human_look_s
        return (self.now // every + 1) * every

    def _run_script(self, node: NodeLife, *, set_up: bool) -> Ending:
        """Start the script and let it step until something ends it."""
        if set_up:
            self._spend_on(SETUP, node, self.constants.setup_s)
        self._spend_on(RESTART, node, self.constants.restart_s)
        stop = min(node.lost_at, self.end)
        if self.now < stop:
            self.note_state("train")
            self._close_loss()
            ended, ending = self._next_fault(stop)
            self._book_training(ended - self.now, ended=ended)
            self.now = ended
            if ending:
                self.note_state(ending.value)
                return ending
        if self.over:
            return Ending.OVER
        self.note_state(f"lost {node.zone.zone}")
        return Ending.LOST

    def _spend_on(self, bucket: str, node: NodeLife, seconds: float) -> None:
        """Pass time on a node that may be lost in it."""
        stop = min(self.now + seconds, node.lost_at, self.end)
        if stop > self.now:
            self._spent[bucket] += stop - self.now
            self.now = stop

    def _next_fault(self, stop: float) -> tuple[float, Ending | None]:
        index = bisect_right(self._faults, self.now, key=lambda fault: fault[0])
        if index < len(self._faults) and self._faults[index][0] < stop:
            return self._faults[index]
        return stop, None

    def _book_training(self, elapsed_s: float, *, ended: float) -> None:
        made = self.constants
        work = saved_work(
            elapsed_s,
            interval_s=made.fixed_interval_s,
            block_s=made.save_block_s,
            durable_s=made.save_durable_s,
        )
        if ended >= self.end:  # nothing is lost with the end of the traces
            work = SavedWork(
                kept_s=work.kept_s + work.unsaved_s, unsaved_s=0.0, blocked_s=work.blocked_s
            )
        self._productive += work.kept_s
        self._steps_lost += work.unsaved_s
        self._spent[WASTED] += work.unsaved_s
        self._spent[SAVE] += work.blocked_s

    # ---- losses

    def detect_by_polls(self, node: NodeLife, *, period_s: float, method: str | None) -> None:
        """Wait until a poll shows the loss; polls began when the node was READY."""
        shown_at = node.lost_at + self.draw_seconds("visible", self.constants.visible_s)
        polls = -((node.ready_at - shown_at) // period_s)
        found_at = node.ready_at + polls * period_s
        if method:
            self.log.add_polls(method, node.ready_at, found_at, period_s)
        self.wait_until(found_at)
        self.note_detection()

    def poll_once(self, method: str) -> None:
        self.log.add_call(method, self.now)

    def note_detection(self) -> None:
        """Take down that the policy knows of the loss by now."""
        self.note_state("detected")
        if self._detected_at is None and not self.over:
            self._detected_at = self.now

    def _close_loss(self) -> None:
        if self._lost_at is None:
            return
        self._losses.append(self._make_recovery(self._lost_at, self.now))
        self._lost_at = None

    def _make_recovery(self, lost_at: float, first_step_at: float | None) -> Recovery:
        until = self.end if first_step_at is None else first_step_at
        without = until - lost_at - self._any.up_between(lost_at, until)
        return Recovery(
            lost_at=lost_at,
            detected_at=self._detected_at,
            replaced_at=self._replaced_at,
            first_step_at=first_step_at,
            without_capacity_s=max(0.0, without),
        )

    # ---- the books

    def _book_gap(self, start: float, stop: float) -> None:
        stop = min(stop, self.end)
        if stop <= start:
            return
        if not self._region:
            self._spent[QUEUE] += stop - start
            return
        there = self._any.up_between(start, stop)
        self._spent[CONTROLLER] += there
        self._spent[CAPACITY] += stop - start - there

    def close_books(self) -> PolicyRun:
        """Return the account of the run, which is over."""
        scene, made = self.scene, self.constants
        if self._lost_at is not None:
            self._losses.append(self._make_recovery(self._lost_at, None))
        egress_gb = self._hops * made.checkpoint_gb
        hours = self._billed / HOUR
        return PolicyRun(
            policy=scene.policy,
            traces=scene.traces,
            seed=scene.seed,
            wanted_s=self.end,
            productive_s=self._productive,
            badput=self._spent,
            losses=tuple(self._losses),
            steps_lost_s=self._steps_lost,
            billed_s=self._billed,
            dollars=hours * made.spot_per_hour * scene.gang + egress_gb * made.egress_per_gb,
            hops=self._hops,
            egress_gb=egress_gb,
            api_calls=dict(sorted(self.log.calls.items())),
            peak_calls_per_minute=self.log.peak,
            digest=digest_of(self.states),
        )
