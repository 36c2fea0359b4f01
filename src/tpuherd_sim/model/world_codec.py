"""Converts a world to JSON and back, by the types of its fields."""

import hashlib
import json
from dataclasses import fields

import msgspec

from tpuherd_sim.model.http_types import Json
from tpuherd_sim.model.world import World

WRITTEN = tuple(one.name for one in fields(World) if not one.metadata.get("derived"))


def dump_world(world: World) -> Json:
    """Return everything of a world that can't be derived."""
    written: Json = msgspec.to_builtins({name: getattr(world, name) for name in WRITTEN})
    return written


def load_world(content: Json) -> World:
    world = msgspec.convert(content, World)
    world.places = {node.uid: key for key, node in world.nodes.items()}
    return world


def world_digest(world: World) -> str:
    """Return a short text that is equal for equal worlds."""
    text = json.dumps(dump_world(world), sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
