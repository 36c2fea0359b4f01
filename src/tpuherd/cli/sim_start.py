"""`herd sim start`: runs a world in this process or in the background."""

import asyncio
import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tpuherd.background import PASSED, close_inherited_files, start_and_hear
from tpuherd.cli.print_text import print_text
from tpuherd.cli.sim_text import LOG_INDENT, log_line, welcome_text
from tpuherd.clock import WallClock
from tpuherd.settings.project_access import process_environment
from tpuherd_sim.state_dir import WorldError, WorldInfo, prepare_folder

if TYPE_CHECKING:
    from tpuherd_sim.host_options import HostsRunner
    from tpuherd_sim.model.world_parts import LogEntry
    from tpuherd_sim.persistence import RecoveredWorld
    from tpuherd_sim.serve import WorldOptions

StartOptions = Mapping[str, Any]  #: the options of the command line, by name
STORM_HOURS = 7 * 24.0
#: Called in a background process when it is ready, with the text and the warning to print.
OnReady = Callable[[str, str], None]


class WorldPrinter:
    def __init__(self, folder: Path, *, json_: bool, on_ready: OnReady | None) -> None:
        self._folder = folder
        self._json = json_
        self._on_ready = on_ready
        self._terminal = sys.stdout.isatty()

    def on_ready(
        self, facts: WorldInfo, recovered: "RecoveredWorld | None", *, orderly: bool
    ) -> None:
        """Print the addresses of the world."""
        text = welcome_text(facts, self._folder, full=self._terminal or self._on_ready is not None)
        if self._json:
            text = json.dumps({**asdict(facts), "state_dir": str(self._folder)})
        warning = ""
        if recovered is not None and not orderly:
            warning = f"the world was not stopped properly: {recovered.sentence}"
            print_text(warning, err=True)
        if self._on_ready is None:
            print_text(text)
        else:
            self._on_ready(text, warning)

    def on_log_entry(self, note: "LogEntry") -> None:
        if self._json:
            click.echo(json.dumps({"at": note.at, "name": note.name, "facts": dict(note.facts)}))
        elif self._terminal or self._on_ready:
            from tpuherd_sim.weather.log_text import log_sentence

            line = log_line(note.at, note.name, log_sentence(note), signs=self._terminal)
            print_text(line, hang=LOG_INDENT)

    def on_problem(self, sentence: str) -> None:
        print_text(sentence, err=True)


def start_detached(chosen: StartOptions, environ: Mapping[str, str]) -> None:
    """Run the world in the background; return when it answers."""
    prepare_folder(Path(chosen["folder"]))
    log = str(Path(chosen["folder"]) / "log.txt")
    words = ["tpuherd.cli.sim_start", json.dumps(chosen, default=str)]
    answer = json.loads(start_and_hear(words, environ, log=log) or "{}")
    if "ready" not in answer:
        raise WorldError(answer.get("trouble") or f"the world did not start; see {log}")
    if answer["warning"]:
        print_text(answer["warning"], err=True)
    print_text(answer["ready"])


def run_detached() -> None:
    """Run a world that start_detached began, and tell it when the world answers or can't start."""
    close_inherited_files()

    def report(**answer: str) -> None:
        with open(PASSED, "w", encoding="utf-8") as stream:
            json.dump(answer, stream)

    try:
        start_in_process(
            json.loads(sys.argv[1]),
            process_environment(),
            on_ready=lambda text, warning: report(ready=text, warning=warning),
        )
    except WorldError as trouble:
        report(trouble=str(trouble))
        sys.exit(1)


def start_in_process(
    chosen: StartOptions, environ: Mapping[str, str], on_ready: OnReady | None = None
) -> None:
    """Run the world in this process until it is stopped."""
    from tpuherd_sim.serve import serve_world

    options = build_options(chosen, environ.get("PATH", os.defpath))
    reader = WorldPrinter(options.folder, json_=chosen["json_"], on_ready=on_ready)
    backend = partial(load_host_backend, environ)
    asyncio.run(serve_world(options, WallClock(), reader, backend))


def load_host_backend(environ: Mapping[str, str]) -> "HostsRunner":
    """Load what runs hosts, which the world needs only after it answers."""
    from tpuherd_sim.host_services.packages import read_package_sources
    from tpuherd_sim.start_hosts import run_hosts

    return partial(run_hosts, read_package_sources(environ, Path.home()))


def build_options(chosen: StartOptions, path: str) -> "WorldOptions":
    """Return the options, with the steps of a scenario file or storm."""
    from tpuherd_sim.host_options import HostOptions
    from tpuherd_sim.serve import WorldOptions

    said = dict(chosen)
    scenario, weather = said.pop("scenario"), said.pop("weather")
    if scenario and weather:
        raise WorldError("--scenario and --weather can't be combined")
    steps: list[Any] = []
    if scenario:
        steps = load_scenario_file(Path(scenario))
    if weather == "storm":
        steps = random_weather_steps(said["seed"] or 0)
    hosts = HostOptions(
        hosts=said.pop("hosts"),
        internet=said.pop("internet"),
        offers=tuple(map(Path, said.pop("offers"))),
    )
    del said["json_"]
    folder = Path(said.pop("folder"))
    return WorldOptions(**said, folder=folder, path=path, host_options=hosts, steps=tuple(steps))


def random_weather_steps(seed: int) -> list[Any]:
    from tpuherd.catalogue import zones
    from tpuherd_sim.weather.storm import storm_steps

    return storm_steps(seed, sorted(zones()), STORM_HOURS)


def load_scenario_file(file: Path) -> list[Any]:
    """Return the steps of a scenario file; traces are read from its folder."""
    from tpuherd_sim.weather import scenario as scenarios

    try:
        text = file.read_text()
        return scenarios.scenario_steps(
            scenarios.parse_scenario(text, read=lambda path: (file.parent / path).read_text())
        )
    except (OSError, UnicodeDecodeError) as error:
        raise WorldError(f"{file} can't be read ({error})") from error
    except scenarios.ScenarioError as error:
        raise WorldError(f"{file}, {error}") from error


if __name__ == "__main__":
    run_detached()
