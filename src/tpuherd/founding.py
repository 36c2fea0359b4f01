"""Puts an engine together: its store, its cloud, its hosts, and what is wished."""

import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from math import inf

from tpuherd import app, meant, sampling, wished
from tpuherd.clock import Clock
from tpuherd.cloud.bids import Bids
from tpuherd.core.wish import Wish
from tpuherd.engine.desired import Desire, Desired
from tpuherd.engine.loop import Engine, Note, Parts
from tpuherd.hosts.snapshot_archive import archived
from tpuherd.hosts.yard import Yard
from tpuherd.meant import Place
from tpuherd.ports import HerdError, Holder
from tpuherd.store.database import Database
from tpuherd.store.logs import Shelf

GONE_S = 600.0  #: a world that is away for so long will hardly come back: its engine ends
TTL_S = 30.0  #: of the lease: a machine that is silent for so long may be succeeded by another


def holder(pid: int) -> Holder:
    """Who we are, when we take the lease."""
    host = socket.gethostname()
    return Holder(pid=pid, host=host, who=f"{meant.local_user()}@{host}")


@asynccontextmanager
async def founded(
    place: Place,
    store: Database,
    clock: Clock,
    environment: Mapping[str, str],
    *,
    epoch: int,
    note: Note,
) -> AsyncIterator[Engine]:
    """An engine, to be run within the block, under a lease that was taken before."""
    async with app.reaching(place, clock, epoch=epoch) as reach:
        archive = archived(place.folders.state)
        parts = Parts(
            store=store,
            secrets=store.secrets,
            cloud=Bids(reach.cloud, clock, place.ssh_port, reach.registrar.look),
            hosts=Yard(reach.ways, archive, environment, place.logs.name),
            shelf=Shelf(place.logs),
            clock=clock,
            desire=desire(place),
            owner=meant.owner(place.folders.config),
            outputs=store.folder / "outputs",
            who=holder(0).who,
            gone_s=inf if place.world is None else GONE_S,
            astray=lambda: astray(place),
            note=note,
            advice=sampling.ADVICE,
        )
        yield Engine(parts, epoch=epoch)


def astray(place: Place) -> bool:
    """Whether the world was started again, and listens at another address."""
    try:
        return place.world is not None and meant.world_facts(place.world)["url"] != place.urls.tpu
    except HerdError:
        return False  # it is not there at all: it is waited for


def desire(place: Place) -> Desire:
    """How wishes are understood there."""
    owner = meant.owner(place.folders.config)

    def understood(rows: Mapping[str, Wish]) -> Desired:
        return wished.of_place(rows, place, owner=owner)

    return understood
