"""Durations of the cloud's lifecycle, in seconds, from low to high."""

from tpuherd_sim.model.world import World, scale_duration

DURATIONS: dict[str, tuple[float, float]] = {
    "node.place": (5.0, 25.0),  # until a refusal for capacity
    "node.ready": (60.0, 210.0),  # from the create, for one host
    "node.ready.pod": (90.0, 300.0),
    "node.stop": (30.0, 60.0),
    "node.start.place": (3.0, 10.0),
    "node.start": (30.0, 60.0),
    "node.delete": (60.0, 120.0),
    "node.notice": (10.0, 40.0),  # until the service notices a lost host
    "node.repair": (120.0, 300.0),
    "node.fail": (2.0, 8.0),  # an operation that the weather makes fail
    "request.admit": (1.0, 3.0),
    "request.accepted": (1.0, 3.0),
    "request.wait": (20.0, 130.0),  # with available capacity
    "request.ready": (60.0, 210.0),
    "request.late": (120.0, 300.0),  # until a request fails in PROVISIONING
    "request.look": (1.0, 5.0),  # until a request notices changes of its nodes
    "request.suspend": (30.0, 90.0),
    "request.delete": (5.0, 15.0),
    "request.doomed": (1.5, 1.5),  # a forced delete that fails
    "request.retry": (30.0, 90.0),
    "maintenance.simulated": (60.0, 60.0),
}
UPDATE_S = 3.5  #: constant, so that updates take effect in the order of their requests
DAY_S = 86400.0  #: lifetime of a preemptible node and of a finished operation
RETRY_S_MAX = 2700.0  #: how long the nodes of a queued resource are retried


def draw_duration(world: World, name: str, factor: float = 1.0) -> float:
    """Return a random duration, in the world's seconds."""
    low, high = DURATIONS[name]
    return scale_duration(world, world.dice.random_between(low, high) * factor)
