"""Hosts for judgements: healthy ones, and ones that differ."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from tpuherd.checks.host_facts import HostFacts, parse_host_facts
from tpuherd.checks.judgement import CheckedHost, Expectation
from tpuherd.ports import Host

HEALTHY = json.loads((Path(__file__).parents[1] / "scenarios/checks/healthy_host.json").read_text())
GANG = ("10.128.1.1", "10.128.1.2", "10.128.1.3", "10.128.1.4")
EXPECTED = Expectation(
    type="v4-32", generation="v4", chips=4, runtime="tpu-ubuntu2204-base", gang=GANG
)


def apply_patch(content: Any, patch: Any) -> Any:
    """Merge objects; everything else is replaced."""
    if not (isinstance(content, dict) and isinstance(patch, dict)):
        return patch
    return content | {name: apply_patch(content.get(name), value) for name, value in patch.items()}


def make_host(at: int, one: dict[str, Any], facts: HostFacts | None = None) -> CheckedHost:
    """Host `at` of a pod, with the addresses of the recorded one."""
    host = Host(
        node="pod",
        zone="us-central2-b",
        worker=one.get("worker", at),
        incarnation="7@2026-11-23T10:00:00Z",
        internal_ip="10.128.1.2",
        external_ip="127.110.0.2",
    )
    return CheckedHost(
        label=f"pod/w{at}",
        host=host,
        facts=facts or parse_host_facts(apply_patch(HEALTHY, one.get("facts", {}))),
        now=1795430639.0,
        expected=replace(EXPECTED, **one.get("expected", {})),
        ahead_s=one.get("ahead_s", 0.0),
        ahead_error_s=one.get("ahead_error_s", 0.01),
    )
