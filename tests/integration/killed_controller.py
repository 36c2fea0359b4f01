"""A controller that is started to be killed: eight hosts with stubborn processes."""

import asyncio
import sys
from pathlib import Path

from tests.integration.running_hosts import ReportLog, run, view
from tpuherd_sim.hosts.host_pool import HostPool, PoolSettings
from tpuherd_sim.hosts.syscalls import process_family

STUBBORN = """
trap '' HUP TERM INT
exec >&- 2>&- <&-
(setsid nohup bash -c 'trap "" TERM HUP; exec -a --doomed-hosts-of-a-test sleep 600' &)
(setsid setsid bash -c 'exec -a --doomed-hosts-of-a-test sleep 600' &)
"""


async def main() -> None:
    pool = HostPool(ReportLog(), Path(sys.argv[2]), PoolSettings(mode=sys.argv[1]))
    await pool.start()
    views = [view(index % 4, "abcd"[index // 4]) for index in range(8)]
    await pool.apply_views({each.key: each for each in views})
    for host in pool.hosts.values():
        await run(host, STUBBORN)
    assert pool.zygote is not None
    print(*process_family(pool.zygote.pid), flush=True)
    await asyncio.Event().wait()


asyncio.run(main())
