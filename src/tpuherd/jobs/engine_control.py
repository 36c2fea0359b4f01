"""Starts the engine process on demand, shows its status and stops it."""

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from tpuherd.background import start_process
from tpuherd.clock import WallClock
from tpuherd.errors import HerdError, NotReached, OperationFailed
from tpuherd.files import try_lock
from tpuherd.ports import LeaseHolder
from tpuherd.settings.project_access import ProjectAccess, ProjectScope
from tpuherd.store.database import Database
from tpuherd.store.engine_rest import LIFE_KINDS, STARTED, is_at_rest
from tpuherd.store.open_database import open_database
from tpuherd.store.set_aside import SET_ASIDE, acknowledge_restoration
from tpuherd.views.trouble_line import problem_rows

PROGRAM = "tpuherd.engine.engine_process"  #: started by name, never imported
STARTING = "engine.starting"  #: locked from its start until it has the lease, or ends


LOG = "engine.out"  #: its stdout and stderr, normally empty
START_S, STOP_S = 20.0, 15.0
LOOK_S = 0.05


def open_store(scope: ProjectScope) -> Database:
    return open_database(scope, WallClock().now())


def ensure_engine(store: Database, place: ProjectAccess, environ: Mapping[str, str]) -> None:
    """Start the engine if none runs and a job may need it; InvalidInput if it may not lead."""
    if not is_engine_running(store, WallClock().now()) and has_unsettled_changes(store, place):
        store.require_leader()
        spawn_engine(place, environ)


@contextmanager
def starting_engine(
    store: Database, place: ProjectAccess, environ: Mapping[str, str]
) -> Iterator[None]:
    """Start the engine afterwards, also after an error: what was stored before is carried out."""
    try:
        yield
    except BaseException:
        with suppress(HerdError, OSError):
            ensure_engine(store, place, environ)
        raise
    ensure_engine(store, place, environ)


def is_engine_running(store: Database, now: float) -> bool:
    """Whether an engine runs or is starting: it holds a lock until it has the lease."""
    return store.lease_holder(now) is not None or is_lock_held(store.folder / STARTING)


def is_lock_held(file: Path) -> bool:
    """Whether a process holds the lock on this file."""
    if not file.exists():
        return False
    held = try_lock(file)
    if held is not None:
        os.close(held)
    return held is None


def has_unsettled_changes(store: Database, place: ProjectScope) -> bool:
    """Whether anything has happened since an engine stopped with nothing left to do.

    An empty store is new or was lost: if our owner id already exists, something may be left in
    the cloud.
    """
    if any(store.read_events(kinds=LIFE_KINDS, limit=1)):
        return not is_at_rest(store)
    return (place.folders.config / "owner").exists()


def has_known_jobs(store: Database) -> bool:
    """Whether the store has known a job since it was created or set aside."""
    return any(
        event.kind != SET_ASIDE
        for _, event in store.read_events(kinds=LIFE_KINDS, limit=1, newest=True)
    )


def spawn_engine(place: ProjectAccess, environ: Mapping[str, str]) -> None:
    """Start a separate process that outlives us. If two start at once, one of them ends."""
    words = [PROGRAM] if place.world is None else [PROGRAM, str(place.world)]
    starting = try_lock(place.store_folder / STARTING)
    if starting is None:
        return  # another engine is starting
    try:
        start_process(words, environ, log=str(place.store_folder / LOG), passed=starting)
    finally:
        os.close(starting)  # the engine holds the lock now


async def start_engine(place: ProjectAccess, environ: Mapping[str, str]) -> Mapping[str, Any]:
    """Start the engine and wait until it works, or find that one runs."""
    store = open_store(place)
    try:
        if store.lease_holder(WallClock().now()) is None:
            store.require_leader()
            spawn_engine(place, environ)
            if not await wait_until(lambda: has_started_work(store), START_S):
                raise NotReached(
                    f"the engine did not start within {START_S:g} s",
                    hint=f"see {store.folder / LOG}",
                )
        return lease_as_json(store.lease_holder(WallClock().now()), place)
    finally:
        store.close()


def acknowledge_damage(place: ProjectAccess, environ: Mapping[str, str]) -> bool:
    """Dismiss the notices, and let the engine continue with a restored backup; return whether
    there was anything to acknowledge.

    A store that is found damaged only now is not acknowledged: no one has read its notice.
    """
    if not place.has_store:
        return False
    with closing(open_store(place)) as store:
        if store.recovery_message:
            raise OperationFailed(store.recovery_message)
        done = acknowledge_restoration(store, place.store_folder)
        ensure_engine(store, place, environ)
    return done


async def stop_engine(scope: ProjectScope) -> bool:
    """Stop the engine; return whether one ran. Commands on hosts keep running."""
    store = open_store(scope)
    try:
        holder = store.lease_holder(WallClock().now())
        if holder is None:
            return False
        if holder.host != os.uname().nodename:
            raise OperationFailed(
                f"the engine runs on {holder.host}: stop it there (pid {holder.pid})"
            )
        try:
            os.kill(holder.pid, signal.SIGTERM)
        except ProcessLookupError:
            return True
        except PermissionError as error:
            whose = f"the engine is {holder.who}'s: stop it in that account (pid {holder.pid})"
            raise OperationFailed(whose) from error
        ended = await wait_until(lambda: not has_lease(store, holder), STOP_S)
        if not ended:
            raise OperationFailed(f"the engine (pid {holder.pid}) does not stop")
        return True
    finally:
        store.close()


def has_started_work(store: Database) -> bool:
    """Whether the engine with the lease has recorded its start."""
    now = store.lease_holder(WallClock().now())
    begun = (event for _, event in store.read_events(kinds=(STARTED,), limit=1, newest=True))
    return now is not None and any(event.facts.get("epoch") == now.epoch for event in begun)


def engine_version(store: Database) -> str:
    """Return the version of herd that the latest engine recorded; "" if none did."""
    for _, event in store.read_events(kinds=(STARTED,), limit=1, newest=True):
        return str(event.facts.get("version", ""))
    return ""


def has_lease(store: Database, holder: LeaseHolder) -> bool:
    now = store.lease_holder(WallClock().now())
    return now is not None and now.epoch == holder.epoch


def engine_status(scope: ProjectScope) -> Mapping[str, Any]:
    """Return the output of `herd engine status --json`."""
    store = open_store(scope)
    try:
        troubles = problem_rows(store.troubles.read())
        return {**lease_as_json(store.lease_holder(WallClock().now()), scope), "problems": troubles}
    finally:
        store.close()


def lease_as_json(holder: LeaseHolder | None, scope: ProjectScope) -> Mapping[str, Any]:
    return {
        "scope": scope.title,
        "running": holder is not None,
        "pid": holder and holder.pid,
        "host": holder and holder.host,
        "who": holder and holder.who,
        "epoch": holder and holder.epoch,
        "since": holder and holder.taken_at,
        "lease_until": holder and holder.until,
    }


async def wait_until(happens: Callable[[], bool], seconds: float) -> bool:
    """Wait until the condition holds; False if the time is over first."""
    clock = WallClock()
    end = clock.now() + seconds
    while not happens():
        if clock.now() > end:
            return False
        await clock.sleep(LOOK_S)
    return True
