"""SkyPilot's managed jobs: a recovery strategy that goes through zones one by one.

skypilot 0.14.1: sky/jobs/utils.py 95: the job is asked for its status every 15 s, by ssh; 98: a
starting job every 5 s. sky/jobs/controller.py 1194–1220: the cloud is asked only when the job does
not answer, or has several nodes. sky/jobs/recovery_strategy.py as said below. A hang is not seen.
Given a generous reading: `max_restarts_on_errors` is set (it is 0 by default), and a crash then
costs a set-up and a start on the same node, not a new node.
"""

from collections.abc import Callable, Sequence

from tpuherd_lab.capacity import Capacity, round_time
from tpuherd_lab.peers.recorder import GET, LIST, NodeLife, RunRecorder, Supervision

STATUS_CHECK_S = 15
STARTED_CHECK_S = 5
FIRST_BACKOFF_S = 60.0
MOST_BACKOFF_S = 5 * FIRST_BACKOFF_S
BACKOFF_FACTOR, BACKOFF_JITTER = 1.6, 0.4
FEW_TRIES, MANY_TRIES = 3, 240

RESTARTS_ON_ERRORS = Supervision(crash_seen_s=(0, STATUS_CHECK_S), sets_up_again=True)


def run_failover(run: RunRecorder) -> None:
    """FailoverStrategyExecutor.recover, recovery_strategy.py 1444–1495: the same region first."""
    run_strategy(run, lambda zone, region: zone.region == region)


def run_eager(run: RunRecorder) -> None:
    """EagerFailoverStrategyExecutor.recover, recovery_strategy.py 1522–1577, which is the default:
    other regions first.
    """
    run_strategy(run, lambda zone, region: zone.region != region)


def run_strategy(run: RunRecorder, is_preferred: Callable[[Capacity, str], bool]) -> None:
    """Launch, 398: for as long as it takes. Recover: 1536 terminate; three tries of the preferred
    zones; then, in turns of 240 tries with a minute between, of all.
    """
    zones = run.scene.zones
    node = launch_cluster(run, zones, None)
    while node:
        region = node.zone.region
        several = run.scene.gang > 1
        run.train_until_lost(node, RESTARTS_ON_ERRORS, before_s=STARTED_CHECK_S / 2)
        run.detect_by_polls(node, period_s=STATUS_CHECK_S, method=LIST if several else None)
        run.poll_once(GET)
        run.delete_node()
        preferred = [zone for zone in zones if is_preferred(zone, region)]
        node = launch_cluster(run, preferred, FEW_TRIES)
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
