"""The parameters of trials, how they reach a command, and which trials are pruned."""

from itertools import product
from math import log10

import pytest

from tpuherd.cli.via_client import needs_upload
from tpuherd.errors import InvalidInput
from tpuherd.history.apply_trial_events import apply_trial_event, build_sweep
from tpuherd.jobfile.job_spec import JobSpec
from tpuherd.jobfile.read_job import read_fields, read_job
from tpuherd.jobfile.yaml_with_lines import Mistake
from tpuherd.model.node_spec import LaunchSpec
from tpuherd.model.search import Parameter, Prune, Search, count_trials, grid_size
from tpuherd.model.slots_and_plan import HistoryEvent
from tpuherd.model.sweep_trials import POINTS_MAX, Sweep, TrialRecord
from tpuherd.sweeps import optuna_sampler
from tpuherd.sweeps.pruning import prune_reason
from tpuherd.sweeps.search_space import grid_point, random_point
from tpuherd.sweeps.trial_env import launch_spec_for_trial

RANGES = {
    "lr": Parameter(min=1e-5, max=1e-1, log=True),
    "layers": Parameter(min=2, max=8, int=True),
    "units": Parameter(min=1, max=1000, int=True, log=True),
    "drop": Parameter(min=0.0, max=0.5, step=0.1),
    "kind": Parameter(values=("adam", "sgd")),
    "width": Parameter(min=1.0, max=2.0),
}


def search(**fields: object) -> Search:
    return Search(**{"method": "random", "parameters": RANGES, "trials": 9, **fields})  # type: ignore[arg-type]


def test_a_grid_has_every_point_once_and_the_last_parameter_changes_first() -> None:
    grid = search(method="grid", trials=None, parameters={
        "a": Parameter(values=(1, 2)), "b": Parameter(min=0.0, max=0.3, step=0.1),
        "c": Parameter(min=1, max=3, int=True),
    })  # fmt: skip
    points = [tuple(grid_point(grid, number).values()) for number in range(grid_size(grid))]
    assert points == list(product((1, 2), (0.0, 0.1, 0.2, 0.3), (1, 2, 3)))
    assert count_trials(grid) == 24
    assert count_trials(search(method="grid", trials=5, parameters=grid.parameters)) == 5


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("{min: 1e-4, max: 1e-1, log: true, steps: 4}", [1e-4, 1e-3, 1e-2, 1e-1]),
        ("{min: 0, max: 0.9, steps: 4}", [0.0, 0.3, 0.6, 0.9]),
        ("{min: 1, max: 3, int: true, steps: 9}", [1, 2, 3]),
        ("{min: 1, max: 64, int: true, log: true, steps: 7}", [1, 2, 4, 8, 16, 32, 64]),
    ],
)
def test_steps_make_a_grid_of_a_range(text: str, values: list[float]) -> None:
    sweep = f"sweep: {{method: grid, parameters: {{lr: {text}}}}}"
    job = read_job(f"name: gpt\naccelerator: v4-8\nrun: x\n{sweep}\n")
    assert isinstance(job, JobSpec) and job.sweep is not None
    points = [grid_point(job.sweep, number)["lr"] for number in range(grid_size(job.sweep))]
    assert points == values
    assert all(isinstance(point, int) is ("int" in text) for point in points)


def test_random_points_are_reproducible_and_in_range() -> None:
    found = [random_point(search(), number) for number in range(400)]
    assert found == [random_point(search(), number) for number in range(400)]
    assert found[0] != random_point(search(seed=1), 0)
    for name, one in RANGES.items():
        values = [point[name] for point in found]
        if one.values:
            assert set(values) == set(one.values)
            continue
        numbers = [float(value) for value in values]
        assert one.min <= min(numbers) and max(numbers) <= one.max
        assert all(isinstance(value, int) is one.int for value in values)
    small = [point for point in found if float(point["lr"]) < 1e-3]
    assert 150 < len(small) < 250  # half of the orders of magnitude
    assert {point["layers"] for point in found} == set(range(2, 9))
    assert {point["drop"] for point in found} == {0.0, 0.1, 0.2, 0.3, 0.4, 0.5}


TRIAL = TrialRecord(
    number=3, params={"lr": 0.01, "kind": "a b", "flag": True}, run="gpt-t3-1", made_at=0.0,
    attempts=2,
)  # fmt: skip


