"""How sweeps are shown: nothing is left out, and every chart renders."""

import csv
import io
import shlex
from dataclasses import replace
from math import isfinite
from random import Random
from typing import Any
from xml.etree import ElementTree

import jsonschema  # type: ignore[import-untyped]
import pytest
from json_schemas import SCHEMAS

from tpuherd.cli.job_options import parse_setting
from tpuherd.history import apply_trial_events
from tpuherd.jobfile.job_spec import JobSpec
from tpuherd.jobfile.read_job import read_fields
from tpuherd.jobs.sweep_queries import repeating_lines
from tpuherd.model.search import Parameter, Search, grid_size
from tpuherd.model.slots_and_plan import Goal, HistoryEvent
from tpuherd.model.stored_job import StoredJob
from tpuherd.model.sweep_trials import Sweep, TrialEnd, TrialRecord
from tpuherd.sweeps.pruning import prune_reason
from tpuherd.sweeps.search_space import grid_point
from tpuherd.views.axes import build_axis
from tpuherd.views.sweep_plot import MARKS, build_panels, draw_sketch, draw_svg
from tpuherd.views.sweep_screen import sweep_screen
from tpuherd.views.sweep_table import best_text, sweep_csv, sweep_page, sweep_text, unreported_line

SEEDS = range(60)
SEARCH = Search(
    method="random",
    parameters={
        "lr": Parameter(min=1e-5, max=1.0, log=True),
        "width": Parameter(min=1, max=64, int=True),
        "<b>&": Parameter(values=("adam", "a<b&\"c'", True, 3)),
    },
    metric="loss",
    trials=30,
)
SVG = "{http://www.w3.org/2000/svg}"


def drawn(seed: int) -> Sweep:
    """A sweep as it may have come to be."""
    chance = Random(seed)
    spread = chance.choice((0.0, 1.0, 1e12))
    goal = chance.choice(("minimize", "maximize"))
    events: list[HistoryEvent] = []

    def tell(kind: str, number: int, **facts: Any) -> None:
        events.append(HistoryEvent(at=100.0 + len(events), kind=kind, job="lr", slot="lr-0",
                            facts={"trial": number, **facts}))  # fmt: skip

    for number in range(chance.randrange(12)):
        params = {
            "lr": 10 ** chance.uniform(-5, 0),
            "width": chance.randint(1, 64),
            "<b>&": chance.choice(SEARCH.parameters["<b>&"].values),
        }
        made = {"params": params, "run_id": f"lr-t{number}", "metric": "loss", "direction": goal}
        tell("trial.created", number, **made)
        tell("trial.assigned", number)
        for step in range(chance.randrange(4)):
            value = chance.choice((None, 1.0, chance.uniform(-1, 1) * spread))
            tell("trial.reported", number, step=step, value=value)
        how = chance.choice(("complete", "complete", "pruned", "failed", ""))
        if how:
            tell("trial.ended", number, outcome=how, why='it was\nover, "so"')
    return apply_trial_events.build_sweep(events)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_trial_is_shown_once(seed: int) -> None:
    sweep = drawn(seed)
    page = sweep_page("lr", sweep, SEARCH, 1000.0)
    jsonschema.validate(page, SCHEMAS["herd sweep status NAME --json"])
    assert [row["trial"] for row in page["trials"]] == list(range(len(sweep.trials)))
    assert sum(page["phases"].values()) == len(page["trials"])
    assert page["planned"] == 30
    lines = sweep_text(page).splitlines()
    failed = any(row["phase"] == "failed" for row in page["trials"])
    lost = any(row["phase"] == "pruned" and row["nan"] for row in page["trials"])
    below = failed + lost + (failed or lost) + 2 * bool(unreported_line(page))
    assert len(lines) == (3 + len(page["trials"]) + below if page["trials"] else 2)
    rows = list(csv.DictReader(io.StringIO(sweep_csv(page))))
    assert len(rows) == len(page["trials"])
    for read, row in zip(rows, page["trials"], strict=True):
        assert read["value"] == ("" if row["value"] is None else str(row["value"]))
        assert {name: read[f"params.{name}"] for name in row["params"]} == {
            name: str(value) for name, value in row["params"].items()
        }
        assert read["why"] == row["why"]


NAN = "loss is NaN or infinite; its last finite value was at step 40"


