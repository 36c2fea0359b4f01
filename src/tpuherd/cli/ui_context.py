"""Puts together what the page needs: the project, and the control of its world if it is one."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

from tpuherd.catalogue import zones
from tpuherd.cli.sim import clear_weather
from tpuherd.clock import WallClock
from tpuherd.commands.console import Console
from tpuherd.errors import HerdError, InvalidInput, NotReached
from tpuherd.settings import contexts_file, project_access
from tpuherd.settings.project_access import ProjectScope
from tpuherd.web.page_context import PageContext
from tpuherd_sim.client import (
    RequestRejected,
    WorldNotRunning,
    find_running_world,
    send_request,
)
from tpuherd_sim.state_dir import WorldError

LOG_LINES = 200


class WorldClient:
    """Asks a world that runs in another process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read_world(self) -> Mapping[str, Any]:
        """Return its nodes, weather and the newest lines of its log."""
        with explain_world_errors():
            facts = find_running_world(self._folder)
            about = send_request(facts, "GET", "world")
            log = send_request(
                facts, "GET", "log", query=f"since={max(0, about['log'] - LOG_LINES)}"
            )
            return {
                "seed": about["seed"],
                "time_scale": about["time_scale"],
                "zones": sorted(zones()),
                "nodes": send_request(facts, "GET", "nodes")["about"],
                **send_request(facts, "GET", "weather"),
                "log": [{"at": one["at"], "sentence": one["sentence"]} for one in log["lines"]],
            }

    def make_weather(self, kind: str, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Apply one kind of weather; `clear` without a rule ends all weather."""
        from tpuherd.cli.sim_text import hits_text

        with explain_world_errors():
            facts = find_running_world(self._folder)
            if kind == "clear" and not given:
                answer = clear_weather(facts)
            else:
                answer = send_request(facts, "POST", "weather", kind, body=dict(given))
        return {"message": hits_text(kind, answer), "done": answer["done"]}


@contextmanager
def explain_world_errors() -> Iterator[None]:
    """Turn a world's errors into ours."""
    try:
        yield
    except RequestRejected as error:
        raise InvalidInput(str(error)) from error
    except WorldNotRunning as error:
        raise NotReached(str(error)) from error
    except WorldError as error:
        raise InvalidInput(str(error)) from error


def known_project(scope: ProjectScope, environ: Mapping[str, str]) -> str:
    """Return the project's name; "" for a world that can't be asked."""
    if scope.world is None:
        return scope.project
    try:
        return project_access.resolve_access(environ, world=scope.world).project
    except HerdError:
        return ""


def page_context(console: Console) -> PageContext:
    """Return what the page of this command shows."""
    environ = dict(console.environ)
    scope = project_access.resolve_scope(environ, world=console.said.world)
    content = contexts_file.load_contexts(scope.folders.config)
    return PageContext(
        scope=scope,
        environ=environ,
        project=known_project(scope, environ),
        name="" if console.said.world else contexts_file.current_name(content, environ),
        clock=WallClock(),
        world=None if scope.world is None else WorldClient(scope.world),
        static=Path(str(files("tpuherd.web"))) / "static",
    )