def test_parameters_reach_a_command_as_words_variables_and_json() -> None:
    order = LaunchSpec(
        shell="train --lr {lr} --kind {kind} ${lr} {other} {flag}",
        argv=("train", "--kind={kind}"),
        env={"HERD_CHECKPOINT": "gs://bucket/gpt/"},
    )
    found = launch_spec_for_trial(order, TRIAL)
    assert found.shell == "train --lr 0.01 --kind 'a b' ${lr} {other} true"
    assert found.argv == ("train", "--kind=a b")
    assert found.trial == {
        "RUN_ID": "gpt-t3-1",
        "HERD_RUN_ID": "gpt-t3-1",
        "HERD_TRIAL": "3",
        "HERD_ATTEMPT": "2",
        "HERD_PARAMS": '{"lr": 0.01, "kind": "a b", "flag": true}',
        "HERD_PARAM_LR": "0.01",
        "HERD_PARAM_KIND": "a b",
        "HERD_PARAM_FLAG": "true",
        "HERD_CHECKPOINT": "gs://bucket/gpt/gpt-t3-1",
    }


# ---- what is refused -----------------------------------------------------------------------------


def mistakes(sweep: str) -> list[str]:
    found = read_job(f"name: gpt\naccelerator: v4-8\nrun: x\nsweep: {sweep}\n")
    return [f"{one.field}: {one.sentence}" for one in found] if isinstance(found, list) else []


@pytest.mark.parametrize(
    ("sweep", "said"),
    [
        ("5", "should contain method and parameters"),
        ("{parameters: {lr: [1]}}", "method is missing"),
        ("{method: grid}", "has no parameters"),
        ("{method: grid, parameters: {}}", "has no parameters"),
        ("{method: gird, parameters: {lr: [1]}}", "did you mean grid?"),
        ("{method: grid, paramters: {}, parameters: {lr: [1]}}", "did you mean parameters?"),
        ("{method: grid, parameters: {lr: {min: 0, max: 1}}}", "a grid needs a finite range"),
        ("{method: random, parameters: {lr: [1]}}", "set how many trials random should run"),
        ("{method: random, trials: 0, parameters: {lr: [1]}}", "out of range"),
        ("{method: bayes, trials: 2, parameters: {lr: [1]}}", "bayes compares trials"),
        ("{method: grid, prune: median, parameters: {lr: [1]}}", "prune: median compares trials"),
        ("{method: grid, prune: medain, parameters: {lr: [1]}}", "did you mean median?"),
        ("{method: grid, metric: 3, parameters: {lr: [1]}}", "should be a metric name"),
        ("{method: grid, parameters: {lr: {min: 2, max: 1, step: 1}}}", "min 2 is not below max 1"),
        ("{method: grid, parameters: {lr: {min: 1, max: 2, step: 0}}}", "step must be more than"),
        ("{method: grid, parameters: {lr: {min: 1, max: 2, step: 1, steps: 3}}}", "step and steps"),
        ("{method: grid, parameters: {lr: {min: 1, max: 2, steps: 1}}}", "steps"),
        ("{method: grid, parameters: {lr: {values: [1], steps: 3}}}", "values and a range"),
        ("{method: grid, parameters: {lr: {min: 0, max: 2, log: true, int: true}}}", "log scale"),
        (
            "{method: grid, parameters: {lr: {min: 0.5, max: 2, int: true}}}",
            "must be whole numbers",
        ),
        ("{method: grid, parameters: {lr: {min: 1}}}", "write a list of values"),
        ("{method: grid, parameters: {lr: {min: a, max: 2}}}", "should be a number"),
        ("{method: grid, parameters: {lr: {values: [1], min: 1}}}", "has values and a range"),
        ("{method: grid, parameters: {lr: {values: []}}}", "should be a list of values"),
        ("{method: grid, parameters: {lr: [[1]]}}", "should be a number, text"),
        ("{method: grid, parameters: {lr: }}", "is not a parameter"),
        ("{method: grid, parameters: {a-b: [1], a_b: [2]}}", "both become HERD_PARAM_A_B"),
        ("{method: grid, parameters: {a: {min: 1, max: 99999, int: true}}}", "make 99999 trials"),
    ],
)
def test_an_impossible_sweep_is_refused_with_a_reason(sweep: str, said: str) -> None:
    found = mistakes(sweep)
    assert len(found) == 1 and said in found[0] and found[0].startswith("sweep"), found


