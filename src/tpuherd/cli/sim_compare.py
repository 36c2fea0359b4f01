"""`herd sim compare`: what a transcript of a real cloud shows that the simulator gets wrong."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tpuherd.cli.print_text import print_text
from tpuherd.exit_status import FAILED

if TYPE_CHECKING:
    from tpuherd_sim.compare.compare_transcript import Comparison


@click.command()
@click.argument("transcript", type=click.Path(path_type=Path))
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
@click.pass_context
def compare(ctx: click.Context, transcript: Path, json_: bool) -> None:
    """Compare a transcript of a cloud with the simulator.

    TRANSCRIPT is a file of `herd record`. Lists every difference once: methods, errors, fields,
    values, order, changes of state, durations and what hosts have. Status 1 if there are any.
    """
    from tpuherd_sim.compare.compare_transcript import compare_file
    from tpuherd_sim.compare.transcript_file import TranscriptError

    try:
        found = compare_file(transcript)
    except TranscriptError as error:
        raise click.UsageError(str(error), ctx) from error
    if json_:
        click.echo(json.dumps(found.as_json(), indent=2))
    else:
        print_text(comparison_text(found))
    ctx.exit(FAILED if found.differences else 0)


def comparison_text(found: "Comparison") -> str:
    """Return the differences by their kind, and what was compared."""
    from tpuherd_sim.compare.differences import KINDS

    lines: list[str] = []
    kind = ""
    for one in found.differences:
        if one.kind != kind:
            kind = one.kind
            lines.append(f"{kind}: {KINDS[kind]}")
        times = f", {one.times} times" if one.times > 1 else ""
        lines.append(f"  {one.sentence} (line {one.line}{times})")
    cloud = "a simulated world" if found.cloud == "world" else "Google Cloud"
    hosts = f" and {counted(found.hosts, 'host')}" if found.hosts else ""
    many = len(found.differences)
    result = f"{many} difference{'s' * (many > 1)}" if many else "No difference"
    lines.append(f"{result} in {counted(found.exchanges, 'exchange')}{hosts} of {cloud}")
    if found.skipped:
        lines.append(f"{counted(found.skipped, 'line')} cut or malformed, and left out")
    return "\n".join(lines)


def counted(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"