def test_reasons_of_failed_trials_are_shown_once() -> None:
    row: dict[str, Any] = {
        "value": None, "params": {"lr": 1}, "slot": "lr-0", "attempts": 1, "step": None,
        "seconds": 8.0, "nan": False, "points": [],
    }  # fmt: skip
    ends = [("failed", "it has no memory"), ("pruned", "hopeless"), ("failed", "it has no memory"),
            ("failed", "it can't\nrun")]  # fmt: skip
    each = [{**row, "trial": at, "phase": how, "why": why} for at, (how, why) in enumerate(ends)]
    page = {**sweep_page("lr", Sweep(), SEARCH, 0.0), "trials": each}
    assert sweep_text(page).split("\n\n")[2].splitlines() == [
        "trials 0, 2 failed: it has no memory", "trial 3 failed: it can't run"
    ]  # fmt: skip


def test_a_trial_pruned_for_its_nan_says_so() -> None:
    trial = TrialRecord(number=0, params={"lr": 9}, run="r", made_at=0.0, how=TrialEnd.PRUNED,
        lost=True,
                  points=((40, 2.5),), ended_at=9.0, why=NAN)  # fmt: skip
    pruning = replace(SEARCH, prune=replace(SEARCH.prune, rule="median"))
    assert prune_reason(pruning, Sweep(), trial) == NAN
    text = sweep_text(sweep_page("lr", Sweep(trials=(trial,)), SEARCH, 10.0))
    assert f"trial 0 was pruned: {NAN}" in text
    assert "nan" in text.splitlines()[3].split()


@pytest.mark.parametrize(
    ("how", "now", "said"),
    [
        (None, 60.0, ""),
        (None, 900.0, "no trial has reported loss so far: none can be the best."),
        (TrialEnd.COMPLETE, 60.0, "reported loss, though 1 is complete: none can be the best."),
        (TrialEnd.FAILED, 60.0, ""),
    ],
)
def test_a_metric_that_is_never_reported_is_told(how: TrialEnd, now: float, said: str) -> None:
    ended = 30.0 if how else None
    trial = TrialRecord(number=0, params={}, run="r", made_at=0.0, how=how, ended_at=ended)
    page = sweep_page("lr", Sweep(trials=(trial,)), SEARCH, now)
    assert said in unreported_line(page) and bool(said) is bool(unreported_line(page))
    text = sweep_text(page), sweep_screen(page, colour=False, width=400)
    assert all(unreported_line(page) in one for one in text)
    reported = replace(trial, points=((1, 0.5),))
    assert unreported_line(sweep_page("lr", Sweep(trials=(trial, reported)), SEARCH, now)) == ""
    other = replace(SEARCH, metric="")
    assert unreported_line(sweep_page("lr", Sweep(trials=(trial,)), other, now)) == ""


@pytest.mark.parametrize(
    ("run", "command"),
    [
        ("python3 train.py --lr {lr} --opt {opt}", "python3 train.py --lr 0.01 --opt 'a b'"),
        (["python3", "train.py", "--lr={lr}", "{opt}"], "python3 train.py --lr=0.01 'a b'"),
        ("python3 train.py {opt}", "export HERD_PARAM_LR=0.01 HERD_PARAM_OPT='a b' HERD_PARAMS="
         "'{\"lr\": 0.01, \"opt\": \"a b\"}'; python3 train.py 'a b'"),
    ],
)  # fmt: skip
def test_the_best_trial_is_repeated_by_a_command(run: Any, command: str) -> None:
    fields = {"name": "lr", "accelerator": "v4-8", "run": run, "sweep": {"metric": "loss"}}
    stored = StoredJob(job="lr", goal=Goal.RUN, document=fields, made_at=0.0, changed_at=0.0)
    params = {"lr": 0.01, "opt": "a b"}
    first, again = repeating_lines(stored, {"params": params})
    assert first.split(":", 1)[1].strip() == command
    _, _, setting = again.partition(":")[2].strip().rpartition(" --set ")
    (setting,) = shlex.split(setting)
    (field,), value = parse_setting(setting)
    job = read_fields({**fields, field: value})
    assert isinstance(job, JobSpec) and job.sweep is not None
    assert (grid_size(job.sweep), grid_point(job.sweep, 0)) == (1, params)
    assert repeating_lines(None, {"params": params}) == []


