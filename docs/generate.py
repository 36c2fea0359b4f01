"""Writes the pages of docs/reference from the tables they describe: `make docs`."""

import inspect
import json
import re
from collections.abc import Iterator
from dataclasses import MISSING
from pathlib import Path
from types import ModuleType

import click

from tpuherd.cli import main as command_line
from tpuherd.cli.command_table import help_page
from tpuherd.jobfile.fields import FIELDS, job_json_schema
from tpuherd.jobfile.job_diff import show_field
from tpuherd.model import slots_and_plan
from tpuherd.planner import policy
from tpuherd.views.reference_pages import events_page, json_page
from tpuherd_sim.google_apis import routes as services
from tpuherd_sim.handle import TPU_ROUTES
from tpuherd_sim.tpu import host_reports
from tpuherd_sim.tpu.router import Route
from tpuherd_sim.weather import http_commands as weather
from tpuherd_sim.weather.reference import reference_page as weather_page

HERE = Path(__file__).parent / "reference"

CLI_HEAD = """\
# The command line

*Written by `make docs` from the commands themselves.*

Data goes to stdout, everything else to stderr. Exit status: 0 done, 1 failed, 2 said wrongly or
refused, 7 nobody answers there, 130 interrupted. `NO_COLOR`, `FORCE_COLOR` and `TERM=dumb` are
obeyed; `HERD_WORLD` is `--world`, `HERD_DEBUG=1` shows the traceback of what should not happen.

```text
{page}```
"""

API_HEAD = """\
# What a world serves

*Written by `make docs` from the routes of the model.*

A world answers these methods on its one port. Any bearer token is taken, or none. Field by field
it follows Google's discovery documents, which it serves, too; where it guesses is listed in
[the simulator's weak points](../explanation/simulator.md#weak-points). Whatever is not here gets
the answer that Google gives to an unknown path.
"""

JOB_HEAD = """\
# The fields of a job

*Written by `make docs` from the table that reads them.* How to use them:
[run a job until it is done](../howto/jobs.md). For editors: [job.schema.json](job.schema.json).

A job file is YAML or JSON. Only `name` and `accelerator` must be said, and `run` for `herd run`.
What is unknown or misspelt is refused, all mistakes at once, each with its line. Durations are
written `30s`, `90m`, `2h` or `3d`, or as seconds. Where several may stand, one needs no brackets.
Values of `env`, `labels` and `metadata` are taken as they are written: `0.10` stays `0.10`.

What a change takes: *node*: another node, and the one that is there works on until that is ready;
*attempt*: the command is stopped and started again on the same node; else nothing is interrupted.

| field | by itself | change | |
|---|---|---|---|
"""

POLICY_HEAD = """\
# What is done, and when

*Written by `make docs` from the two tables of `planner/policy.py`, which the engine obeys.*

Nothing else decides. What keeps a move or a deed back (budgets, pauses, a hold until all have
spoken) is told in [the judgement](../explanation/judgement.md); `herd why` says it of your job.

## Bids

{bids}

A bid on which an attempt is not over is withdrawn only when it is.

{roles}

{stages}

## Gangs

{gangs}

{shapes}
"""

#: First word of a path → the heading over its methods.
SERVICES = {"compute": "Compute Engine", "storage": "Cloud Storage", "sim": "The world itself"}
TPU = "Cloud TPU"
OTHERS = "Projects, quota, tokens, discovery"


def commands(command: click.Command, above: click.Context) -> Iterator[click.Context]:
    """A command and all below it, each in the context in which it would run."""
    context = click.Context(command, above, info_name=command.name, terminal_width=90)
    yield context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from commands(below, context)


def cli_page() -> str:
    """Every command's own help."""
    parts = [CLI_HEAD.format(page=help_page())]
    top = click.Context(command_line.herd, info_name="herd", **command_line.herd.context_settings)
    for name in command_line.herd.list_commands(top):
        command = command_line.herd.get_command(top, name)
        assert command is not None
        for context in commands(command, top):
            text = context.get_help()
            parts.append(f"## {context.command_path}\n\n```text\n{text}\n```\n")
    return "\n".join(parts)


