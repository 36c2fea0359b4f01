"""The text of `herd profile`: what was traced, and what that cost. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any, Protocol

from tpuherd.targets import fold_names
from tpuherd.views.format_text import format_bytes

SAME_PERCENT = 0.5


class TracedHost(Protocol):
    """What is shown of a host's trace."""

    @property
    def host(self) -> str: ...
    @property
    def slot(self) -> str: ...
    @property
    def file(self) -> Any: ...
    @property
    def bytes(self) -> int: ...
    @property
    def step_s_before(self) -> float | None: ...
    @property
    def step_s_during(self) -> float | None: ...


def profile_lines(traces: Sequence[TracedHost], seconds: float, folder: str) -> Iterator[str]:
    size = format_bytes(sum(one.bytes for one in traces))
    names = fold_names(one.host for one in traces)
    yield f"traced {names} for {seconds:g} s: {size} in {folder}"
    yield cost_line(traces)


def cost_line(traces: Sequence[TracedHost]) -> str:
    """A step took 120 ms before, 131 ms while it was traced: 9 % more."""
    pairs = [
        (one.step_s_before, one.step_s_during)
        for one in traces
        if one.step_s_before and one.step_s_during
    ]
    if not pairs:
        return (
            "what the trace cost is not known: there were fewer than three reports of steps;"
            " a longer --seconds may show it"
        )
    before, during = (median(each) for each in zip(*pairs, strict=True))
    change = 100 * (during / before - 1)
    more = f"{abs(change):.0f} % {'more' if change > 0 else 'less'}"
    if abs(change) < SAME_PERCENT:
        more = "about the same"
    times = f"{step_text(before)} before, {step_text(during)} while it was traced"
    return f"a step took {times}: {more}"


def step_text(seconds: float) -> str:
    """120 ms, 1.31 s"""
    return f"{1000 * seconds:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def profile_object(traces: Sequence[TracedHost], folder: str) -> Mapping[str, Any]:
    return {
        "folder": folder,
        "hosts": [
            {
                "host": one.host, "slot": one.slot, "file": str(one.file), "bytes": one.bytes,
                "step_s_before": one.step_s_before, "step_s_during": one.step_s_during,
            }
            for one in traces
        ],
    }  # fmt: skip
