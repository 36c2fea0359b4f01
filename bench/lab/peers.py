"""Models of two other tools, which do one thing at a time, with an account of every second.

A model calls the methods of `RunRecorder` in the order in which its tool acts: each moves the
clock, and books where the time went. What lies behind the end of the traces is not booked.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bench.lab.account import (
    BUCKETS,
    CAPACITY,
    CONTROLLER,
    QUEUE,
    RESTART,
    SAVE,
    SETUP,
    WASTED,
    PolicyRun,
)
from bench.lab.capacity import Capacity, join_capacities, round_time
from bench.lab.constants import Constants, Spread

from tpuherd_sim.model.world_parts import Dice
from tpuherd_sim.weather.storm import random_stream

#: After this many refusals one by one, it does not matter any more when the first one was.
SINGLE_REFUSALS = 5
STATUS_CHECK_S, STARTED_CHECK_S = 15, 5
FIRST_BACKOFF_S, MOST_BACKOFF_S = 60.0, 300.0
BACKOFF_FACTOR, BACKOFF_JITTER = 1.6, 0.4
FEW_TRIES, MANY_TRIES = 3, 240


@dataclass(frozen=True, kw_only=True, slots=True)
class Scene:
    """What a policy is tried on."""

    policy: str
    zones: tuple[Capacity, ...]  #: those that it may use
    constants: Constants
    seed: int
    length_s: float


@dataclass(frozen=True, slots=True)
class NodeLife:
    """A node from READY to the end of its zone's capacity."""

    zone: Capacity
    ready_at: float
    lost_at: float


