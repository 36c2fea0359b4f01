"""Build an engine from its store, its cloud, its hosts and the submitted jobs."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from math import inf
from typing import Any

from tpuherd._version import __version__
from tpuherd.clock import STEP_S, Clock, SteadyClock, boot_time
from tpuherd.cloud.bids_api import BidsApi
from tpuherd.cloud.cloud_time import read_cloud_time
from tpuherd.cloud.rest import RestClient
from tpuherd.engine import desired_slots
from tpuherd.engine.desired import DesiredState, JobExpander
from tpuherd.engine.engine_hosts import EngineHosts
from tpuherd.engine.host_samples import ThreadedKeeper
from tpuherd.engine.loop import Engine, EngineDeps, LogFunction
from tpuherd.engine.notifier import Notifier, NotifierDeps
from tpuherd.errors import HerdError
from tpuherd.model.lab_shares import SHARES, parse_shares
from tpuherd.model.stored_job import StoredJob
from tpuherd.ports import LeaseHolder
from tpuherd.remote import open_remote
from tpuherd.remote.resolve_hosts import RemoteSession
from tpuherd.senders.deliver import Deliverer
from tpuherd.settings import project_access
from tpuherd.settings.project_access import ProjectAccess
from tpuherd.settings.project_settings import tells_others
from tpuherd.ssh_config.ssh_projects import refresh_job_names
from tpuherd.store.database import Database
from tpuherd.store.log_store import LogStore
from tpuherd.store.sample_store import SampleStore
from tpuherd.store.schema import FORMAT
from tpuherd.sweeps import optuna_sampler
from tpuherd.sync.snapshot_store import open_archive

GONE_S = 600.0  #: the engine of a missing world ends after this time
ASK_S = 60.0  #: until the cloud is asked for the time after a jump of the clock
FIRST_S_MAX = 3.0  #: the start waits so long for the cloud's time
TTL_S = 30.0  #: duration of the lease; after it, another machine may take over


def new_lease_holder(pid: int) -> LeaseHolder:
    """The holder's name in a lease."""
    host = socket.gethostname()
    return LeaseHolder(pid=pid, host=host, who=f"{project_access.local_user()}@{host}")


def describe_process(holder: LeaseHolder) -> Mapping[str, Any]:
    """What the event of our start tells."""
    about = {"who": holder.who, "pid": holder.pid, "host": holder.host}
    return {**about, "version": __version__, "format": FORMAT}


@asynccontextmanager
async def create_engine(
    place: ProjectAccess,
    store: Database,
    clock: Clock,
    environment: Mapping[str, str],
    *,
    epoch: int,
    note: LogFunction,
) -> AsyncIterator[Engine]:
    """Create an engine to run within the block, under a lease that is already held."""
    machine_clock = clock
    clock = SteadyClock(machine_clock, store.latest_event_time(), boot_time)
    ourselves = new_lease_holder(os.getpid())
    async with open_remote.open_remote_session(place, clock, epoch=epoch) as reach:
        await start_clock(clock, reach.cloud.rest, note)
        archive = open_archive(place.folders.state)
        deliverer = Deliverer(environment)
        notifier = create_notifier(place, store, clock, deliverer, ourselves, note)
        parts = EngineDeps(
            store=store,
            secrets=store.secrets,
            cloud=create_bids_api(place, reach, clock),
            hosts=EngineHosts(reach.pool, archive, environment, place.logs_folder.name),
            shelf=LogStore(place.logs_folder),
            troubles=store.troubles,
            clock=clock,
            lease_clock=machine_clock,
            desire=make_job_expander(place, store, environment, note),
            owner=project_access.find_owner_id(place),
            outputs=store.folder / "outputs",
            who=ourselves.who,
            account="" if place.database is None else ourselves.who,
            process=describe_process(ourselves),
            gone_s=inf if place.world is None else GONE_S,
            cloud_has_moved=lambda: world_moved(place),
            note=note,
            samples=ThreadedKeeper(SampleStore(store.folder)),
            advice=optuna_sampler.ADVICE,
            notifier=notifier,
        )
        asking = asyncio.create_task(follow_cloud_time(clock, reach.cloud.rest))
        try:
            yield Engine(parts, epoch=epoch)
        finally:
            asking.cancel()
            await deliverer.close()


def create_notifier(
    place: ProjectAccess,
    store: Database,
    clock: Clock,
    deliverer: Deliverer,
    ourselves: LeaseHolder,
    note: LogFunction,
) -> Notifier:
    """Return what tells people, as this account allows."""
    allowed = partial(tells_others, place.folders.config, world=place.world, project=place.project)
    parts = NotifierDeps(
        store=store,
        secrets=store.secrets,
        folder=store.folder,
        clock=clock,
        send=deliverer.send,
        origin=f"{place.title}, engine on {ourselves.host}",
        who=ourselves.who,
        tells_others=allowed,
        log=note,
    )
    return Notifier(parts)


async def start_clock(clock: SteadyClock, rest: RestClient, note: LogFunction) -> None:
    """Begin with the cloud's time where this machine's clock is off by more than half a minute:
    hours that have not passed must end no job. Without an answer, the machine's clock counts.
    """
    with suppress(HerdError, TimeoutError):
        async with asyncio.timeout(FIRST_S_MAX):
            there = await read_cloud_time(rest)
        if abs(off_s := clock.start_at(there)) > STEP_S:
            note("engine.clock_corrected", {"off_s": off_s})


async def follow_cloud_time(clock: SteadyClock, rest: RestClient) -> None:
    """Ask the cloud for the time whenever this machine's clock has jumped ahead."""
    while True:
        await clock.sleep(ASK_S)
        if clock.is_behind:
            with suppress(HerdError):
                clock.advance_to(await read_cloud_time(rest))


def create_bids_api(place: ProjectAccess, reach: RemoteSession, clock: Clock) -> BidsApi:
    """Return what requests nodes, with our SSH key unless the project has it already."""
    caller = reach.pool.caller
    login_key = None if place.project_keys else (caller.login, caller.keys.public)
    nodes = reach.directory.list_nodes
    return BidsApi(reach.cloud, clock, place.ssh_port, nodes, login_key)


def world_moved(place: ProjectAccess) -> bool:
    """Whether the simulated world was restarted and listens at another address."""
    try:
        return (
            place.world is not None
            and project_access.read_world_facts(place.world)["url"] != place.urls.tpu
        )
    except HerdError:
        return False  # it does not run: wait for it


def make_job_expander(
    place: ProjectAccess, store: Database, environment: Mapping[str, str], note: LogFunction
) -> JobExpander:
    """Return the function that expands the project's stored jobs; it also names them for ssh."""
    owner = project_access.find_owner_id(place)

    def understood(rows: Mapping[str, StoredJob]) -> DesiredState:
        try:
            refresh_job_names(place, environment, rows.values())
        except (HerdError, OSError) as error:
            note("engine.unnamed", {"why": str(error)})
        shares = parse_shares(store.load_setting(SHARES))
        return desired_slots.load_desired_state(rows, place, owner=owner, shares=shares)

    return understood
