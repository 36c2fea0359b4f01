"""The fields of a job as Python types, so that type checkers find misspelt ones."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

Words = str | Sequence[str]
Duration = str | float  #: 30s, 90m, 2h, 3d, or seconds


class OptionalFields(TypedDict, total=False):
    """All fields but the two required ones. None means not set."""

    runtime: Words | None
    zones: Words | None
    tier: Words | None
    copies: int | None
    slices: int | None
    workdir: str | None
    repo: str | None
    python: str | None
    requirements: str | None
    nfs: Mapping[str, str] | None
    setup: Words | None
    run: Words | None
    cluster: str | None
    image: str | None
    env: Mapping[str, str | int | float | bool] | None
    secrets: Words | Mapping[str, Mapping[str, str] | None] | None
    checkpoint: str | None
    profiler: bool | None
    head_start: Words | None
    buckets: Mapping[str, str] | None
    data_rate: str | None
    egress_budget: str | float | None
    outputs: Words | None
    retry: Mapping[str, int | str] | None
    stall: Duration | Mapping[str, Duration] | None
    grace: Duration | None
    max_lifetime: Duration | None
    deadline: Duration | None  #: or a time: 2026-11-27T18:00Z
    work: Duration | None
    idle_timeout: Duration | None
    max_cost: float | None
    max_cost_per_hour: float | None
    node: Mapping[str, Duration] | None
    patience: Duration | None
    priority: Literal["low", "normal", "high"] | None
    request: str | None
    exact: bool | None
    node_name: str | None
    reservation: str | None
    service_account: str | None
    network: str | Mapping[str, str | bool | Sequence[str]] | None
    labels: Mapping[str, str] | None
    data_disks: Words | None
    metadata: Mapping[str, str | int | float | bool] | None
    notify: str | Mapping[str, Any] | Sequence[str | Mapping[str, Any]] | None
    sweep: Mapping[str, Any] | None


class JobFields(OptionalFields):
    name: str
    accelerator: Words


class JobChanges(OptionalFields, total=False):
    """Keywords of `change(...)`; None resets a field."""

    accelerator: Words


class MapOptions(TypedDict, total=False):
    """What `Herd.map` can be told of a map."""

    retries: int  #: of a failed item
    timeout: str | float  #: of one item: "1h", or seconds
    again: bool  #: also run items that have already succeeded
