"""The engine's process: it takes the lease, runs the loop, and releases the lease."""

import asyncio
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from functools import partial
from math import inf
from pathlib import Path

from tpuherd.background import PASSED, close_inherited_files
from tpuherd.clock import WallClock
from tpuherd.engine.crash_records import (
    CALM_S,
    hold_lease,
    record_crash,
    record_kill,
)
from tpuherd.engine.create_engine import GONE_S, TTL_S, create_engine, new_lease_holder
from tpuherd.engine.engine_log import LOG, EngineLog
from tpuherd.engine.garbage import rare_collections
from tpuherd.engine.loop import EndReason
from tpuherd.errors import HerdError
from tpuherd.model.trouble import ENGINE
from tpuherd.settings import project_access
from tpuherd.settings.project_access import ProjectAccess
from tpuherd.store.database import Database
from tpuherd.store.engine_rest import is_at_rest
from tpuherd.store.open_database import open_database, refuse_other_login

ANOTHER = "another engine runs"
LOOK_S = 1.0  #: how often one that stands by looks


def run_engine(
    place: ProjectAccess,
    environ: Mapping[str, str],
    *,
    aloud: bool,
    on_lead: Callable[[], None] = lambda: None,
) -> str:
    """Run until nothing is left to do; return why it ended or did not start."""
    ended = lead_project(place, environ, aloud=aloud, on_lead=on_lead)
    return ANOTHER if ended is None else f"the engine has ended: {ended.value}"


def stand_by(place: ProjectAccess, environ: Mapping[str, str]) -> str:
    """Lead whenever no other engine does and there is something to do, until stopped."""
    clock, said = WallClock(), ""
    print(f"standing by for {place.title}", flush=True)
    while True:
        try:
            place = project_access.resolve_access(environ, world=place.world)
            wait_until_needed(place, clock)
            ended = lead_project(place, environ, aloud=True)
        except HerdError as error:
            if error.sentence != said:
                print(f"herd engine: {error.sentence}", file=sys.stderr, flush=True)
            said = error.sentence
            clock.wait(LOOK_S)
            continue
        except KeyboardInterrupt:
            ended = EndReason.STOPPED
        said = ""
        if ended is EndReason.STOPPED:
            return f"the engine has ended: {ended.value}"
        print(ANOTHER if ended is None else f"standing by again: {ended.value}", flush=True)


def wait_until_needed(place: ProjectAccess, clock: WallClock) -> None:
    """Wait while another engine leads, or nothing is left to do."""
    with closing(open_database(place, clock.now())) as store:
        while store.lease_holder(clock.now()) is not None or is_at_rest(store):
            clock.wait(LOOK_S)


def lead_project(
    place: ProjectAccess,
    environ: Mapping[str, str],
    *,
    aloud: bool,
    on_lead: Callable[[], None] = lambda: None,
) -> EndReason | None:
    """Lead until the engine ends; None: another one leads."""
    clock = WallClock()
    store = open_database(place, clock.now())
    diary = EngineLog(
        file=store.folder / LOG, now=clock.now, echo=partial(print, flush=True) if aloud else None
    )
    first = True
    try:
        place = join_users(store, place, environ)
        while True:
            epoch = store.take_lease(new_lease_holder(os.getpid()), clock.now(), TTL_S)
            if epoch is None:
                return None
            if first:
                on_lead()  # only once: its file descriptor may be reused later
                record_kill(store, clock.now())
            first = False
            try:
                ended = asyncio.run(run_until_ended(place, store, environ, epoch, diary))
            except Exception as error:  # noqa: BLE001 - every crash is recorded
                handle_crash(store, epoch, error, diary)
                continue
            if ended is EndReason.DAMAGED:
                store.close()
                store = open_database(place, clock.now())
                diary.write_event("engine.restored", {"why": store.recovery_message})
                continue
            if ended is EndReason.UNSURE and release_when_possible(store, epoch, max_wait_s(place)):
                continue
            if ended is not EndReason.OUTDATED:
                store.release_lease(epoch)
            if ended is EndReason.REST and not is_at_rest(store):
                continue  # a job came while it ended, and its command saw an engine that runs
            if ended is EndReason.MOVED:
                place = project_access.resolve_access(environ, world=place.world)
                diary.write_event("engine.moved", {"why": moved_sentence(place)})
                continue
            if ended is EndReason.GONE:
                diary.write_event("engine.gone", {"why": gone_sentence(place)})
            return ended
    finally:
        store.close()


def moved_sentence(place: ProjectAccess) -> str:
    return f"{place.title} is at {place.urls.tpu} now"


def gone_sentence(place: ProjectAccess) -> str:
    waited = f"nothing has answered for {GONE_S / 60:g} min at {place.title}"
    return f"{waited}: the engine has ended"


def max_wait_s(place: ProjectAccess) -> float:
    """How long to wait for a store; a simulated world and its database may be gone for good."""
    return inf if place.world is None else GONE_S


def release_when_possible(store: Database, epoch: int, within_s: float) -> bool:
    """Give the lease back once the store can be written again; False if it can't in this time.

    Fine if another engine leads.
    """
    clock = WallClock()
    end = clock.now() + within_s
    while True:
        try:
            store.release_lease(epoch)
        except HerdError:
            if clock.now() >= end:
                return False
            clock.wait(LOOK_S)
        else:
            return True


def join_users(store: Database, place: ProjectAccess, environ: Mapping[str, str]) -> ProjectAccess:
    """Log in to hosts as the engines of a store's other users do; refuse where that is not wanted.

    What they share is known only once the store is open.
    """
    if place.database is None:
        return place
    place = project_access.resolve_access(environ, world=place.world)
    refuse_other_login(store, place)
    return place


async def run_until_ended(
    place: ProjectAccess, store: Database, environ: Mapping[str, str], epoch: int, diary: EngineLog
) -> EndReason:
    """Run one engine; SIGTERM, SIGINT or SIGHUP stops it."""
    loop, clock = asyncio.get_running_loop(), WallClock()
    async with (
        rare_collections(clock),
        create_engine(place, store, clock, environ, epoch=epoch, note=diary.write_event) as engine,
    ):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, engine.stop)
        loop.call_later(CALM_S, clear_crash_trouble, store)
        return await engine.run()


def handle_crash(store: Database, epoch: int, error: Exception, diary: EngineLog) -> None:
    """Record a crash and wait, longer each time; raise a HerdError again."""
    text = "".join(traceback.format_exception(error))
    diary.write_event("engine.surprised", {"why": repr(error), "trace": text})
    if isinstance(error, HerdError):
        store.release_lease(epoch)
        raise error
    pause_s = record_crash(store, repr(error), WallClock().now())
    asyncio.run(hold_lease(store, epoch, pause_s))
    store.release_lease(epoch)


def clear_crash_trouble(store: Database) -> None:
    """Clear the problem of repeated crashes, since it has run long enough."""
    with suppress(OSError):
        store.troubles.end_trouble(ENGINE)


def release_start_lock() -> None:
    """Release the start lock, once this engine holds the lease."""
    with suppress(OSError):
        os.close(PASSED)


def main() -> int:
    """`python -m tpuherd.engine.engine_process [WORLD]`: which jobs/engine_control.py starts."""
    close_inherited_files()
    os.umask(0o077)
    world = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    try:
        environ = project_access.process_environment()
        place = project_access.resolve_access(environ, world=world)
        os.chdir("/")  # the folder it was started in may be deleted
        print(run_engine(place, environ, aloud=False, on_lead=release_start_lock), flush=True)
    except HerdError as error:
        print(f"herd engine: {error.sentence}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
