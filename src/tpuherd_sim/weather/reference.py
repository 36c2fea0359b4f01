"""The table of what the weather can do, written out for a terminal or for the docs."""

from tpuherd_sim.model.http_types import Json
from tpuherd_sim.weather.kinds import LASTING, RULE, RULES, STROKES, Argument, WeatherKind

HEAD = """# The weather

*Written by `make docs` from the table in `sim/weather/kinds.py`.*

The weather is what a world does to its users. Three ways lead to the same table:

- `herd sim weather KIND [VALUE …] [NAME=VALUE …]`, now;
- `POST /sim/v1/weather/KIND` with the arguments as JSON, now;
- a step of a scenario file, at its time (`herd sim start --scenario FILE`).

A stretch of time is a number of seconds or a text such as `90s`, `10m`, `2h`, `1d` or `1h30m`.
Times of a scenario and every `for` run by the world's clock, which `--time-scale` hastens;
notices, delays and everything on hosts run by the wall.
Patterns are those of a shell: `*`, `?`, `[…]`. In a target a star does not reach over a slash.
`herd sim log` shows what was done, by command
(`weather.preempt`), by a scenario, and when a rule struck (`weather.struck`).
"""
RULES_HEAD = """## Rules

A rule stays in force until it is cleared or over, and strikes whomever it fits: it is narrowed by
patterns, limited by `for` and `times`, and strikes with the chance `share`. The answer to its
command names it (`http-error-1`); `herd sim weather clear http-error-1` ends it.
"""
STROKES_HEAD = """## Strokes

A stroke happens once. Those with a `for` are undone by themselves after so long.
"""
SCENARIO = """## Scenario files

```yaml
seed: 7                          # for the jitter of traces and the storm
capacity:                        # from the start: zone, accelerator type (or *), nodes
  us-central2-b: {v4-8: 4, "*": 6}
traces:                          # measured capacity over time; the path counts from this file
  - {file: us-east-2b.json, zone: us-east1-d, type: v3-32, start: 10m, offset: 2d}
weather:                         # rules in force from the start
  - {do: http-error, http: 503, share: 0.01}
steps:
  - {at: 10m, do: preempt, target: gpt-0}
  - {at: 1h, do: drought, zone: us-central2-b, for: 2h}
  - {every: 1h, until: 1d, do: crash, target: "gpt-*", pick: 1}
storm: {zones: [us-central2-b, us-east1-d], hours: 24, strength: 1}
```

Every part may be left out. `at` counts from the moment the scenario is given to the world; `every`
begins after its first stretch unless `at` says when. A trace is
`{"metadata": {"gap_seconds": 300}, "data": [4, 4, 0, …]}`: the number of nodes that can be had at
each tick; `offset` skips its beginning, `start` says when it begins. A change takes place somewhere
between two ticks, where the seed says.
A file that can't be read is refused with its line and field:
`line 7: 'zon' is not an argument of drought; did you mean 'zone'?`

`storm` (or `herd sim start --weather storm`) is weather made by chance, the same for the same seed:
in each zone capacity comes and goes as it was measured of spot machines (a third of the grants die
within the hour, old ones are the safest, zones of a region fail together), with every kind of fault
at a rate of its own. `strength` makes all of it more frequent.
"""


def kind_rows() -> list[Json]:
    """The table as data, for `GET /sim/v1/weather` and `herd sim weather`."""
    return [
        {
            "name": kind.name,
            "family": kind.family,
            "meaning": kind.meaning,
            "example": kind.example,
            "arguments": [
                {
                    "name": argument.name,
                    "type": argument.type,
                    "default": argument.default,
                    "needed": argument.needed,
                    "unit": argument.unit,
                    "choices": list(argument.choices),
                    "meaning": argument.meaning,
                }
                for argument in kind.arguments.values()
            ],
        }
        for kind in (*RULES, *STROKES)
    ]


def reference_page() -> str:
    """docs/reference/weather.md."""
    parts = [HEAD, RULES_HEAD]
    parts += [kind_section(kind) for kind in RULES]
    parts += [STROKES_HEAD]
    parts += [kind_section(kind) for kind in STROKES]
    return "\n".join([*parts, SCENARIO])


def kind_section(kind: WeatherKind) -> str:
    """One kind."""
    head = f"### {kind.name}\n\n{kind.meaning[0].upper()}{kind.meaning[1:]}.\n"
    example = f"```sh\nherd sim weather {kind.example}\n```\n"
    own = [argument_row(argument) for argument in (*kind.own, *((LASTING,) if kind.undo else ()))]
    table = ["| argument | default | |", "|---|---|---|", *own, ""] if own else []
    if kind.family == RULE:
        narrowed = ", ".join(f"`{name}`" for name in kind.match)
        table += [f"Narrowed by {narrowed}.", ""]
    return "\n".join([head, example, *table]).rstrip() + "\n"


def argument_row(argument: Argument) -> str:
    """One argument as a row of Markdown."""
    default = "needed" if argument.needed else format_default(argument.default)
    unit = f" ({argument.unit})" if argument.unit else ""
    choices = f": {', '.join(argument.choices)}" if argument.choices else ""
    return f"| `{argument.name}` | {default} | {argument.meaning}{choices}{unit} |"


def format_default(default: object) -> str:
    """A default as one would write it."""
    if default is None:
        return ""
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return f"`{default:g}`" if isinstance(default, float) else f"`{default}`"
