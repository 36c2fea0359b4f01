"""What commands show on terminals, as scenes: `python -m tests.unit.screen_scenes` writes them.

The files in tests/scenarios/screens are for people to look at, and tests compare them. ESC is
written as ␛, so that a colour can be read.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import inf, nan, sin
from pathlib import Path
from typing import Any

from tests.unit.event_stories import START, StoryLog, struck
from tpuherd.accounting.accounts import build_accounts
from tpuherd.accounting.goodput import GoodputState
from tpuherd.model.search import Parameter, Search
from tpuherd.model.slot_history import Verdict
from tpuherd.model.slots_and_plan import Goal, HistoryEvent
from tpuherd.model.stored_job import StoredJob
from tpuherd.views.capacity_table import capacity_rows
from tpuherd.views.event_screen import event_screen, why_screen
from tpuherd.views.job_rows import StoreView, job_page, job_row
from tpuherd.views.job_screens import jobs_screen, status_screen
from tpuherd.views.plan_screens import capacity_screen, plan_screen
from tpuherd.views.printable import show_values
from tpuherd.views.slot_pictures import Curve
from tpuherd.views.sweep_screen import best_screen, plot_screen, sweep_screen
from tpuherd.views.text_width import to_ascii

FOLDER = Path(__file__).parents[1] / "scenarios" / "screens"
HOSTILE = "\x1b[31mevil\x1b]0;title\x07\u202e\r"
WIDTHS = (80, 120, 240)
Scene = Callable[[bool, int], str]


def document(copies: int) -> dict[str, Any]:
    return {"name": "gpt", "accelerator": "v4-32", "tier": "spot", "run": "python3 train.py",
            "copies": copies}  # fmt: skip


def working_story() -> StoryLog:
    """Lost its node once, and works again."""
    story = struck(host="gpt-0-g1-7kq/w3", exit=137, lines=["saving", "killed"])
    story.get(50, 20, 30)
    story.launch(10, step=101, resumed=100)
    story.wait(300, GoodputState.PRODUCTIVE)
    story.tell("attempt.saved", attempt=story.attempt, step=400)
    story.wait(100, GoodputState.PRODUCTIVE)
    return story


def failing_story() -> StoryLog:
    """Its command fails: there is no memory left on the chips."""
    story = StoryLog(START + 563)
    story.get(10, 20, 30)
    story.launch(5, step=0)
    story.wait(60, GoodputState.WASTED)
    lines = ["RESOURCE_EXHAUSTED: Attempting to allocate 12.50G. That was not possible."]
    story.end(Verdict.FAILURE, host="gpt-0-g1-7kq/w2", exit=1, lines=lines, finding="oom-hbm-alloc",
              last_at=story.now)  # fmt: skip
    story.wait(30, GoodputState.PROCESS_DOWN)
    return story


def waiting_story() -> StoryLog:
    story = StoryLog(START + 218)
    story.ask()
    story.tell("bid.refused", bid=story.bid, refusal="stockout", message="none left")
    story.wait(500, GoodputState.QUEUE_FIRST)
    return story


def build_view(sentence: str = "attempt 2 has run for 7 min") -> StoreView:
    stories = {"gpt-0": working_story(), "gpt-1": failing_story(), "gpt-2": waiting_story()}
    now = max(story.now for story in stories.values())
    accounts = {
        name: replace(build_accounts(story.events, now)["gpt-0"], slot=name)
        for name, story in stories.items()
    }
    stored = StoredJob(job="gpt", goal=Goal.RUN, document=document(3), made_at=START,
                       changed_at=START, who="ann@desk")  # fmt: skip
    states = {
        "gpt-0": sentence,
        "gpt-1": "attempt 1 failed (exit 1 on w2): it starts again in 30 s, for the second time",
        "gpt-2": "waits for capacity: us-central2-b refused 8 min ago, asked again every 5 min",
    }
    return StoreView(now=now, stored_jobs={"gpt": stored}, accounts=accounts, states=states,
                     engine=True)  # fmt: skip


def loss_curve(view: StoreView) -> dict[str, list[Curve]]:
    start, end = view.accounts["gpt-0"].start + 65, view.now
    times = [start + (end - start) * at / 200 for at in range(200)]
    points = [(at, 5 / (1 + (at - start) / 60) + sin(at) / 9) for at in times]
    return {"gpt-0": [Curve(name="loss", points=tuple(points))]}


def status_of(view: StoreView, names: list[str], *, colour: bool, width: int) -> str:
    page = show_values(job_page(view, "gpt", names))
    curves = loss_curve(view) if "gpt-0" in view.accounts else {}
    return status_screen(page, view.accounts, curves, colour=colour, width=width)


def list_jobs(colour: bool, width: int) -> str:
    row = job_row(build_view(), "gpt")
    done = {**row, "job": "a-model-with-a-rather-long-name-of-its-own", "phase": "done",
            "phases": {"done": 1}, "ready": 0, "slots": 1, "zones": [], "per_hour": 0.0,
            "idle": 0}  # fmt: skip
    idle = {**row, "job": "dev", "phase": "idle", "phases": {"idle": 1}, "ready": 1, "slots": 1,
            "zones": ["us-central2-b"], "idle": 1}  # fmt: skip
    runs = {**row, "job": "eval", "phase": "running", "phases": {"running": 2}, "ready": 2,
            "slots": 2, "zones": ["europe-west4-b"], "price_known": False}  # fmt: skip
    return jobs_screen([done, idle, runs, row], colour=colour, width=width)


def show_status(colour: bool, width: int) -> str:
    return status_of(build_view(), ["gpt-0", "gpt-1", "gpt-2"], colour=colour, width=width)


def show_slot(colour: bool, width: int) -> str:
    return status_of(build_view(), ["gpt-0"], colour=colour, width=width)


def show_hostile(colour: bool, width: int) -> str:
    view = build_view(sentence=f"{HOSTILE} waits " + "漢字 " * 40)
    return status_of(view, ["gpt-0"], colour=colour, width=width)


def show_why(colour: bool, width: int) -> str:
    view = build_view()
    cause = {"id": "disk-full", "cause": "a disk is full", "fix": "herd clean gpt-1"}
    content = {"slots": view.states, "findings": {"gpt-1": cause}, "withheld": []}
    return why_screen(content, current=False, colour=colour, width=width)


def story_events() -> list[HistoryEvent]:
    hostile = HistoryEvent(
        at=START,
        kind="bid.refused",
        job="gpt",
        slot="gpt-0",
        facts={"bid": "b", "refusal": "stockout", "message": HOSTILE},
    )
    return [*working_story().events, *failing_story().events[-2:], hostile]  # fmt: skip


def show_events(colour: bool, width: int) -> str:
    return "\n".join(
        event_screen("12:00:00", event, name=event.slot or event.job, colour=colour, width=width)
        for event in story_events()
    )


def show_capacity(colour: bool, width: int) -> str:
    story = working_story()
    story.ask("us-central2-b")
    message = 'There is no more capacity in the zone "us-central2-b"; you can try in another zone'
    story.tell("bid.refused", bid=story.bid, refusal="stockout", message=message)
    rows = show_values(capacity_rows(story.events, story.now + 60))
    return capacity_screen(rows, colour=colour, width=width)


def show_plan(colour: bool, width: int) -> str:
    steps = [
        ("gpt-1-g2-7kq", "ask for v4-32 in europe-west4-b", "no node, and this zone granted last"),
        ("gpt-0-g1-7kq", "withdraw from us-central2-b", "it was preempted 2 s ago"),
    ]
    return plan_screen(build_view().states, steps, "4 of 5 nodes vanished at once", colour=colour,
                       width=width)  # fmt: skip


SEARCH = Search(
    method="bayes",
    parameters={
        "lr": Parameter(min=1e-5, max=1.0, log=True),
        "width": Parameter(min=16, max=512, int=True),
        "optimizer": Parameter(values=("adam", "lion", "sgd")),
        "warmup": Parameter(min=0, max=2000, int=True),
    },
    metric="loss",
    trials=24,
)


def build_sweep() -> dict[str, Any]:
    ends = ("complete", "complete", "pruned", "complete", "failed", "complete", "running")
    trials: list[dict[str, Any]] = []
    for at in range(21):
        phase = ends[at % len(ends)]
        value = 0.4 + abs(sin(at * 1.7)) * 2 / (1 + at / 6)
        points = [[step, value + 3 / (1 + step)] for step in range(30)]
        if phase == "failed":
            points = [[0, 3.0], [1, inf], [2, nan]]
        trials.append({
            "trial": at, "phase": phase, "value": None if phase == "failed" else value,
            "step": 1000 + at, "slot": f"lr-{at % 3}", "run_id": f"lr-t{at}",
            "attempts": 1 + at % 2,
            "preemptions": 0, "seconds": 60.0 * at, "why": "loss is NaN\nat once",
            "nan": phase == "failed", "points": points,
            "params": {"lr": 10 ** (-4 + 3 * abs(sin(at))), "width": 16 * (1 + at % 9),
                       "optimizer": ("adam", "lion", "sgd")[at % 3], "warmup": 100 * (at % 7)},
        })  # fmt: skip
    best = min((row for row in trials if row["phase"] == "complete"), key=lambda row: row["value"])
    phases = {phase: sum(row["phase"] == phase for row in trials) for phase in dict.fromkeys(ends)}
    return {"sweep": "lr", "method": "bayes", "metric": "loss", "goal": "minimize", "planned": 24,
            "phases": phases, "best": best["trial"], "trials": trials}  # fmt: skip


def show_sweep(colour: bool, width: int) -> str:
    return sweep_screen(build_sweep(), colour=colour, width=width)


def show_best(colour: bool, width: int) -> str:
    page = build_sweep()
    return best_screen(page, [], page["trials"][page["best"]], colour=colour)


def show_plot(colour: bool, width: int) -> str:
    return plot_screen(build_sweep(), SEARCH, colour=colour, width=width)


SCENES: dict[str, Scene] = {
    "ls": list_jobs,
    "status": show_status,
    "status-slot": show_slot,
    "status-hostile": show_hostile,
    "why": show_why,
    "events": show_events,
    "capacity": show_capacity,
    "plan": show_plan,
    "sweep-status": show_sweep,
    "sweep-best": show_best,
    "sweep-plot": show_plot,
}


def draw_scenes(name: str) -> Iterator[str]:
    """Each width, then colour and ASCII at the narrowest."""
    scene = SCENES[name]
    for width in WIDTHS:
        yield f"── {width} columns\n{scene(False, width)}"
    yield f"── 80 columns, colour\n{scene(True, 80)}".replace("\x1b", "␛")
    yield f"── 80 columns, ASCII\n{to_ascii(scene(False, 80))}"


def write_scenes() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name in SCENES:
        (FOLDER / f"{name}.txt").write_text("\n\n".join(draw_scenes(name)) + "\n")


if __name__ == "__main__":
    write_scenes()
