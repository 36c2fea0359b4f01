"""The checks on the hosts of a target, and their repairs."""

from collections.abc import Sequence

from tpuherd.checks.check_results import CheckResult
from tpuherd.clock import Clock
from tpuherd.remote.resolve_hosts import RemoteSession
from tpuherd.settings.project_access import ProjectAccess


async def check_hosts(
    target: str, place: ProjectAccess, reach: RemoteSession, clock: Clock
) -> list[CheckResult]:
    """Return what the hosts of the target show; raises NotFound if there are none."""
    await reach.resolve_hosts(target)
    return []


async def fix_hosts(
    results: Sequence[CheckResult], target: str, place: ProjectAccess, reach: RemoteSession
) -> list[str]:
    """Do the safe repairs that these results name; return what was done, in sentences."""
    return []
