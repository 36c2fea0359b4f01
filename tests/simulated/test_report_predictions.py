"""Predictions of `herd report`: the same history, run again with the change, is what they said."""

from dataclasses import dataclass, replace
from random import Random

import pytest

from tests.simulated.engine_harness import EngineHarness, perform
from tests.simulated.engine_jobs import SimJob
from tests.simulated.engine_programs import Crash, Script
from tpuherd.accounting.accounts import build_accounts
from tpuherd.accounting.advice import Advice, AdviceKind, advise
from tpuherd.accounting.goodput import SlotAccount

HALF_A_POINT = 0.005
HOURS = 10.0
CHECKED = 2  #: advice of each history: to live ten hours with the real engine takes long
MEAN_LIFE_S = 2400.0
GAP_MIN_S = 700.0  #: between two strikes, so that each hits a node
ZONE = ("us-east5-a",)
BASE = Script(
    steps=100_000,
    step_s=20.0,
    save_every=45,
    save_s=15.0,
    block_s=5.0,
    init_s=75.0,
    setup_s=200.0,
    startup={"python_s": 2.0, "import_s": 28.0, "compile_s": 25.0, "first_step_s": 20.0},
    on_term="die",
    tells_saves=True,
    crashes={3: Crash(step=30)},
)
LIMITS = {"failures": None, "stalls": None, "stall_s": 900.0, "first_step_s": 2700.0}


@dataclass(frozen=True, kw_only=True)
class Strike:
    """A preemption to come."""

    at_s: float
    notice_s: float


def plan_strikes(seed: int, hours: float) -> list[Strike]:
    chance, at = Random(seed), 0.0
    strikes: list[Strike] = []
    while True:
        at += GAP_MIN_S + chance.expovariate(1 / (MEAN_LIFE_S - GAP_MIN_S))
        if at >= hours * 3600.0:
            return strikes
        strikes.append(Strike(at_s=at, notice_s=chance.choice([0.0, 30.0])))


def live(script: Script, limits: dict[str, float | None], seed: int, hours: float) -> SlotAccount:
    """The account of a job after some hours of this weather."""
    strikes = plan_strikes(seed, hours)

    async def plot(play: EngineHarness) -> SlotAccount:
        start = play.sim.now()
        play.submit(SimJob(zones=ZONE, limits=limits))
        for strike in strikes:
            await play.advance(max(0.0, start + strike.at_s - play.sim.now()))
            for name, state in play.sim.nodes().items():
                if state == "READY":
                    play.sim.weather("preempt", target=name, notice_s=strike.notice_s)
        await play.advance(max(0.0, start + hours * 3600.0 - play.sim.now()))
        return build_accounts(play.events(), play.sim.clock.now())["gpt-0"]

    found: SlotAccount = perform(plot, scripts={"gpt": script}, seed=seed)
    return found


@pytest.mark.parametrize("seed", [1, 2])
def test_the_greatest_gains_are_what_the_engine_achieves(seed: int) -> None:
    account = live(BASE, LIMITS, seed, HOURS)
    advice = advise([account]).advice[:CHECKED]
    assert advice
    for one in advice:
        changed, limits = changed_job(BASE, one, account)
        real = live(changed, limits, seed, HOURS)
        assert real.goodput == pytest.approx(one.goodput, abs=HALF_A_POINT), one


def changed_job(
    script: Script, advice: Advice, account: SlotAccount
) -> tuple[Script, dict[str, float | None]]:
    """The same job with the change."""
    change, parts = advice.change, script.startup
    match advice.kind:
        case AdviceKind.CHECKPOINTS:
            return replace(script, save_every=change.save_every or 1), LIMITS
        case AdviceKind.NOTICE:
            return replace(script, on_term="save"), LIMITS
        case AdviceKind.FAILURES:
            return replace(script, crashes={}), LIMITS
        case AdviceKind.STALL:
            return script, {**LIMITS, "stall_s": change.stall_s}
        case AdviceKind.SETUP:
            took_s = account.runs[0].setup_s
            assert took_s is not None
            shipping_s = took_s - script.setup_s
            return replace(script, setup_s=change.setup_s - shipping_s), LIMITS
        case AdviceKind.BOOT:
            faster_s = parts["python_s"] + parts["import_s"] - change.boot_s
            return replace(script, init_s=script.init_s - faster_s), LIMITS
        case AdviceKind.COMPILE:
            later_s = script.init_s - parts["compile_s"] + change.compile_s
            return replace(script, later_init_s=later_s), LIMITS
