"""What `herd sweep status` and `herd sweep best` show, as values, text and CSV."""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tpuherd.model.search import Search, count_trials
from tpuherd.model.sweep_trials import Sweep, TrialEnd, TrialRecord, Value
from tpuherd.views.format_text import NOTHING, format_number, format_span, format_table

Json = dict[str, Any]
UNREPORTED_S = 300.0  #: a trial may take this long before its first report
#: As slots are spoken of; how a trial ended is a word already.
PHASES: Mapping[str, str] = {"runs": "running", "waits": "waiting"}
HEAD = ("TRIAL", "PHASE", "SLOT", "ATTEMPT", "STEP", "AGE")
#: The columns of CSV before the parameters.
COLUMNS = (
    "trial",
    "phase",
    "value",
    "step",
    "slot",
    "run_id",
    "attempts",
    "preemptions",
    "seconds",
)


def sweep_page(name: str, sweep: Sweep, search: Search | None, now: float) -> Json:
    """The whole sweep; `search` is None if its job is not stored any more."""
    phases: dict[str, int] = {}
    for one in sweep.trials:
        phases[trial_phase(one)] = phases.get(trial_phase(one), 0) + 1
    return {
        "sweep": name,
        "method": search.method if search else "",
        "metric": sweep.metric or (search.metric if search else ""),
        "goal": sweep.goal or (search.goal if search else ""),
        "planned": max(count_trials(search) if search else 0, len(sweep.trials)),
        "phases": phases,
        "best": next((one.number for one in sweep.best_first()), None),
        "trials": [trial_row(one, now) for one in sweep.trials],
    }


def trial_phase(trial: TrialRecord) -> str:
    """running, waiting, complete, pruned, failed, stopped"""
    return PHASES.get(trial.status_word, trial.status_word)


def trial_row(trial: TrialRecord, now: float) -> Json:
    return {
        "trial": trial.number,
        "phase": trial_phase(trial),
        "value": trial.value,
        "step": trial.step,
        "params": dict(trial.params),
        "slot": trial.slot,
        "run_id": trial.run,
        "attempts": trial.attempts,
        "preemptions": trial.spent.preemptions,
        "seconds": (now if trial.ended_at is None else trial.ended_at) - trial.made_at,
        "why": trial.why,
        "nan": trial.lost,
        "points": [list(point) for point in trial.points],
    }


def parameter_names(each: Iterable[Mapping[str, Any]]) -> list[str]:
    """All parameters, in order of appearance."""
    return list(dict.fromkeys(name for row in each for name in row["params"]))


def sweep_text(page: Mapping[str, Any], *, colour: bool = False, width: int | None = None) -> str:
    """`herd sweep status`"""
    each = page["trials"]
    if not each:
        return f"{sweep_heading(page)}\nNo trial has been created yet, because no slot is ready."
    metric, parameters = page["metric"] or "value", parameter_names(each)
    head = [*HEAD[:3], metric.upper(), *map(str.upper, parameters), *HEAD[3:]]
    cells = [
        [
            f"{row['trial']}{' *' if row['trial'] == page['best'] else ''}",
            row["phase"],
            row["slot"] or NOTHING,
            "nan" if row["nan"] else show_number(row["value"]),
            *(show_number(row["params"].get(name)) for name in parameters),
            format_number(row["attempts"] or None),
            format_number(row["step"]),
            format_span(row["seconds"]),
        ]
        for row in each
    ]
    right = range(3, len(head))
    table = format_table([head, *cells], right=right, colour=colour, width=width)
    notes = ["\n".join(failure_lines(each)), unreported_line(page)]
    return "\n\n".join([sweep_heading(page), table, *filter(None, notes)])


def unreported_line(page: Mapping[str, Any]) -> str:
    """Say that no trial has reported what trials are compared by; "" if one has, or can't yet."""
    metric, each = page["metric"], page["trials"]
    if not metric or any(row["points"] or row["nan"] for row in each):
        return ""
    done = sum(row["phase"] == TrialEnd.COMPLETE for row in each)
    if not done and all(row["seconds"] < UNREPORTED_S for row in each):
        return ""
    though = f", though {done} {'is' if done == 1 else 'are'} complete" if done else " so far"
    return (
        f"no trial has reported {metric}{though}: none can be the best. A script reports it by"
        f" `python3 -m tpuherd_host.report step=STEP {metric}=VALUE`, or in Python by `report` of"
        " tpuherd_host.report (docs/howto/sweeps.md)"
    )


def failure_lines(each: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Why trials failed or were pruned for NaN, each reason once: trials 3, 7 failed: …"""
    reasons: dict[tuple[str, str], list[str]] = {}
    for row in each:
        if row["phase"] == TrialEnd.FAILED or (row["phase"] == TrialEnd.PRUNED and row["nan"]):
            why = " ".join(row["why"].split())
            reasons.setdefault((row["phase"], why), []).append(str(row["trial"]))
    for (phase, why), trials in reasons.items():
        many = len(trials) > 1
        outcome = phase if phase == TrialEnd.FAILED else "were pruned" if many else "was pruned"
        yield f"trial{'s' if many else ''} {', '.join(trials)} {outcome}: {why}"


def sweep_heading(page: Mapping[str, Any]) -> str:
    """lr: minimize loss by bayes, 12 of 40 trials: 9 complete, 3 running; best 0.041 by trial 7"""
    what = f"{page['goal']} {page['metric']}".strip() or "all of a grid"
    by = f" by {page['method']}" if page["method"] else ""
    counts = ", ".join(f"{many} {word}" for word, many in page["phases"].items())
    line = f"{page['sweep']}: {what}{by}, {len(page['trials'])} of {page['planned']} trials"
    best = next((row for row in page["trials"] if row["trial"] == page["best"]), None)
    end = f"; best {show_number(best['value'])} by trial {best['trial']}" if best else ""
    return f"{line}{': ' if counts else ''}{counts}{end}"


def best_text(page: Mapping[str, Any], command: Sequence[str], row: Mapping[str, Any]) -> str:
    """`herd sweep best`: its parameters, and what repeats it."""
    lines = [f"{page['metric']} {show_number(row['value'])} at step {format_number(row['step'])},"
             f" trial {row['trial']} of {len(page['trials'])}, run {row['run_id']}"]  # fmt: skip
    return "\n".join([*lines, *(f"  {name}: {it}" for name, it in row["params"].items()), *command])


def show_number(value: Value | None) -> str:
    if isinstance(value, bool) or not isinstance(value, float):
        return NOTHING if value is None else str(value)
    return f"{value:.5g}"


def sweep_csv(page: Mapping[str, Any]) -> str:
    """One line per trial, with a column for each parameter."""
    buffer = io.StringIO()
    parameters = parameter_names(page["trials"])
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([*COLUMNS, *(f"params.{name}" for name in parameters), "why"])
    for row in page["trials"]:
        own: Sequence[Any] = [row["params"].get(name) for name in parameters]
        writer.writerow([*(row[name] for name in COLUMNS), *own, row["why"]])
    return buffer.getvalue()