class RunRecorder:
    """The clock and the books of one run."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.end = scene.length_s
        self.now = 0.0
        self.states: list[tuple[float, str]] = []
        self._any = join_capacities(scene.zones)
        self._spent = dict.fromkeys(BUCKETS, 0.0)
        self._productive, self._had_node = 0.0, False
        self._dice: dict[str, Dice] = {}

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
        return round_time(self._dice[purpose].random_between(*spread))

    def wait_until(self, at: float) -> None:
        """Go on to a later moment, with no node to run on."""
        stop = min(at, self.end)
        if stop > self.now:
            there = self._any.up_between(self.now, stop) if self._had_node else 0.0
            self._spent[CONTROLLER] += there
            self._spent[CAPACITY if self._had_node else QUEUE] += stop - self.now - there
        self.now = max(self.now, at)

    def wait_for(self, seconds: float) -> None:
        self.wait_until(self.now + seconds)

    def request_node(self, zone: Capacity) -> NodeLife | None:
        """Ask once for a node and wait for the answer; None: there is no capacity."""
        self.note_state(f"create {zone.zone}")
        until = zone.up_until(self.now)
        if until is None:
            self.wait_for(self.draw_seconds("stockout", self.scene.constants.stockout_s))
            return None
        ready_at = self.now + self.draw_seconds("create", self.scene.constants.create_s)
        if until <= ready_at:
            self.wait_until(until)
            self.note_state(f"lost {zone.zone}")
            return None
        self.wait_until(ready_at)
        self.note_state(f"ready {zone.zone}")
        self._had_node = self._had_node or not self.over
        return NodeLife(zone, ready_at, until)

    def request_until_granted(self, zone: Capacity) -> NodeLife | None:
        """Ask again and again; None: the traces are over."""
        while not self.over:
            self._skip_refusals(zone, sum(self.scene.constants.stockout_s) / 2)
            if node := self.request_node(zone):
                return node
        return None

    def _skip_refusals(self, zone: Capacity, period_s: float) -> None:
        """Pass most of a long time without capacity at once, with a request every period."""
        back_at = zone.next_up(self.now)
        until = self.end if back_at is None else min(back_at, self.end)
        rounds = (until - self.now) // period_s - SINGLE_REFUSALS
        if rounds > 0:
            self.note_state(f"create {zone.zone}")
            self.wait_until(self.now + round_time(rounds * period_s))

    def delete_node(self) -> None:
        """Delete the node and wait until it is gone."""
        self.note_state("delete")
        self.wait_for(self.draw_seconds("delete", self.scene.constants.delete_s))

    def train_until_lost(self, node: NodeLife, *, before_s: float = 0.0) -> None:
        """Set the node up, `before_s` after READY, and train on it until it is lost."""
        made = self.scene.constants
        for bucket, seconds in (
            (CONTROLLER, before_s), (SETUP, made.setup_s), (RESTART, made.restart_s),
        ):  # fmt: skip
            stop = min(self.now + seconds, node.lost_at, self.end)
            if stop > self.now:
                self._spent[bucket] += stop - self.now
                self.now = stop
        stop = min(node.lost_at, self.end)
        if self.now < stop:
            self.note_state("train")
            kept_s, unsaved_s, blocked_s = saved_work(stop - self.now, made)
            self.now = stop
            if self.over:  # nothing is lost with the end of the traces
                kept_s, unsaved_s = kept_s + unsaved_s, 0.0
            self._productive += kept_s
            self._spent[WASTED] += unsaved_s
            self._spent[SAVE] += blocked_s
        self.note_state(f"lost {node.zone.zone}")

    def detect_by_polls(self, node: NodeLife, period_s: float) -> None:
        """Wait until a poll shows the loss; polls began when the node was READY."""
        shown_at = node.lost_at + self.draw_seconds("visible", self.scene.constants.visible_s)
        polls = -((node.ready_at - shown_at) // period_s)
        self.wait_until(node.ready_at + polls * period_s)
        self.note_state("detected")

    def close_books(self) -> PolicyRun:
        """Return the account of the run, which is over."""
        return PolicyRun(
            policy=self.scene.policy,
            wanted_s=self.end,
            productive_s=self._productive,
            badput=self._spent,
        )


def saved_work(elapsed_s: float, made: Constants) -> tuple[float, float, float]:
    """Return how training that ends without a last save was spent: what a durable checkpoint has,
    what is lost, and how long saves kept the script from stepping.
    """
    cycle = made.fixed_interval_s + made.save_block_s
    saves, rest = divmod(elapsed_s, cycle)
    blocked = saves * made.save_block_s + max(0.0, rest - made.fixed_interval_s)
    kept = max(0.0, (elapsed_s - made.save_durable_s) // cycle) * made.fixed_interval_s
    return kept, elapsed_s - blocked - kept, blocked


def run_tpucare(run: RunRecorder) -> None:
    """ClashLuke/tpucare@d4f2bd8, tpucare/__init__.py.

    227: the TPU is always created anew; 191: `while ! gcloud … create; do echo; done`, without a
    pause; 229–236: set-up and script start in processes that nobody reads; 239–243: a list every
    CACHE_TIME = 10 s shows whether the TPU is gone; 198: it is deleted, and only then created.
    """
    while node := run.request_until_granted(run.scene.zones[0]):
        run.train_until_lost(node)
        run.detect_by_polls(node, period_s=10)
        run.delete_node()


def run_skypilot(run: RunRecorder) -> None:
    """SkyPilot 0.14.1's managed jobs with EagerFailoverStrategyExecutor.recover, the default.

    sky/jobs/utils.py 95: the job is asked for its status every 15 s, by ssh; 98: a starting job
    every 5 s. sky/jobs/recovery_strategy.py 398: launch, for as long as it takes; 1522–1577:
    terminate; three tries of other regions; then, in turns of 240 tries with a minute between, of
    all zones.
    """
    zones = run.scene.zones
    node = launch_cluster(run, zones, None)
    while node:
        others = [zone for zone in zones if zone.region != node.zone.region]
        run.train_until_lost(node, before_s=STARTED_CHECK_S / 2)
        run.detect_by_polls(node, period_s=STATUS_CHECK_S)
        run.delete_node()
        node = launch_cluster(run, others, FEW_TRIES)
        while node is None and not run.over:
            if (node := launch_cluster(run, zones, MANY_TRIES)) is None:
                run.wait_for(FIRST_BACKOFF_S)


def launch_cluster(
    run: RunRecorder, zones: Sequence[Capacity], tries: int | None
) -> NodeLife | None:
    """`_launch`, 804–1320: every zone in turn; after a round without success it backs off."""
    backoff_s, tried = 0.0, 0
    while zones and not run.over:
        for zone in zones:
            if node := run.request_node(zone):
                return node
        tried += 1
        if tries is not None and tried >= tries:
            return None
        backoff_s = next_backoff(run, backoff_s)
        run.note_state("back off")
        run.wait_for(round_time(backoff_s))
    return None


def next_backoff(run: RunRecorder, last_s: float) -> float:
    """sky/utils/common_utils.py 357: 1.6 times the last, at most five minutes, ± 40 %."""
    plain = min(last_s * BACKOFF_FACTOR, MOST_BACKOFF_S) if last_s else FIRST_BACKOFF_S
    spread = (plain * (1 - BACKOFF_JITTER), plain * (1 + BACKOFF_JITTER))
    return run.draw_seconds("backoff", spread)


#: Each with the zones between which it may move: one "zone", or "all".
MODELS: Mapping[str, tuple[Callable[[RunRecorder], None], str]] = {
    "tpucare": (run_tpucare, "zone"),
    "skypilot-eager": (run_skypilot, "all"),
}


def run_peer(scene: Scene) -> RunRecorder:
    """Return the books of a run, with its states."""
    recorder = RunRecorder(scene)
    MODELS[scene.policy][0](recorder)
    return recorder
