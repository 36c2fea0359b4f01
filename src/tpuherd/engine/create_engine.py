"""Puts an engine together: its store, its cloud, its hosts, and what is wished."""

import os
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from math import inf

from tpuherd.clock import Clock, SteadyClock
from tpuherd.cloud.bids_api import Bids
from tpuherd.engine import desired_slots
from tpuherd.engine.desired import Desire, Desired
from tpuherd.engine.engine_hosts import Yard
from tpuherd.engine.loop import Engine, Note, Parts
from tpuherd.errors import HerdError
from tpuherd.model.stored_job import Wish
from tpuherd.ports import Holder
from tpuherd.remote import open_remote
from tpuherd.settings import project_access
from tpuherd.settings.project_access import Place
from tpuherd.store.database import Database
from tpuherd.store.log_store import Shelf
from tpuherd.sweeps import optuna_sampler
from tpuherd.sync.snapshot_store import archived

GONE_S = 600.0  #: a world that is away for so long will hardly come back: its engine ends
TTL_S = 30.0  #: of the lease: a machine that is silent for so long may be succeeded by another


def holder(pid: int) -> Holder:
    """Who we are, when we take the lease."""
    host = socket.gethostname()
    return Holder(pid=pid, host=host, who=f"{project_access.local_user()}@{host}")


LATEST = 200  #: events that are looked at for the latest time


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
    clock, ourselves = SteadyClock(clock, latest_time(store)), holder(os.getpid())
    async with open_remote.reaching(place, clock, epoch=epoch) as reach:
        archive = archived(place.folders.state)
        parts = Parts(
            store=store,
            secrets=store.secrets,
            cloud=Bids(reach.cloud, clock, place.ssh_port, reach.registrar.look),
            hosts=Yard(reach.ways, archive, environment, place.logs.name),
            shelf=Shelf(place.logs),
            troubles=store.troubles,
            clock=clock,
            desire=desire(place),
            owner=project_access.owner(place.folders.config),
            outputs=store.folder / "outputs",
            who=ourselves.who,
            process={"pid": ourselves.pid, "host": ourselves.host},
            gone_s=inf if place.world is None else GONE_S,
            astray=lambda: astray(place),
            note=note,
            advice=optuna_sampler.ADVICE,
        )
        yield Engine(parts, epoch=epoch)


def latest_time(store: Database) -> float:
    """When the last events were written down: an engine that begins after them is not earlier.

    Several, for commands write theirs by the machine's own clock.
    """
    newest = store.events(limit=LATEST, newest=True)
    return max((event.at for _, event in newest), default=0.0)


def astray(place: Place) -> bool:
    """Whether the world was started again, and listens at another address."""
    try:
        return (
            place.world is not None
            and project_access.world_facts(place.world)["url"] != place.urls.tpu
        )
    except HerdError:
        return False  # it is not there at all: it is waited for


def desire(place: Place) -> Desire:
    """How wishes are understood there."""
    owner = project_access.owner(place.folders.config)

    def understood(rows: Mapping[str, Wish]) -> Desired:
        return desired_slots.of_place(rows, place, owner=owner)

    return understood
