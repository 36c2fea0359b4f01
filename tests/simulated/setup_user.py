"""Somebody who sets up a project of a world, in virtual time."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

from tests.simulated.cloud_user import URL, User
from tpuherd.project_setup.goals import list_goals
from tpuherd.project_setup.journal import open_journal
from tpuherd.project_setup.read_request import read_request
from tpuherd.project_setup.run_setup import make_goals, survey_goals, undo_changes
from tpuherd.project_setup.setup_session import SetupSession
from tpuherd.project_setup.setup_types import GoalFinding, GoalState, SetupGoal, UndoResult
from tpuherd.settings.endpoints import CredentialSource, ServiceUrls
from tpuherd.settings.folders import LocalFolders
from tpuherd.settings.project_access import ProjectAccess
from tpuherd_sim.google_apis.service_accounts import default_account
from tpuherd_sim.handle import handle_request
from tpuherd_sim.model.compute_state import ProjectBinding
from tpuherd_sim.model.http_types import Request

KEY = "ssh-ed25519 AAAAmine"
HOME = "203.0.113.7"
OPTIONS: dict[str, Any] = {
    "way": None, "sources": [HOME], "mosh": False, "network": "default", "apis": [],
    "keys": "project", "member": None, "service_account": None,
}  # fmt: skip
SERVICES = "v1/projects/demo/services"
READS = ("GET ", ":getIamPolicy", ":testIamPermissions", "/wait")


def access(folder: Path, *, world: bool = False) -> ProjectAccess:
    folders = LocalFolders(config=folder / "config", state=folder, runtime=folder)
    return ProjectAccess(
        world=folder / "world" if world else None,
        project="demo",
        urls=ServiceUrls.of_world(URL),
        ssh_port=22,
        login="ada",
        routes=(),
        credentials=CredentialSource(),
        folders=folders,
    )


class SetupUser:
    """Runs setups, each as a process of its own would."""

    def __init__(self, user: User, folder: Path, *, world: bool = False) -> None:
        self.user = user
        self.place = access(folder, world=world)
        self.services = user.world.services

    @property
    def me(self) -> str:
        return f"serviceAccount:{default_account(self.user.world)}"

    async def empty_project(self) -> None:
        """As a project of somebody else's in which I may do little, and nothing is enabled."""
        for name in ("tpu", "compute"):
            await self.user.ask("POST", f"{SERVICES}/{name}.googleapis.com:disable", {})
        self.services.firewalls.clear()
        self.services.policy = (
            ProjectBinding(role="roles/owner", members=("user:owner@example.com",)),
            ProjectBinding(role="roles/resourcemanager.projectIamAdmin", members=(self.me,)),
        )
        self.services.metadata["ssh-keys"] = "eve:ssh-rsa BBBB eve"
        self.services.metadata["theirs"] = "kept"

    def state(self) -> dict[str, Any]:
        """What a setup may have changed in the project."""
        enabled = {name for name, at in self.services.disabled.items() if at is None}
        policy = sorted((one.role, one.members) for one in self.services.policy or ())
        rules = {name: one.spec for name, one in self.services.firewalls.items()}
        known = {"disabled": enabled, "policy": policy, "rules": rules}
        return known | {"metadata": dict(self.services.metadata)}

    def reader(self) -> SetupSession:
        """A session that only looks."""
        return SetupSession(
            place=self.place,
            rest=self.user.cloud.rest,
            clock=self.user.clock,
            owner="7kq",
            journal=open_journal(self.place),
        )

    @contextmanager
    def session(self) -> Iterator[SetupSession]:
        here = self.reader()
        with here.journal.hold():
            yield here

    def goals(self, **said: Any) -> list[SetupGoal]:
        request = read_request({**OPTIONS, **said}, self.place)
        return list_goals(request, owner="7kq", login=self.place.login, public_key=KEY)

    async def survey(self, **said: Any) -> dict[str, GoalFinding]:
        with self.session() as here:
            return by_name(await survey_goals(self.goals(**said), here))

    async def make(self, **said: Any) -> dict[str, GoalFinding]:
        with self.session() as here:
            return by_name([one async for one in make_goals(self.goals(**said), here)])

    async def undo(self, *, act: bool = True) -> list[UndoResult]:
        with self.session() as here:
            return [one async for one in undo_changes(here, act=act)]

    def send(self, request: httpx2.Request) -> None:
        """Let the world have a request whose sender does not hear the answer."""
        handle_request(
            self.user.world,
            Request(method=request.method, path=request.url.path, body=request.content),
            self.user.clock.now(),
        )

    def writes(self) -> list[str]:
        """The requests so far that may change something."""
        return [one for one in self.user.wire.asked if not any(word in one for word in READS)]


def by_name(found: list[GoalFinding]) -> dict[str, GoalFinding]:
    """The findings by kind, and by name where there are several of a kind."""
    kinds = [one.goal.kind for one in found]
    return {
        one.goal.kind.value
        if kinds.count(one.goal.kind) == 1
        else f"{one.goal.kind.value} {one.goal.name.split()[0]}": one
        for one in found
    }


def states(found: dict[str, GoalFinding]) -> set[GoalState]:
    return {one.state for one in found.values()}