def api_page() -> str:
    """Every method, by service; one that is there in several versions stands once."""
    groups: dict[str, dict[tuple[str, str, str], list[str]]] = {TPU: {}}
    groups |= {heading: {} for heading in [*SERVICES.values(), OTHERS]}
    for route in TPU_ROUTES:
        _, version, path = route.template.split("/", 2)
        row = (route.method, f"/…/{path}", meaning(route))
        groups[TPU].setdefault(row, []).append(version)
    for route in (*host_reports.ROUTES, *weather.ROUTES, *services.ROUTES):
        first = route.template.strip("/").partition("/")[0]
        groups[SERVICES.get(first, OTHERS)][route.method, route.template, meaning(route)] = []
    parts = [API_HEAD]
    for heading, rows in groups.items():
        lines = ["| method | path | |", "|---|---|---|"]
        for (method, path, does), versions in rows.items():
            where = f" ({', '.join(versions)})" if versions else ""
            lines.append(f"| {method} | `{path}` | {does}{where} |")
        parts.append(f"## {heading}\n\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)


def job_page() -> str:
    """Every field of a job."""
    lines = [JOB_HEAD]
    for field in FIELDS.values():
        default = "*must be said*" if field.default is MISSING else f"{show_field(field.name, {})}"
        needs = "" if field.needs == "nothing" else str(field.needs)
        means = f"{field.means} `{field.example}`".replace("|", "\\|")
        lines.append(f"| `{field.name}` | {default} | {needs} | {means} |\n")
    return "".join(lines)


def meaning(route: Route) -> str:
    """What the function that answers says of itself."""
    return (route.answer.__doc__ or "").partition("\n")[0]


def policy_page() -> str:
    """The two tables, and what their words mean."""
    stages = list(policy.BidPhase)
    heads = [f"| role | {' | '.join(stages)} |", "|---" * (len(stages) + 1) + "|"]
    bids = [
        f"| **{role}** | {' | '.join(row[stage] for stage in stages)} |"
        for role, row in policy.BIDS.items()
    ]
    goals = list(slots_and_plan.Goal)
    shapes = [f"| shape | {' | '.join(goals)} |", "|---" * (len(goals) + 1) + "|"]
    gangs = [
        f"| **{shape}** | {' | '.join(row[goal] for goal in goals)} |"
        for shape, row in policy.GANG.items()
    ]
    return POLICY_HEAD.format(
        bids="\n".join([*heads, *bids]),
        roles=words(policy, "Role"),
        stages=words(policy, "BidPhase"),
        gangs="\n".join([*shapes, *gangs]),
        shapes=words(policy, "GangState"),
    )


def words(module: ModuleType, enum: str) -> str:
    """What the members of an enumeration mean, by the comments beside them."""
    text = inspect.getsource(getattr(module, enum))
    found = re.findall(r'= "([^"]+)"  #: (.+)', text)
    return "\n".join(f"- *{name}*: {meaning}" for name, meaning in found)


def pages() -> dict[Path, str]:
    """Every generated page and what should stand in it."""
    return {
        HERE / "cli.md": cli_page(),
        HERE / "api.md": api_page(),
        HERE / "policy.md": policy_page(),
        HERE / "weather.md": weather_page(),
        HERE / "job.md": job_page(),
        HERE / "events.md": events_page(),
        HERE / "json.md": json_page(),
        HERE / "job.schema.json": json.dumps(job_json_schema(), indent=2, ensure_ascii=False)
        + "\n",
    }


def main() -> None:
    """Write those that are not as they should be."""
    HERE.mkdir(exist_ok=True)
    for path, text in pages().items():
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            print(f"wrote {path.relative_to(HERE.parents[1])}")


if __name__ == "__main__":
    main()
