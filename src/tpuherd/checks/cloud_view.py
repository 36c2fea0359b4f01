"""What the checks of a cloud need: the project, its cloud, and the jobs that use it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field

from tpuherd.checks.machine_facts import Machine
from tpuherd.clock import Clock
from tpuherd.cloud.nodes_api import Cloud
from tpuherd.errors import HerdError, NoLogin
from tpuherd.jobfile.grants import Allowance
from tpuherd.jobfile.job_spec import JobSpec
from tpuherd.jobfile.read_job import read_fields
from tpuherd.remote.open_remote import open_cloud
from tpuherd.settings import project_access, project_settings
from tpuherd.settings.endpoints import HINT
from tpuherd.settings.project_access import ProjectAccess
from tpuherd.store.open_database import open_database

NO_CLOUD = "the cloud"  #: as the place of results if no project is known


@dataclass(frozen=True, kw_only=True, slots=True)
class CloudView:
    """A project or world that is checked."""

    place: ProjectAccess
    cloud: Cloud
    clock: Clock
    allowance: Allowance = field(default_factory=Allowance)
    jobs: Sequence[JobSpec] = ()
    chosen_login: str = ""  #: the login name on hosts that the context states

    @property
    def where(self) -> str:
        return cloud_title(self.place)


@asynccontextmanager
async def open_login_view(machine: Machine, error: HerdError) -> AsyncIterator[CloudView]:
    """Yield a view of no project, with Google's login; raises NoLogin if there is none, and
    `error` if a world is chosen, which needs no login."""
    environ, folders = machine.environ, machine.folders
    context = project_access.current_context(folders.config, environ)
    if project_access.find_world_folder(environ, context, machine.world) is not None:
        raise error
    found = project_access.find_credentials(environ, account=context.get("account"))
    if not (found.file or found.metadata_url or found.gcloud):
        raise NoLogin("no credentials for Google Cloud found", hint=HINT)
    place = ProjectAccess(
        world=None,
        project="",
        folders=folders,
        urls=project_access.GOOGLE,
        ssh_port=project_access.SSH_PORT,
        login="",
        routes=(),
        credentials=found,
    )
    async with open_cloud(place, machine.clock) as cloud:
        yield CloudView(place=place, cloud=cloud, clock=machine.clock)


def cloud_title(place: ProjectAccess) -> str:
    """Return the name of the place of the results."""
    if not place.project:
        return NO_CLOUD
    return f"project {place.project}{' (simulated)' if place.world else ''}"


@asynccontextmanager
async def open_view(place: ProjectAccess, machine: Machine) -> AsyncIterator[CloudView]:
    """Yield the view of a project; jobs that can't be read are the matter of another check."""
    clock = machine.clock
    context = project_access.current_context(place.folders.config, machine.environ)
    async with open_cloud(place, clock) as cloud:
        yield CloudView(
            place=place,
            cloud=cloud,
            clock=clock,
            allowance=read_allowance(place),
            jobs=read_jobs(place, clock.now()),
            chosen_login=str(context.get("login") or ""),
        )


def read_allowance(place: ProjectAccess) -> Allowance:
    try:
        return project_settings.load_allowance(
            place.folders.config, world=place.world, project=place.project
        )
    except (HerdError, OSError):
        return Allowance()


def read_jobs(place: ProjectAccess, now: float) -> list[JobSpec]:
    """Return the jobs of the store, which is not created if it is missing."""
    try:
        if not place.has_store:
            return []
        with closing(open_database(place, now)) as store:
            found = [read_fields(one.document) for one in store.stored_jobs().values()]
    except (HerdError, OSError):
        return []
    return [one for one in found if isinstance(one, JobSpec)]
