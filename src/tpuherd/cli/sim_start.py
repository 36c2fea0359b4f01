"""`herd sim start`: runs a world in this process or in the background."""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import click

from tpuherd.cli.print_text import print_text
from tpuherd.cli.sim_text import log_line, welcome_text
from tpuherd.clock import WallClock
from tpuherd_sim.host_options import HostOptions, HostsRunner
from tpuherd_sim.model.world_parts import LogEntry
from tpuherd_sim.persistence import RecoveredWorld
from tpuherd_sim.serve import WorldOptions, serve_world
from tpuherd_sim.state_dir import WorldError, WorldInfo, prepare_folder
from tpuherd_sim.weather.log_text import log_sentence

StartOptions = Mapping[str, Any]  #: the options of the command line
STORM_HOURS = 7 * 24.0
#: Called in the new process when it is ready, with the text and the warning to print.
OnReady = Callable[[str, str], None]


class WorldPrinter:
    def __init__(self, folder: Path, *, json_: bool, on_ready: OnReady | None) -> None:
        self._folder = folder
        self._json = json_
        self._on_ready = on_ready
        self._terminal = sys.stdout.isatty()

    def on_ready(
        self, facts: WorldInfo, recovered: RecoveredWorld | None, *, orderly: bool
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

    def on_log_entry(self, note: LogEntry) -> None:
        if self._json:
            click.echo(json.dumps({"at": note.at, "name": note.name, "facts": dict(note.facts)}))
        elif self._terminal or self._on_ready:
            print_text(log_line(note.at, log_sentence(note)))

    def on_problem(self, sentence: str) -> None:
        print_text(sentence, err=True)


def start_in_process(
    said: StartOptions, *, scenario: Path | None, storm: bool, json_: bool
) -> None:
    """Run the world in this process until it is stopped."""
    options = build_options(said, scenario, storm)
    reader = WorldPrinter(options.folder, json_=json_, on_ready=None)
    asyncio.run(serve_world(options, WallClock(), reader, load_host_backend))


def start_detached(said: StartOptions, *, scenario: Path | None, storm: bool, json_: bool) -> None:
    """Run the world in the background; return when it answers."""
    options = build_options(said, scenario, storm)
    prepare_folder(options.folder)

    def work(ready: OnReady) -> None:
        reader = WorldPrinter(options.folder, json_=json_, on_ready=ready)
        asyncio.run(serve_world(options, WallClock(), reader, load_host_backend))

    said_out, said_err = run_detached(work, options.folder / "log.txt")
    if said_err:
        print_text(said_err, err=True)
    print_text(said_out)


def load_host_backend() -> HostsRunner:
    """Load what runs hosts, which the world needs only after it answers."""
    from tpuherd_sim.host_services.packages import read_package_sources
    from tpuherd_sim.start_hosts import run_hosts

    return partial(run_hosts, read_package_sources(os.environ, Path.home()))


def build_options(said: StartOptions, scenario: Path | None, storm: bool) -> WorldOptions:
    """Return the options, with the steps of a scenario file or storm."""
    if scenario is not None and storm:
        raise WorldError("--scenario and --weather can't be combined")
    steps: list[Any] = []
    if scenario is not None:
        steps = load_scenario_file(scenario)
    if storm:
        steps = random_weather_steps(said["seed"] or 0)
    said = dict(said)
    host_options = HostOptions(**{name: said.pop(name) for name in ("hosts", "internet", "offer")})
    return WorldOptions(**said, host_options=host_options, steps=tuple(steps))


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


def run_detached(work: Callable[[OnReady], None], log: Path) -> tuple[str, str]:
    """Run `work` in a new process; return the text and the warning it gives when ready."""
    sys.stdout.flush()
    sys.stderr.flush()
    ear, mouth = os.pipe()
    if os.fork() == 0:
        os.close(ear)
        run_in_child(work, log, mouth)
    os.close(mouth)
    with open(ear, encoding="utf-8") as stream:
        said = json.loads(stream.read() or "{}")
    if "ready" in said:
        return said["ready"], said["warning"]
    raise WorldError(said.get("trouble") or f"the world did not start; see {log}")


def run_in_child(work: Callable[[OnReady], None], log: Path, mouth: int) -> None:
    """Run in the new process, detached from the parent; print to the log; never return."""
    status = 1
    try:
        os.setsid()
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(out, 2)
        os.closerange(3, mouth)
        os.closerange(mouth + 1, mouth + 1024)

        def ready(message: str, warning: str) -> None:
            os.write(mouth, json.dumps({"ready": message, "warning": warning}).encode())
            os.close(mouth)

        work(ready)
        status = 0
    except WorldError as trouble:
        with contextlib.suppress(OSError):
            os.write(mouth, json.dumps({"trouble": str(trouble)}).encode())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
