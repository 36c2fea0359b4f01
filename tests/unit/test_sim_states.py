"""Which calls are allowed in which state: every pair, as a rule."""

from collections.abc import Callable

import pytest

from tests.simulated.tpu_user import PLACE, SPOT, User
from tpuherd_sim.tpu.faults import lose_host, preempt_node
from tpuherd_sim.tpu.nodes import ALLOWED
from tpuherd_sim.tpu.queued_resources import DELETES
from tpuherd_sim.tpu.request_schemas import message_fields
from tpuherd_sim.tpu.set_capacity import set_capacity

KEY = "us-central2-b/n"


def full(user: User) -> None:
    set_capacity(user.world, "us-central2-b", "*", 0, user.now)


def expired(user: User) -> None:
    full(user)
    user.queue(queueingPolicy={"validUntilDuration": "60s"}, spot={})
    user.wait(60)


def accepted(user: User) -> None:
    user.queue(queueingPolicy={"validAfterDuration": "99s"}, spot={})
    user.until("ACCEPTED")


def waiting(user: User) -> None:
    full(user)
    user.queue()
    user.wait(600)


def suspending(user: User) -> None:
    user.active()
    user.delete("q-n")
    user.until("SUSPENDING")


def suspended(user: User) -> None:
    suspending(user)
    user.until("SUSPENDED")


def deleting(user: User) -> None:
    user.active()
    assert user.ask("DELETE", f"{PLACE}/queuedResources/q?force=true").status == 200


def provisioning(user: User) -> None:
    user.queue()
    user.until("PROVISIONING")


#: How a queued resource comes into each of its states.
WAYS: dict[str, Callable[[User], object]] = {
    "CREATING": lambda user: user.queue(),
    "ACCEPTED": accepted,
    "WAITING_FOR_RESOURCES": waiting,
    "PROVISIONING": provisioning,
    "ACTIVE": lambda user: user.active(),
    "SUSPENDING": suspending,
    "SUSPENDED": suspended,
    "FAILED": expired,
    "DELETING": deleting,
}


def test_every_request_state_has_a_rule_and_can_be_reached() -> None:
    states = message_fields("v2", "QueuedResourceState")["state"][1]["enum"]
    assert set(DELETES) == set(WAYS) == set(states) - {"STATE_UNSPECIFIED"}


@pytest.mark.parametrize("force", [False, True], ids=["plain", "force"])
@pytest.mark.parametrize("state", WAYS)
def test_deleting_a_request_follows_the_table(state: str, force: bool) -> None:
    user = User()
    WAYS[state](user)
    assert user.request().state == state
    wanted = "?force=true" if force else ""
    answer = user.ask("DELETE", f"{PLACE}/queuedResources/q{wanted}")
    rule = DELETES[state][force]
    if rule == "refuse":
        assert answer.said["error"]["status"] == "FAILED_PRECONDITION"
        assert user.request().state == state
        return
    assert answer.status == 200
    operation = f"/v2/{answer.said['name']}"
    assert user.get(operation)["done"] is False
    if rule == "doom":
        user.wait(1.5)
        assert user.get(operation)["error"]["code"] == 9
        assert user.request().state != "DELETING"
    else:
        assert user.request().state == "DELETING"
        user.wait(120)
        assert user.get(operation)["response"]["@type"].endswith("Empty")
        assert not user.world.requests and not user.world.nodes


def test_a_request_is_deleted_without_force_iff_it_has_no_nodes() -> None:
    """In the words of the documents, and as seen: also while it waits."""
    free = {state for state, (plain, _) in DELETES.items() if plain == "accept"}
    assert free == {"ACCEPTED", "WAITING_FOR_RESOURCES", "FAILED", "SUSPENDED"}


@pytest.mark.parametrize("state", WAYS)
def test_a_request_is_reset_iff_it_is_active(state: str) -> None:
    user = User()
    WAYS[state](user)
    old = user.world.nodes.get("us-central2-b/q-n")
    answer = user.ask("POST", f"{PLACE}/queuedResources/q:reset")
    assert (answer.status == 200) == (state == "ACTIVE")
    if state != "ACTIVE":
        assert answer.said["error"]["status"] == "FAILED_PRECONDITION"
        return
    assert user.request().state == "PROVISIONING"
    user.wait(600)
    new = user.record("q-n")
    assert user.request().state == "ACTIVE"
    assert new.state == "READY" and old is not None and new.uid != old.uid
    assert user.get(f"/v2/{answer.said['name']}")["response"]["state"]["state"] == "ACTIVE"


@pytest.mark.parametrize("state", WAYS)
def test_only_a_waiting_request_expires(state: str) -> None:
    """The time until which it is valid is about its waiting, and about nothing else."""
    user = User()
    WAYS[state](user)
    user.wait(86400)
    if state in ("SUSPENDED", "FAILED", "ACTIVE", "WAITING_FOR_RESOURCES"):
        assert user.request().state == state
    elif state == "SUSPENDING":
        assert user.request().state == "SUSPENDED"
    elif state == "DELETING":
        assert not user.world.requests
    else:
        assert user.request().state == "ACTIVE"


def stopped(user: User) -> None:
    user.ready()
    user.verb("stop")
    user.wait(600)


def starting(user: User) -> None:
    stopped(user)
    user.verb("start")


def stopping(user: User) -> None:
    user.ready()
    user.verb("stop")


def repairing(user: User) -> None:
    user.ready()
    lose_host(user.world, KEY, 0, user.now)
    user.wait(60)


def restarting(user: User) -> None:
    user.ready()
    user.weather("maintain", target="n", notice_s=0, duration_s=600)
    user.wait(1)


def preempted(user: User) -> None:
    user.ready(**SPOT)
    preempt_node(user.world, KEY, user.now, notice_s=0.0)


def terminated(user: User) -> None:
    user.ready(schedulingConfig={"preemptible": True})
    user.wait(86400)


def dying(user: User) -> None:
    user.ready()
    user.delete()


#: How a node comes into its states.
NODES: dict[str, Callable[[User], object]] = {
    "CREATING": lambda user: user.create(),
    "READY": lambda user: user.ready(),
    "STOPPING": stopping,
    "STOPPED": stopped,
    "STARTING": starting,
    "REPAIRING": repairing,
    "RESTARTING": restarting,
    "PREEMPTED": preempted,
    "TERMINATED": terminated,
    "DELETING": dying,
}
VERBS = {
    "update": ("PATCH", "?updateMask=description"),
    "stop": ("POST", ":stop"),
    "start": ("POST", ":start"),
    "delete": ("DELETE", ""),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("state", NODES)
def test_node_calls_follow_the_table(state: str, verb: str) -> None:
    user = User()
    NODES[state](user)
    assert user.record().state == state
    method, end = VERBS[verb]
    answer = user.ask(method, f"{PLACE}/nodes/n{end}", {} if method != "DELETE" else None)
    assert (answer.status == 200) == (state in ALLOWED[verb])
    if answer.status != 200:
        assert answer.status == 400 and "is not supported" in answer.message
        assert user.record().state == state


@pytest.mark.parametrize("state", NODES)
def test_every_node_settles(state: str) -> None:
    user = User()
    NODES[state](user)
    user.wait(3600)
    at_rest = {
        "STOPPING": "STOPPED",
        "STOPPED": "STOPPED",
        "PREEMPTED": "PREEMPTED",
        "TERMINATED": "TERMINATED",
        "DELETING": None,
    }
    node = user.world.nodes.get(KEY)
    assert (node.state if node else None) == at_rest.get(state, "READY")
