"""How long the stretches of the cloud's lifecycle last, in seconds, from low to high."""

from tpuherd_sim.model.world import World, scale_duration

DURATIONS: dict[str, tuple[float, float]] = {
    "node.place": (5.0, 25.0),  # a refusal for capacity comes this soon
    "node.ready": (60.0, 210.0),  # from the create on, one host
    "node.ready.pod": (90.0, 300.0),
    "node.stop": (30.0, 60.0),
    "node.start.place": (3.0, 10.0),
    "node.start": (30.0, 60.0),
    "node.delete": (60.0, 120.0),
    "node.notice": (10.0, 40.0),  # until the service sees that a host is lost
    "node.repair": (120.0, 300.0),
    "node.fail": (2.0, 8.0),  # an operation that the weather lets fail
    "request.admit": (1.0, 3.0),
    "request.accepted": (1.0, 3.0),
    "request.wait": (20.0, 130.0),  # with capacity at hand
    "request.ready": (60.0, 210.0),
    "request.late": (120.0, 300.0),  # until a request fails in PROVISIONING
    "request.look": (1.0, 5.0),  # a request notices late what became of its nodes
    "request.suspend": (30.0, 90.0),
    "request.delete": (5.0, 15.0),
    "request.doomed": (1.5, 1.5),  # a forced delete that fails
    "request.retry": (30.0, 90.0),
    "maintenance.simulated": (60.0, 60.0),
}
UPDATE_S = (
    3.5  #: always the same, so that updates take effect in the order in which they were asked
)
DAY_S = 86400.0  #: the life of a preemptible node, and of an operation that is done
RETRY_S_MAX = 2700.0  #: so long the nodes of a queued resource are tried again


def draw_duration(world: World, name: str, factor: float = 1.0) -> float:
    """So long it takes this time, in the world's seconds."""
    low, high = DURATIONS[name]
    return scale_duration(world, world.dice.random_between(low, high) * factor)
