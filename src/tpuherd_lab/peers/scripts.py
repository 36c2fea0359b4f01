"""Tools that look after one TPU in one zone: tpucare, TPU Unicorn, Levanter's script."""

from tpuherd_lab.capacity import round_time
from tpuherd_lab.peers.recorder import GET, LIST, NodeLife, RunRecorder, Supervision

#: A human logs in and starts the script again.
HUMAN_ONLY = Supervision()
#: The loop of the script runs the command again, on the node as it is.
AFTER_SLEEP = Supervision(crash_seen_s=(10, 12))


def run_tpucare(run: RunRecorder) -> None:
    """ClashLuke/tpucare@d4f2bd8, tpucare/__init__.py.

    227: the TPU is always created anew; 191: `while ! gcloud … create; do echo; done`, without a
    pause; 229–236: set-up and script start in processes that nobody reads; 239–243: a list every
    CACHE_TIME = 10 s shows whether the TPU is gone; 198: it is deleted, and only then created.
    A crash of the script changes nothing that it looks at.
    """
    zone = run.scene.zones[0]
    while node := run.request_until_granted(zone, 0.0):
        run.train_until_lost(node, HUMAN_ONLY)
        run.detect_by_polls(node, period_s=10, method=LIST)
        run.delete_node()
        run.poll_once(LIST)  # 174: is it gone?


def run_tpunicorn(run: RunRecorder) -> None:
    """shawwn/tpunicorn@01b38fb, tpunicorn/program.py, `pu babysit` and `pu recreate`.

    babysit: sleeps 30 s, then recreates the TPU if (and only if) its state is PREEMPTED; recreate:
    deletes, sleeps 1 s (do_step's delay_after), creates once, waits until it is HEALTHY, runs the
    command. A create that fails ends in sys.exit, which babysit's bare `except` swallows; the TPU
    is gone from then on, and each later look fails with "No TPUs matched". So a stock-out lasts
    until a human looks, who then (generously) asks until there is capacity.
    """
    zone = run.scene.zones[0]
    node = run.request_until_granted(zone, 0.0)
    while node:
        run.train_until_lost(node, HUMAN_ONLY)
        run.detect_by_polls(node, period_s=30, method=GET)
        run.delete_node()
        run.wait_for(1.0)
        node = run.request_node(zone) or recreate_by_hand(run)


def recreate_by_hand(run: RunRecorder) -> NodeLife | None:
    """The babysitter looks every 30 s for a TPU that does not exist, until a human looks."""
    run.note_state("gone")
    look_at = run.next_look()
    run.log.add_polls(LIST, run.now, look_at, 30)
    run.wait_until(look_at)
    return run.request_until_granted(run.scene.zones[0], 0.0)


def run_levanter(run: RunRecorder) -> None:
    """stanford-crfm/levanter@9263f81e, infra/babysit-tpu-vm.sh and infra/spin-up-vm.sh.

    babysit 68–103: describe; READY: run the command over ssh, in the foreground; any other state:
    delete, and wait for it; not found: spin-up; then `sleep 10` and again. spin-up 54–57: create,
    with `sleep 5` after each failure; 60: `sleep 15`; 67–98: the set-up. A crash ends the ssh
    session, so the loop starts the command again; a hang does not end it. src/levanter/
    checkpoint.py 617: a checkpoint every 15 minutes.
    """
    zone = run.scene.zones[0]
    while node := run.request_until_granted(zone, 5.0):
        run.train_until_lost(node, AFTER_SLEEP, before_s=15.0 + 10.0)
        # ssh breaks; describes 10 s apart say READY until the API shows the loss.
        run.detect_by_polls(node, period_s=10, method=None)
        run.poll_once(GET)
        run.delete_node()
        run.wait_for(10.0)
        run.poll_once(GET)


def run_uniform_progress(run: RunRecorder) -> None:
    """Can't Be Late (NSDI '24), as in FrontierCS/Frontier-CS, cant-be-late-simulator/sky_spot.

    strategies: once a tick of the trace, spot if the zone has it, and on it until it is lost;
    on-demand only where the progress falls behind the line to the deadline. Without a deadline
    there is no such line: what remains is to take spot whenever a tick finds it.
    """
    zone = run.scene.zones[0]
    while not run.over:
        if run.scene.tick_s > run.constants.stockout_s[1]:  # else an answer may take two ticks
            run.skip_refusals(zone, run.scene.tick_s)
        if node := run.request_node(zone):
            run.train_until_lost(node, HUMAN_ONLY)
            run.detect_by_polls(node, period_s=run.scene.tick_s, method=GET)
        else:
            wait_for_tick(run)


def run_greedy(run: RunRecorder) -> None:
    """FrontierCS/Frontier-CS@4d508c1, research/problems/cant_be_late_multi/common/
    initial_program.py.

    64–66: spot if the place where it is has it; 68–76: else go to the next one in the list, and
    look there a tick later; 55–62: on-demand when the deadline presses, which there is none here.
    """
    zones, at = run.scene.zones, 0
    while not run.over:
        if node := run.request_node(zones[at]):
            run.train_until_lost(node, HUMAN_ONLY)
            run.detect_by_polls(node, period_s=run.scene.tick_s, method=GET)
        else:
            at = (at + 1) % len(zones)
            wait_for_tick(run)


def wait_for_tick(run: RunRecorder) -> None:
    tick = run.scene.tick_s
    run.wait_until(round_time((run.now // tick + 1) * tick))
