"""Parameters of a sweep's next trial where earlier trials teach: Optuna, if it is installed."""

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from tpuherd.errors import InvalidInput
from tpuherd.model.search import Parameter, Search
from tpuherd.model.sweep_trials import Sweep, TrialEnd, TrialRecord, Value
from tpuherd.sweeps.scheduler import SweepAdvisor
from tpuherd.sweeps.search_space import round_value, seeded_fraction, suggest_point

MISSING = "method bayes needs Optuna, which is not installed here"
INSTALL = "pip install 'tpuherd[sweep]' beside herd, or choose method: random"


def missing_dependency(search: Search) -> str:
    """What is not installed that this sweep needs, in a sentence."""
    absent = search.method == "bayes" and find_spec("optuna") is None
    return f"{MISSING}: {INSTALL}" if absent else ""


def suggest_parameters(search: Search, sweep: Sweep) -> Mapping[str, Value]:
    """The parameters of the next trial."""
    number = len(sweep.trials)
    if search.method != "bayes":
        return suggest_point(search, number)
    if missing_dependency(search):
        raise InvalidInput(MISSING, hint=INSTALL)
    optuna = import_module("optuna")  # a second, and only for those who search so
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    ranges = {
        name: optuna_distribution(optuna.distributions, one)
        for name, one in search.parameters.items()
    }
    # The study lives for one question: what is true stands in our log, and Optuna is told of it by
    # what it gives to everybody. So its chance must be another one for each trial.
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
    """A parameter in Optuna's words."""
    if one.values:
        return kinds.CategoricalDistribution(one.values)
    if one.int:
        step = int(one.step or 1)
        return kinds.IntDistribution(int(one.min), int(one.max), log=one.log, step=step)
    return kinds.FloatDistribution(one.min, one.max, log=one.log, step=one.step)


def is_in_search_space(search: Search, trial: TrialRecord) -> bool:
    """Its parameters are of this search still: the user may have changed it."""
    return trial.params.keys() == search.parameters.keys() and all(
        trial.params[name] in one.values
        if one.values
        else isinstance(value := trial.params[name], int | float) and one.min <= value <= one.max
        for name, one in search.parameters.items()
    )


def optuna_trial(kinds: Any, trial: TrialRecord, ranges: Mapping[str, Any]) -> Any:
    """A trial of ours as one of Optuna's."""
    states = kinds.TrialState
    state = {
        None: states.RUNNING, TrialEnd.COMPLETE: states.COMPLETE, TrialEnd.PRUNED: states.PRUNED,
    }.get(trial.how, states.FAIL)  # fmt: skip
    if state is states.COMPLETE and trial.value is None:
        state = states.FAIL  # it never told how good it was
    return kinds.create_trial(
        state=state,
        value=trial.value if state is states.COMPLETE else None,
        params=dict(trial.params),
        distributions=dict(ranges),
        intermediate_values=dict(trial.points),
    )


ADVICE = SweepAdvisor(suggest=suggest_parameters)
