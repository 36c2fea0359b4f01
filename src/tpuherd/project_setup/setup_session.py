"""What a setup needs to look at goals and make them: the cloud, the journal, what was read."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from tpuherd.clock import Clock
from tpuherd.cloud import project_policy_api, services_api
from tpuherd.cloud.error_reasons import error_info
from tpuherd.cloud.rest import RestClient
from tpuherd.errors import HerdError
from tpuherd.project_setup.journal import SetupJournal
from tpuherd.settings.project_access import ProjectAccess

T = TypeVar("T")
SPREADS_S = 180.0  #: a newly enabled API may refuse requests for so long
LOOK_S = 5.0


@dataclass(kw_only=True)
class SetupSession:
    """One run of a setup in one project."""

    place: ProjectAccess
    rest: RestClient
    clock: Clock
    owner: str  #: the owner id in the names of our resources
    journal: SetupJournal
    _services: frozenset[str] | None = None
    _roles: Mapping[str, frozenset[str]] | None = None

    @property
    def project(self) -> str:
        return self.place.project

    async def enabled_services(self) -> frozenset[str]:
        """The enabled APIs, read once and after each change."""
        if self._services is None:
            self._services = await services_api.list_enabled_services(self.rest, self.project)
        return self._services

    async def project_roles(self) -> Mapping[str, frozenset[str]]:
        """The roles of each member, read once and after each change."""
        if self._roles is None:
            self._roles = await project_policy_api.project_roles(self.rest, self.project)
        return self._roles

    async def held_permissions(self, asked: frozenset[str]) -> frozenset[str]:
        """Those of the asked permissions that the caller has."""
        return await project_policy_api.held_project_permissions(self.rest, self.project, asked)

    def drop_caches(self) -> None:
        """Read everything again: something was changed."""
        self._services = self._roles = None

    async def wait_for_api(self, api: str, work: Callable[[], Awaitable[T]]) -> T:
        """Do the work; repeat it while its API is enabled but does not answer everywhere yet."""
        end = self.clock.now() + SPREADS_S
        while True:
            try:
                return await work()
            except HerdError as error:
                if not is_api_disabled(error) or self.clock.now() > end:
                    raise
                if api not in await self.enabled_services():
                    raise
            await self.clock.sleep(LOOK_S)


def is_api_disabled(error: HerdError) -> bool:
    """Whether the cloud refused because the API is not enabled, or not everywhere yet."""
    return error_info(error.reply).get("reason") == "SERVICE_DISABLED"
