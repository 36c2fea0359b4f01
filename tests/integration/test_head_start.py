"""What is done for a new node before the cloud says READY of it: real engine, hosts and agents."""

import pytest

from tests.integration.engines import owner

pytestmark = pytest.mark.real


def test_hosts_are_set_up_before_the_node_is_ready() -> None:
    """At this time scale a node is READY half a minute after its hosts answer."""
    with owner("--time-scale", "5") as user:
        user.job(
            "gpt", "python3 -c 'print(1)'", accelerator="v5litepod-16", setup="touch ~/is-set-up"
        )
        prepared = user.happened("slot.prepared", 120)
        user.happened("attempt.started", 120)
        started = user.events("attempt.started")[0]
        # Of several grants, one that is withdrawn may be READY before it is deleted.
        (ready,) = (e for e in user.events("bid.ready") if e.facts["bid"] == prepared.facts["bid"])
        assert len(user.events("slot.prepared")) == 1, "it was not set up again"
        assert prepared.at < ready.at <= started.at
        user.herd("down", "gpt", "--yes")
