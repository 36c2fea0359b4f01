"""Frees the chips of a host before an attempt: ends our own leftovers, and waits for others."""

from dataclasses import replace

from tpuherd.clock import Clock
from tpuherd.engine.agent_call import CALL_S, call_agent
from tpuherd.engine.host_messages import FreedChips, parse_message
from tpuherd.engine.host_watcher import HostWatcher
from tpuherd.errors import NotFound

LOOK_S = 2.0
#: Then the attempt starts anyway: libtpu says whether it gets the chips.
WAIT_S = 600.0


async def free_chips(watch: HostWatcher, clock: Clock) -> list[str]:
    """Return which leftovers were ended; wait while others use the chips, and say who does."""
    ended: list[str] = []
    until = clock.now() + WAIT_S
    try:
        while True:
            try:
                answer = await call_agent(watch, "chips.free", {}, CALL_S)
            except NotFound:
                return ended  # its agent is of an earlier version
            found = parse_message(FreedChips, answer)
            ended += [f"{watch.status.name}: {one}" for one in found.ended]
            if not found.held or clock.now() >= until:
                return ended
            if watch.status.held != found.held:
                watch.status = replace(watch.status, held=found.held)
                watch.wake_planner()
            await clock.sleep(LOOK_S)
    finally:
        if watch.status.held:
            watch.status = replace(watch.status, held="")
