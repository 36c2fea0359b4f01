"""The options before a command's name."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class Invocation:
    """Every command finds this in `ctx.obj`."""

    world: Path | None = None  #: the state directory of a simulated world; None is Google Cloud
    loud: int = 0  #: -1 with --quiet, 1 with -v, 2 with -vv
    environ: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