def test_numbers_that_yaml_reads_as_text_are_numbers() -> None:
    found = read_job(
        "name: gpt\naccelerator: v4-8\nrun: x\nsweep:\n  method: random\n  trials: 3\n"
        "  parameters:\n    lr: {min: 1e-5, max: 1e-2, log: true}\n    wd: [0, 1e-3]\n    b: 0.9\n"
    )
    assert isinstance(found, JobSpec) and found.sweep is not None
    assert found.sweep.parameters["lr"].min == 1e-5
    assert found.sweep.parameters["wd"].values == (0, 0.001)
    assert found.sweep.parameters["b"].values == (0.9,)
    assert not any(isinstance(one, Mistake) for one in [found])
    assert read_fields({"name": "gpt", "accelerator": "v4-8", "run": "x"}) != found


# ---- pruning -------------------------------------------------------------------------------------


def told(number: int, *values: float, start: int = 1) -> TrialRecord:
    points = tuple((start + at, value) for at, value in enumerate(values))
    return TrialRecord(number=number, params={}, run="r", made_at=0.0, points=points)


def pruned(rule: str, last: TrialRecord, *others: TrialRecord, **fields: object) -> bool:
    pruned_search = search(metric="loss", prune=Prune(rule=rule, **fields))  # type: ignore[arg-type]
    return bool(prune_reason(pruned_search, Sweep(trials=(*others, last)), last))


def test_a_trial_worse_than_the_median_is_hopeless() -> None:
    others = [told(number, 5.0, 4.0, float(number)) for number in range(4)]  # last: 0 to 3
    assert not pruned("median", told(9, 9.0, 9.0), *others, after=5)  # too few came so far
    assert pruned("median", told(9, 9.0, 9.0), *others, after=4)
    assert not pruned("median", told(9, 9.0, 9.0), *others, after=4, warm_up=3)
    assert pruned("median", told(9, 9.0, 9.0, 2.0), *others, after=4)
    assert not pruned("median", told(9, 9.0, 9.0, 1.5), *others, after=4)
    assert not pruned("median", told(9, 1.0, 9.0, 9.0), *others, after=4)  # it was good once
    assert not pruned("median", told(9, 9.0, 9.0, 9.0, 9.0), *others, after=4)  # further than all
    assert not pruned("none", told(9, 9.0, 9.0), *others, after=1)


def test_of_three_at_a_rung_one_continues() -> None:
    others = [told(number, *[float(number)] * 9) for number in range(8)]
    for value in range(9):
        last = told(9, *[value + 0.5] * 3)
        assert pruned("halving", last, *others, warm_up=1) == (value + 1 >= 3), value
    assert not pruned("halving", told(9, 99.0, 99.0), *others, warm_up=3)  # not at the first rung
    assert not pruned("halving", told(9, 99.0), *others[:3], warm_up=1)  # too few


def test_hyperband_brackets_start_one_after_another() -> None:
    others = [told(number, *[0.0] * 30) for number in range(18)]
    first = {
        bracket: next(
            step
            for step in range(1, 30)
            if pruned("hyperband", told(99 + bracket, *[9.0] * step), *others)
        )
        for bracket in range(3)
    }
    assert first == {0: 1, 1: 3, 2: 9}


def test_when_maximizing_small_values_are_hopeless() -> None:
    pruned_search = search(metric="accuracy", goal="maximize", prune=Prune(rule="median", after=2))
    others = (told(0, 0.5, 0.8), told(1, 0.5, 0.9))
    for value, expected in ((0.2, True), (0.95, False)):
        last = told(2, 0.1, value)
        assert bool(prune_reason(pruned_search, Sweep(trials=(*others, last)), last)) is expected


# ---- the log -------------------------------------------------------------------------------------


def event(kind: str, slot: str = "gpt-0", **facts: object) -> HistoryEvent:
    return HistoryEvent(at=1.0, kind=kind, job="gpt", slot=slot, facts=facts)


def test_invalid_lines_change_nothing() -> None:
    made = event("trial.created", trial=0, params={"lr": 1}, run_id="r")
    sweep = build_sweep([made])
    spent = {"failures": 1}
    for line in (
        event("trial.created", trial=5, params={}, run_id="r"),
        event("trial.assigned", trial=5),
        event("trial.reported", trial=5, step=1, value=1.0),
        event("trial.reported", trial=-1, step=1, value=1.0),
        event("trial.ended", trial=5, outcome="complete"),
        event("trial.waiting", trial=5, usage=spent),
        event("attempt.launched", attempt="a", trial=5),
        event("attempt.launched", attempt="a"),
        event("attempt.ended", attempt="a"),
    ):
        assert apply_trial_event(sweep, line) == sweep, line
    over = apply_trial_event(sweep, event("trial.ended", trial=0, outcome="complete"))
    assert apply_trial_event(over, event("trial.ended", trial=0, outcome="failed")) == over
    assert build_sweep([made, event("job.submitted")]) == Sweep()
    dropped = build_sweep([made, event("job.removed")]).trials[0]
    assert dropped.status_word == "stopped" and not dropped.is_waiting


