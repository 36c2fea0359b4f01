"""What all kinds of global Compute resources share: lookup, lists and new names."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from tpuherd_sim.google_apis.links import own_project_path, requested_name
from tpuherd_sim.model.compute_errors import already_exists_error, not_found_error
from tpuherd_sim.model.http_types import ApiCall, Json
from tpuherd_sim.model.world import World

R = TypeVar("R")


@dataclass(frozen=True)
class GlobalResources(Generic[R]):
    """The resources of one kind in a world's project."""

    noun: str  #: firewall, network or operation
    all_of: Callable[[World], Mapping[str, R]]
    render: Callable[[World, R, float], Json]

    def find(self, world: World, call: ApiCall) -> R:
        """The one that the call's path names."""
        home, name = own_project_path(world, call), call.path[self.noun]
        one = self.all_of(world).get(name)
        if one is None:
            raise not_found_error(f"{home}/global/{self.noun}s/{name}")
        return one

    def take_new_name(self, world: World, call: ApiCall) -> str:
        """The name of the one to create, which must not exist."""
        home, name = own_project_path(world, call), requested_name(call.body)
        if name in self.all_of(world):
            raise already_exists_error(f"{home}/global/{self.noun}s/{name}")
        return name

    def render_all(self, world: World, now: float) -> list[Json]:
        """Return all, as they are listed."""
        return [self.render(world, one, now) for one in self.all_of(world).values()]
