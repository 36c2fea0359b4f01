"""What a trial's command receives: its parameters and its run id."""

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import replace

from tpuherd.model.node_spec import LaunchSpec
from tpuherd.model.search import parameter_variable
from tpuherd.model.sweep_trials import TrialRecord, Value
from tpuherd.sweeps.map_items import ITEM
from tpuherd.sweeps.scheduler import value_text
from tpuherd.sweeps.shell_item import insert_item


def launch_spec_for_trial(order: LaunchSpec, trial: TrialRecord) -> LaunchSpec:
    """Return the slot's launch spec for this trial."""
    return replace(
        order,
        shell=fill_placeholders(
            order.shell, {name: shlex.quote(value_text(v)) for name, v in trial.params.items()}
        ),
        argv=tuple(
            fill_placeholders(
                word, {name: value_text(value) for name, value in trial.params.items()}
            )
            for word in order.argv
        ),
        trial=trial_env(trial, order.env.get("HERD_CHECKPOINT", "")),
    )


def launch_spec_for_item(order: LaunchSpec, trial: TrialRecord) -> LaunchSpec:
    """Return the slot's launch spec for this item of a map: it replaces every {}, or is appended.

    It is always one argument: a shell never interprets it.
    """
    item = str(trial.params[ITEM])
    if order.argv:
        words = order.argv if any("{}" in word for word in order.argv) else (*order.argv, "{}")
        order = replace(order, argv=tuple(word.replace("{}", item) for word in words))
    else:
        order = replace(order, shell=insert_item(order.shell))
    checkpoint = order.env.get("HERD_CHECKPOINT", "")
    variables = {
        **run_variables(trial, checkpoint),
        "HERD_ITEM": item,
        "HERD_ITEM_NUMBER": str(trial.number),
    }
    return replace(order, trial=variables)


def fill_placeholders(words: str, values: Mapping[str, str]) -> str:
    """Replace `{lr}` by its value; `${lr}` and other braces stay as they are."""
    names = "|".join(map(re.escape, values))
    return re.sub(rf"(?<!\$)\{{({names})\}}", lambda found: values[found[1]], words)


def trial_env(trial: TrialRecord, checkpoint: str) -> dict[str, str]:
    """Return variables that are the same for every attempt of a trial, except their count."""
    params: Mapping[str, Value] = trial.params
    return {
        **run_variables(trial, checkpoint),
        "HERD_TRIAL": str(trial.number),
        "HERD_PARAMS": json.dumps(dict(params)),
        **{parameter_variable(name): value_text(value) for name, value in params.items()},
    }


def run_variables(trial: TrialRecord, checkpoint: str) -> dict[str, str]:
    # Each trial has its own folder: it must not resume from another trial's state.
    return {
        "RUN_ID": trial.run,
        "HERD_RUN_ID": trial.run,
        "HERD_ATTEMPT": str(trial.attempts),
        **({"HERD_CHECKPOINT": f"{checkpoint.rstrip('/')}/{trial.run}"} if checkpoint else {}),
    }
