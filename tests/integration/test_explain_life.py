"""Jobs that really fail on the hosts of a world, and what `herd explain` says of them."""

import json
from typing import Any

import pytest

from tests.conformance.world import until
from tests.integration.engines import Owner

pytestmark = pytest.mark.real

#: Worker 2 fails by itself; the others say what JAX says when a peer is gone.
ONE_FAILS = r"""
echo step 1
case $(hostname) in *-w-2) python3 -c 'import no_such_module'; exit 1;; esac
sleep 2
echo 'jax.errors.JaxRuntimeError: UNKNOWN: Gloo AllGather failed: Connection reset by peer' >&2
exit 134
"""
NO_RETRY = {"retry": {"failures": 0}}


def explained(user: Owner, job: str, *words: str) -> list[dict[str, Any]]:
    done = user.herd("explain", job, "--json", *words)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def test_the_host_with_the_cause_is_named_among_four(user: Owner) -> None:
    user.job("one", ONE_FAILS, accelerator="v4-32", **NO_RETRY)
    user.job("kill", "echo step 1; kill -9 $$", accelerator="v4-8", **NO_RETRY)
    user.job("taken", "echo step 1; sleep 3600", accelerator="v4-8")
    assert user.herd("wait", "one", seconds=120).returncode == 1
    first, *rest = explained(user, "one")
    assert (first["id"], first["role"], first["host"]) == ("no-module", "cause", "one-0/w2")
    assert "no module no_such_module:" in first["cause"]
    assert [(one["id"], one["role"], one["hosts"]) for one in rest] == [
        ("peer-socket", "consequence", ["one-0/w0", "one-0/w1", "one-0/w3"])
    ]
    for command in ("status", "why"):
        shown = user.herd(command, "one").stdout
        assert "cause: the Python of this host has no module no_such_module" in shown
        assert "fix: put it into `requirements:`" in shown
    (ended,) = [one for one in user.events("attempt.ended") if one.job == "one"]
    assert ended.facts["finding"] == "no-module"
    user.herd("wait", "kill", seconds=60)
    assert [one["id"] for one in explained(user, "kill")] == ["killed"]
    until(
        lambda: any(one.slot == "taken-0" for one in user.events("attempt.started")),
        "a start",
        seconds=60,
    )
    (node,) = [name for name in user.all_there_is() if "/taken-0-" in name and "/nodes/" in name]
    user.herd("sim", "weather", "preempt", node.rpartition("/")[2], "notice_s=0")
    until(
        lambda: any(one.slot == "taken-0" for one in user.events("attempt.ended")),
        "its end",
        seconds=60,
    )
    found = explained(user, "taken", "--attempt", "1")
    assert (found[0]["id"], found[0]["role"]) == ("preempted", "cause")
    user.herd("down", "--all", "--yes", seconds=60)