def test_a_metric_repeated_after_a_preemption_replaces_the_old_one() -> None:
    lines = [
        event("trial.created", trial=0, params={}, run_id="r", metric="loss", direction="minimize")
    ]
    for step, value in ((10, 3.0), (20, 2.0), (30, 1.0), (20, 2.5), (25, 2.1)):
        lines.append(event("trial.reported", trial=0, step=step, value=value))
    assert build_sweep(lines).trials[0].points == ((10, 3.0), (20, 2.5), (25, 2.1))
    assert build_sweep(lines).goal == "minimize"
    lost = build_sweep([*lines, event("trial.reported", trial=0, step=30, value=None)]).trials[0]
    assert lost.value is None and lost.step == 25


def test_of_many_points_fewer_are_kept_and_always_the_last() -> None:
    sweep = build_sweep([event("trial.created", trial=0, params={}, run_id="r")])
    for step in range(1000):
        sweep = apply_trial_event(
            sweep, event("trial.reported", trial=0, step=step, value=float(step))
        )
        assert sweep.trials[0].value == step
        assert len(sweep.trials[0].points) <= POINTS_MAX
    steps = [step for step, _ in sweep.trials[0].points]
    assert steps == sorted(steps) and steps[0] == 0 and len(steps) > POINTS_MAX / 2


# ---- Optuna --------------------------------------------------------------------------------------


def test_optuna_learns_from_our_log_alone() -> None:
    bayes = search(method="bayes", metric="loss", trials=40)
    sweep = Sweep()
    losses = []
    for number in range(40):
        params = optuna_sampler.suggest_parameters(bayes, sweep)
        assert params == optuna_sampler.suggest_parameters(
            bayes, sweep
        )  # another engine suggests the same
        sweep = apply_trial_event(
            sweep,
            event("trial.created", trial=number, params=params, run_id="r", metric="loss",
                  direction="minimize"),
        )  # fmt: skip
        loss = abs(log10(float(params["lr"])) + 3) + abs(int(params["layers"]) - 5)
        if number % 7 == 3:
            continue  # it still runs
        how = "pruned" if number % 7 == 5 else "complete"
        if number % 11 != 4:  # some never tell
            sweep = apply_trial_event(
                sweep, event("trial.reported", trial=number, step=9, value=loss)
            )
        sweep = apply_trial_event(sweep, event("trial.ended", trial=number, outcome=how))
        losses.append(loss)
    assert sum(losses[-10:]) < 0.6 * sum(losses[:10])
    assert all(random_point(search(), 0).keys() == one.params.keys() for one in sweep.trials)


def test_trials_of_another_search_are_ignored() -> None:
    sweep = build_sweep([event("trial.created", trial=0, params={"lr": 5.0}, run_id="r")])
    bayes = search(method="bayes", metric="loss", parameters={"lr": Parameter(min=0.0, max=1.0)})
    assert 0.0 <= float(optuna_sampler.suggest_parameters(bayes, sweep)["lr"]) <= 1.0
    assert optuna_sampler.suggest_parameters(search(), sweep) == random_point(search(), 1)
    assert optuna_sampler.missing_dependency(bayes) == ""


def test_without_optuna_the_sweep_is_refused_with_a_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(optuna_sampler, "find_spec", lambda name: None)
    bayes = search(method="bayes", metric="loss")
    assert "pip install 'tpuherd[sweep]'" in optuna_sampler.missing_dependency(bayes)
    assert optuna_sampler.missing_dependency(search()) == ""
    with pytest.raises(InvalidInput):
        optuna_sampler.suggest_parameters(bayes, Sweep())


@pytest.mark.parametrize(
    ("words", "along"),
    [("run job.yaml", True), ("up", True), ("sweep lr.yaml", True), ("sweep", True),
     ("sweep status lr", False), ("sweep best lr", False), ("ls", False)],
)  # fmt: skip
def test_a_sweep_submitted_elsewhere_takes_its_files_along(words: str, along: bool) -> None:
    assert needs_upload(words.split()) is along
