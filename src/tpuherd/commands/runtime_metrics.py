"""Which of libtpu's metrics we show, and which of their values can be true. Pure.

The agent's runtime_metrics.py parses the messages.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

HBM_MAX = 1 << 50
IDLE_MAX = 1e9
PERCENT_MAX = 100.5  #: libtpu rounds


@dataclass(frozen=True, kw_only=True, slots=True)
class MetricKind:
    """One metric: its field in a reading, its name for users and libtpu, and its greatest value."""

    field: str
    title: str
    name: str
    largest: float
    is_sum: bool = False  #: a chip's value is the sum over its devices; else the mean


METRICS: Sequence[MetricKind] = (
    MetricKind(
        field="hbm_total", title="the size of HBM",
        name="tpu.runtime.hbm.memory.total.bytes", largest=HBM_MAX, is_sum=True,
    ),
    MetricKind(
        field="hbm_used", title="the use of HBM",
        name="tpu.runtime.hbm.memory.usage.bytes", largest=HBM_MAX, is_sum=True,
    ),
    MetricKind(
        field="duty_percent", title="the duty cycle",
        name="tpu.runtime.tensorcore.dutycycle.percent", largest=PERCENT_MAX,
    ),
    MetricKind(
        field="bandwidth_percent", title="the bandwidth of HBM",
        name="tpu.runtime.hbm.utilization.percent", largest=PERCENT_MAX,
    ),
    MetricKind(
        field="idle_s", title="the idle time",
        name="tpu.runtime.tensorcore.idle_duration.seconds", largest=IDLE_MAX,
    ),
)  # fmt: skip


def combine_values(kind: MetricKind, values: Sequence[float | int]) -> float | int | None:
    """Return a chip's value; None if one of them can't be true."""
    if not all(isfinite(one) and 0 <= one <= kind.largest for one in values):
        return None
    return sum(values) if kind.is_sum else sum(values) / len(values)