@pytest.mark.parametrize("seed", SEEDS)
def test_the_best_trial_is_complete_and_none_is_better(seed: int) -> None:
    page = sweep_page("lr", drawn(seed), None, 1000.0)
    values = {row["trial"]: row["value"] for row in page["trials"]
              if row["phase"] == "complete" and row["value"] is not None}  # fmt: skip
    assert (page["best"] is None) == (not values)
    if page["best"] is not None:
        better = max if page["goal"] == "maximize" else min
        assert values[page["best"]] == better(values.values())
        row = page["trials"][page["best"]]
        assert all(name in best_text(page, [], row) for name in row["params"])
        jsonschema.validate(row, SCHEMAS["herd sweep best NAME --json"])


@pytest.mark.parametrize("search", [SEARCH, None], ids=["known", "forgotten"])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_chart_shows_all_finished_trials_with_a_value(seed: int, search: Search | None) -> None:
    page = sweep_page("lr", drawn(seed), search, 1000.0)
    rows = [row for row in page["trials"]
            if row["value"] is not None and row["phase"] in ("complete", "pruned")]  # fmt: skip
    found = build_panels(page, search)
    assert len(found) == (4 if rows else 0)
    for panel in found:
        assert len(panel.dots) == len(rows)
        assert sum(dot.kind == "best" for dot in panel.dots) == (page["best"] is not None)
        places = [place for one in (panel.x, panel.y) for place, _ in one.tick_marks()]
        places += [place for dot in panel.dots for place in (panel.x.position_of(dot.x),
                                                             panel.y.position_of(
                                                                 dot.y))]  # fmt: skip
        assert all(0 <= place <= 1 for place in places)
        assert all(one.tick_marks() for one in (panel.x, panel.y))
    if found and page["best"] is not None:
        heights = [height for _, height in found[0].stair]
        assert heights == sorted(heights, reverse=page["goal"] == "minimize")
        assert heights[-1] == page["trials"][page["best"]]["value"]


@pytest.mark.parametrize("seed", SEEDS)
def test_every_chart_renders(seed: int) -> None:
    page = sweep_page("lr", drawn(seed), SEARCH, 1000.0)
    root = ElementTree.fromstring(draw_svg(page, SEARCH))
    width, height = float(root.get("width", "")), float(root.get("height", ""))
    assert width > 0
    assert height > 0
    dots = 0
    for group in root.iter(f"{SVG}g"):
        left, top = map(float, group.get("transform", "")[10:-1].split())
        for dot in group.iter(f"{SVG}circle"):
            dots += 1
            assert 0 < left + float(dot.get("cx", "")) < width
            assert 0 < top + float(dot.get("cy", "")) < height
    assert dots == sum(len(panel.dots) for panel in build_panels(page, SEARCH))


@pytest.mark.parametrize("columns", [20, 40, 80, 300])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_text_chart_fits_its_terminal(seed: int, columns: int) -> None:
    page = sweep_page("lr", drawn(seed), SEARCH, 1000.0)
    heading, _, rest = draw_sketch(page, SEARCH, columns).partition("\n")
    assert heading.startswith("lr: ")
    assert all(len(line) <= max(columns, 48) for line in rest.splitlines())
    assert (rest.count(MARKS["best"]) == 5) == (page["best"] is not None)


@pytest.mark.parametrize("seed", SEEDS)
def test_an_axis_keeps_the_order_of_its_values(seed: int) -> None:
    chance = Random(seed)
    power = chance.choice((0, 3, 12))
    values = [chance.choice((-1, 1, 1)) * 10 ** chance.uniform(-power, power)
              for _ in range(chance.randint(1, 9))]  # fmt: skip
    one = build_axis(values)
    places = [one.position_of(value) for value in sorted(values)]
    assert places == sorted(places)
    assert all(0 <= place <= 1 and isfinite(place) for place in places)
    labels = [label for _, label in one.tick_marks()]
    assert len(labels) == len(set(labels)) <= 12


@pytest.mark.parametrize("high", [1, 2, 3, 5, 7, 40])
@pytest.mark.parametrize("log", [False, True])
def test_integer_axes_have_no_fractions(high: int, log: bool) -> None:
    labels = [label for _, label in build_axis(list(range(1, high + 1)), log=log).tick_marks()]
    assert all(float(label).is_integer() for label in labels)
