"""Chooses the parameters of the next trial with Optuna, if it is installed."""

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from tpuherd.errors import InvalidInput
from tpuherd.model.search import Parameter, Search
from tpuherd.model.sweep_trials import Sweep, TrialEnd, TrialRecord, Value
from tpuherd.sweeps.scheduler import SweepAdvisor
from tpuherd.sweeps.search_space import round_value, seeded_fraction, suggest_point

MISSING = "method bayes needs Optuna, which is not installed"
INSTALL = "install it with pip install 'tpuherd[sweep]', or use method: random"


def missing_dependency(search: Search) -> str:
    """Return a sentence that names the dependency this sweep lacks, or ""."""
    absent = search.method == "bayes" and find_spec("optuna") is None
    return f"{MISSING}: {INSTALL}" if absent else ""


def suggest_parameters(search: Search, sweep: Sweep) -> Mapping[str, Value]:
    number = sweep.made
    if search.method != "bayes":
        return suggest_point(search, number)
    if missing_dependency(search):
        raise InvalidInput(MISSING, hint=INSTALL)
    optuna = import_module("optuna")  # takes a second, so only when it is used
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    ranges = {
        name: optuna_distribution(optuna.distributions, one)
        for name, one in search.parameters.items()
    }
    # The study is rebuilt from our event log for every trial, so each trial needs its own random
    # seed.
    sampler = optuna.samplers.TPESampler(
        seed=int(seeded_fraction(search.seed, number, "optuna") * 2**31), constant_liar=True
    )
    study = optuna.create_study(direction=search.goal, sampler=sampler)
    study.add_trials([
        optuna_trial(optuna.trial, one, ranges)
        for one in sweep.trials
        if is_in_search_space(search, one)
    ])  # fmt: skip
    found = study.ask(ranges).params
    return {
        name: found[name] if one.values else round_value(one, found[name])
        for name, one in search.parameters.items()
    }


def optuna_distribution(kinds: Any, one: Parameter) -> Any:
    if one.values:
        return kinds.CategoricalDistribution(one.values)
    if one.int:
        step = int(one.step or 1)
        return kinds.IntDistribution(int(one.min), int(one.max), log=one.log, step=step)
    return kinds.FloatDistribution(one.min, one.max, log=one.log, step=one.step)


def is_in_search_space(search: Search, trial: TrialRecord) -> bool:
    """Whether its parameters fit the current search, which the user may have changed."""
    return trial.params.keys() == search.parameters.keys() and all(
        trial.params[name] in one.values
        if one.values
        else isinstance(value := trial.params[name], int | float) and one.min <= value <= one.max
        for name, one in search.parameters.items()
    )


def optuna_trial(kinds: Any, trial: TrialRecord, ranges: Mapping[str, Any]) -> Any:
    states = kinds.TrialState
    state = {
        None: states.RUNNING, TrialEnd.COMPLETE: states.COMPLETE, TrialEnd.PRUNED: states.PRUNED,
    }.get(trial.how, states.FAIL)  # fmt: skip
    if state is states.COMPLETE and trial.value is None:
        state = states.FAIL  # it never reported the metric
    return kinds.create_trial(
        state=state,
        value=trial.value if state is states.COMPLETE else None,
        params=dict(trial.params),
        distributions=dict(ranges),
        intermediate_values=dict(trial.points),
    )


ADVICE = SweepAdvisor(suggest=suggest_parameters)
