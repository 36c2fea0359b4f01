"""`herd sim policies`: our engine, other tools and the best possible, on the same capacity."""

import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tpuherd.cli.print_text import print_text

if TYPE_CHECKING:
    from tpuherd_lab.compare_policies import PolicyStudy, SetSource
    from tpuherd_lab.statistics import ResultRow

WIDTH_MAX = 200
TITLES = {
    "own": "Every policy with what it does itself",
    "slow": "Every policy with a user's slow start",
    "faults": "With a crash a day and a hang every four days",
}


@click.command()
@click.option(
    "--traces",
    "folders",
    multiple=True,
    metavar="DIRECTORY",
    type=click.Path(path_type=Path),
    help="A folder of traces, or of such folders; may be repeated.",
)
@click.option(
    "--generated",
    multiple=True,
    metavar="KIND",
    help="Capacity made from a seed; default: tpu-churn, unless there are traces.",
)
@click.option("--policy", "policies", multiple=True, help="Only this policy; may be repeated.")
@click.option("--seeds", type=click.IntRange(1, 100), default=3, help="How often each is run.")
@click.option("--faults", is_flag=True, help="A third table: scripts that crash and hang.")
@click.option(
    "--processes", type=click.IntRange(1, 64), default=2, help="How many run at the same time."
)
@click.option(
    "--sweep",
    "factors",
    multiple=True,
    metavar="CONSTANT",
    help="Vary one constant of our policy instead; all: each in turn.",
)
@click.option(
    "--deadline",
    "deadlines",
    is_flag=True,
    help="Compare what 48 h of work cost that are to be done in 52 or 70 h, on these traces.",
)
@click.option(
    "--svg", type=click.Path(dir_okay=False, path_type=Path), help="Write the picture to a file."
)
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
@click.pass_context
def policies(ctx: click.Context, /, folders: tuple[Path, ...], **chosen: Any) -> None:
    """Compare ways to keep a job running, on measured or generated capacity.

    The engine is the real one, in virtual time. Other tools are models of their source. The bound
    is what one could reach who knew all of the future.
    """
    from tpuherd_lab.compare_policies import PolicyError
    from tpuherd_lab.traces import TraceError

    try:
        if chosen["deadlines"]:
            compare_deadlines(folders, json_=chosen["json_"])
        elif chosen["factors"]:
            sweep_constants(folders, chosen)
        else:
            compare_policies(folders, chosen)
    except (TraceError, PolicyError) as error:
        raise click.UsageError(str(error), ctx) from error


def load_sources(folders: Sequence[Path], kinds: Sequence[str]) -> "tuple[SetSource, ...]":
    from tpuherd_lab.compare_policies import find_sources

    return find_sources(folders, kinds or (() if folders else ("tpu-churn",)))


def compare_policies(folders: Sequence[Path], chosen: Mapping[str, Any]) -> None:
    from tpuherd_lab.compare_policies import FAULTS, PolicyStudy, find_policies, run_study
    from tpuherd_lab.results_plot import plot_svg

    study = PolicyStudy(
        sources=load_sources(folders, chosen["generated"]),
        policies=find_policies(chosen["policies"]),
        seeds=chosen["seeds"],
    )
    if chosen["faults"]:
        study = replace_tables(study, (*study.tables, FAULTS))
    found = run_study(study, processes=chosen["processes"], tick=show_progress)
    if chosen["svg"] is not None:
        write_picture(chosen["svg"], plot_svg(found["own"]))
    if chosen["json_"]:
        click.echo(json.dumps(study_json(study, found), indent=2))
    else:
        print_tables(found)


def replace_tables(study: "PolicyStudy", tables: tuple[str, ...]) -> "PolicyStudy":
    from dataclasses import replace

    return replace(study, tables=tables)


def write_picture(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.FileError(str(file), error.strerror or str(error)) from error


def show_progress(done: int, total: int) -> None:
    """Say how far it is, on a terminal."""
    if sys.stderr.isatty():
        print(f"\r{done} of {total} runs\r", end="" if done < total else "\n", file=sys.stderr)


def print_tables(found: "Mapping[str, list[ResultRow]]") -> None:
    from tpuherd_lab.constants import FAST, NAIVE, SLOW, add_faults
    from tpuherd_lab.results_plot import plot_lines
    from tpuherd_lab.results_table import LEGEND, draw_constants, draw_results

    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    width = min(shutil.get_terminal_size((WIDTH_MAX, 24)).columns, WIDTH_MAX)
    assumed = {
        "own": (FAST, NAIVE), "slow": (SLOW, SLOW), "faults": (add_faults(FAST), add_faults(NAIVE)),
    }  # fmt: skip
    for table, rows in found.items():
        lines = [f"{TITLES[table]}. Assumed:"]
        lines += draw_constants(*assumed[table], width=width)
        lines += ["", *draw_results(rows, width=width, colour=colour)]
        if table == "own":
            lines += plot_lines(rows, width=min(width, 100), colour=colour)
        print_text("\n".join((*lines, "")))
    print_text(LEGEND)


def study_json(study: "PolicyStudy", found: "Mapping[str, list[ResultRow]]") -> dict[str, Any]:
    from tpuherd_lab.compare_policies import constants_of
    from tpuherd_lab.results_table import result_json

    names = {"own": "rows", "slow": "slow_rows", "faults": "fault_rows"}
    constants = {
        table: {policy: asdict(constants_of(table, policy)) for policy in study.policies}
        for table in study.tables
    }
    rows = {names[table]: [result_json(row) for row in rows] for table, rows in found.items()}
    return {"seeds": study.seeds, **rows, "constants": constants}


def compare_deadlines(folders: Sequence[Path], *, json_: bool) -> None:
    from tpuherd_lab.deadline_study import run_deadline_study
    from tpuherd_lab.deadline_table import deadline_rows, deadline_text

    if not folders:
        raise click.UsageError(
            "--deadline needs --traces: Can't Be Late's windows, or other traces"
        )
    rows = [row for folder in folders for row in run_deadline_study(folder)]
    if json_:
        click.echo(json.dumps({"rows": deadline_rows(rows)}, indent=2))
    else:
        print_text(deadline_text(rows))


def sweep_constants(folders: Sequence[Path], chosen: Mapping[str, Any]) -> None:
    from tpuherd_lab.policy_sweep import find_factors, sweep_factor, sweep_lines

    names = find_factors(chosen["factors"])
    sources = load_sources(folders, chosen["generated"])
    everything = []
    for source in sources:
        for name in names:
            rows = sweep_factor(name, source, chosen["seeds"])
            everything += [asdict(row) for row in rows]
            if not chosen["json_"]:
                print_text("\n".join(sweep_lines(rows)))
    if chosen["json_"]:
        click.echo(json.dumps(everything, indent=2))
