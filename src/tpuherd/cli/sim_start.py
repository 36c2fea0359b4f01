"""`herd sim start`: a world in this process or one of its own, and who is told what happens."""

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import click

from tpuherd.cli.detach import Ready, apart
from tpuherd.cli.print_text import print_text
from tpuherd.cli.sim_text import line, welcome
from tpuherd.clock import WallClock
from tpuherd_sim.host_options import Lodged, Wish
from tpuherd_sim.model.world_parts import Note
from tpuherd_sim.persistence import Recovered
from tpuherd_sim.serve import Options, serve
from tpuherd_sim.state_dir import Facts, Trouble, prepare
from tpuherd_sim.weather.log_text import sentence

Said = Mapping[str, Any]  #: the options of the command line
STORM_HOURS = 7 * 24.0


class Reader:
    """Prints what happens in the world."""

    def __init__(self, folder: Path, *, json_: bool, on_ready: Ready | None) -> None:
        self._folder = folder
        self._json = json_
        self._on_ready = on_ready
        self._terminal = sys.stdout.isatty()

    def ready(self, facts: Facts, recovered: Recovered | None, *, orderly: bool) -> None:
        """The block that says where everything is."""
        text = welcome(facts, self._folder, full=self._terminal or self._on_ready is not None)
        if self._json:
            text = json.dumps({**asdict(facts), "state_dir": str(self._folder)})
        warning = ""
        if recovered is not None and not orderly:
            warning = f"the world had not been stopped in order: {recovered.sentence}"
            print_text(warning, err=True)
        if self._on_ready is None:
            print_text(text)
        else:
            self._on_ready(text, warning)

    def line(self, note: Note) -> None:
        """A line of the log, for whoever looks on."""
        if self._json:
            click.echo(json.dumps({"at": note.at, "name": note.name, "facts": dict(note.facts)}))
        elif self._terminal or self._on_ready:
            print_text(line(note.at, sentence(note)))

    def trouble(self, sentence: str) -> None:
        """A sentence for stderr."""
        print_text(sentence, err=True)


def here(said: Said, *, scenario: Path | None, storm: bool, json_: bool) -> None:
    """Let the world run in this process until somebody ends it."""
    options = understood(said, scenario, storm)
    reader = Reader(options.folder, json_=json_, on_ready=None)
    asyncio.run(serve(options, WallClock(), reader, lodged))


def apart_from_here(said: Said, *, scenario: Path | None, storm: bool, json_: bool) -> None:
    """Let the world run in a process of its own, and come back when it answers."""
    options = understood(said, scenario, storm)
    prepare(options.folder)

    def work(ready: Ready) -> None:
        reader = Reader(options.folder, json_=json_, on_ready=ready)
        asyncio.run(serve(options, WallClock(), reader, lodged))

    said_out, said_err = apart(work, options.folder / "log.txt")
    if said_err:
        print_text(said_err, err=True)
    print_text(said_out)


def lodged() -> Lodged:
    """What runs hosts, loaded only now: the world answers long before."""
    from tpuherd_sim.host_services.packages import machine_packages
    from tpuherd_sim.start_hosts import lodged

    return partial(lodged, machine_packages(os.environ, Path.home()))


def understood(said: Said, scenario: Path | None, storm: bool) -> Options:
    """The options, with the steps of a scenario file or of a storm."""
    if scenario is not None and storm:
        raise Trouble("A scenario file has its own storm: leave one of the two away")
    steps: list[Any] = []
    if scenario is not None:
        steps = played(scenario)
    if storm:
        steps = stormy(said["seed"] or 0)
    said = dict(said)
    wish = Wish(**{name: said.pop(name) for name in ("hosts", "internet", "offer")})
    return Options(**said, wish=wish, steps=tuple(steps))


def stormy(seed: int) -> list[Any]:
    """Weather by chance everywhere."""
    from tpuherd.catalogue import zones
    from tpuherd_sim.weather.storm import storm

    return storm(seed, sorted(zones()), STORM_HOURS)


def played(file: Path) -> list[Any]:
    """The steps of a scenario file; traces are looked for beside it."""
    from tpuherd_sim.weather import scenario as scenarios

    try:
        text = file.read_text()
        return scenarios.steps(
            scenarios.parse(text, read=lambda path: (file.parent / path).read_text())
        )
    except (OSError, UnicodeDecodeError) as error:
        raise Trouble(f"{file} can't be read ({error})") from error
    except scenarios.ScenarioError as error:
        raise Trouble(f"{file}, {error}") from error
