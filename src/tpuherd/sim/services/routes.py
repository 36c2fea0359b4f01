"""Every route of the services beside the TPU API."""

from collections.abc import Callable

from tpuherd.sim.services import (
    changes,
    documents,
    firewalls,
    identity,
    networks,
    places,
    project,
    quota,
    storage,
)
from tpuherd.sim.tpu.call import Route
from tpuherd.sim.tpu.world import Due, World

ROUTES: tuple[Route, ...] = (
    *project.ROUTES,
    *changes.ROUTES,
    *firewalls.ROUTES,
    *networks.ROUTES,
    *places.ROUTES,
    *storage.ROUTES,
    *quota.ROUTES,
    *identity.ROUTES,
    *documents.ROUTES,
)
#: Nothing of theirs happens by itself.
AGENDA: dict[str, Callable[[World, Due], None]] = {}
