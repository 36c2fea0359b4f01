"""Build an engine from its store, its cloud, its hosts and the submitted jobs."""

import os
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from math import inf
from typing import Any

from tpuherd._version import __version__
from tpuherd.clock import Clock, SteadyClock
from tpuherd.cloud.bids_api import BidsApi
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
from tpuherd.settings.folders import home_folder
from tpuherd.settings.project_access import ProjectAccess
from tpuherd.ssh_config.ssh_projects import refresh_job_names
from tpuherd.store.database import Database
from tpuherd.store.log_store import LogStore
from tpuherd.store.sample_store import SampleStore
from tpuherd.store.schema import FORMAT
from tpuherd.sweeps import optuna_sampler
from tpuherd.sync.snapshot_store import open_archive

GONE_S = 600.0  #: the engine of a missing world ends after this time
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
    clock, ourselves = SteadyClock(clock, store.latest_event_time()), new_lease_holder(os.getpid())
    async with open_remote.open_remote_session(place, clock, epoch=epoch) as reach:
        archive = open_archive(place.folders.state)
        deliverer = Deliverer(environment)
        notifier = Notifier(
            NotifierDeps(
                store=store,
                secrets=store.secrets,
                folder=store.folder,
                clock=clock,
                send=deliverer.send,
                origin=f"{place.title}, engine on {ourselves.host}",
                log=note,
            )
        )
        parts = EngineDeps(
            store=store,
            secrets=store.secrets,
            cloud=create_bids_api(place, reach, clock),
            hosts=EngineHosts(reach.pool, archive, environment, place.logs_folder.name),
            shelf=LogStore(place.logs_folder),
            troubles=store.troubles,
            clock=clock,
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
        try:
            yield Engine(parts, epoch=epoch)
        finally:
            await deliverer.close()


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
    home = home_folder(environment)

    def understood(rows: Mapping[str, StoredJob]) -> DesiredState:
        try:
            refresh_job_names(place, home, rows.values())
        except (HerdError, OSError) as error:
            note("engine.unnamed", {"why": str(error)})
        shares = parse_shares(store.load_setting(SHARES))
        return desired_slots.load_desired_state(rows, place, owner=owner, shares=shares)

    return understood
