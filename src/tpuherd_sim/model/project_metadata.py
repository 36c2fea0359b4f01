"""A project's metadata, as hosts see it."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tpuherd_sim.model.world import World


def project_metadata(world: "World") -> dict[str, str]:
    """Return the metadata that every host of the project sees, such as its ssh-keys."""
    return dict(world.services.metadata)
