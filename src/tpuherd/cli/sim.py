"""`herd sim`: start, look at and disturb a simulated Cloud TPU."""

import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from tpuherd.cli.invocation import named_world
from tpuherd.cli.print_text import print_text
from tpuherd_sim.client import Absent, Denied, Json, ask, find
from tpuherd_sim.state_dir import Facts, Trouble, default_folder

state_dir = click.option(
    "--state-dir",
    metavar="DIRECTORY",
    type=click.Path(file_okay=False, path_type=Path),
    help="Which world: the folder it lives in.",
)
as_json = click.option("--json", "json_", is_flag=True, help="Print JSON.")


class Nobody(click.UsageError):
    """No world answers."""

    exit_code = 7


def project_id(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    """Refuse what Google Cloud could not have as the id of a project."""
    if value is not None and not re.fullmatch(r"[a-z][a-z0-9-]{2,28}[a-z0-9]", value):
        raise click.BadParameter(f"{value!r} is no project id: a-z, 0-9 and -, 4 to 30 of them")
    return value


@click.group()
def sim() -> None:
    """Start, look at and disturb a simulated Cloud TPU on this machine."""


@contextmanager
def spoken() -> Iterator[None]:
    """Turn what the world complains about into one sentence and an exit status."""
    try:
        yield
    except Trouble as trouble:
        kind = Nobody if isinstance(trouble, Absent) else click.UsageError
        raise kind(str(trouble), click.get_current_context()) from trouble


def place(chosen: Path | None) -> Path:
    """The folder of the world that is meant."""
    return (chosen or named_world() or default_folder(os.environ)).absolute()


def show(found: Any) -> None:
    """Print as JSON."""
    click.echo(json.dumps(found, indent=2))


@sim.command()
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="Of the API; else a free one."
)
@click.option(
    "--ssh-port",
    type=click.IntRange(0, 65535),
    default=0,
    help="Of every host; else a free one. gcloud's own ssh wants 22, which wants root.",
)
@click.option(
    "--scenario",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Weather with its times, as YAML.",
)
@click.option("--weather", type=click.Choice(["storm"]), help="Weather made by chance.")
@click.option("--seed", type=click.IntRange(min=0), help="Of all chance in the world.")
@click.option("--project", metavar="NAME", callback=project_id, help="Its only one; else demo.")
@click.option(
    "--time-scale",
    type=click.FloatRange(0.01, 1e6),
    metavar="X",
    help="Hasten the cloud's lifecycle so many times (never notices, hosts or clients).",
)
@click.option(
    "--hosts",
    type=click.Choice(["auto", "namespaces", "processes", "none"]),
    default="auto",
    show_default=True,
    help="What workers are: isolated by namespaces, mere processes (which reach your unix sockets; "
    "on a machine that others use they must be asked for), or not there.",
)
@click.option(
    "--internet/--no-internet", default=True, help="Whether hosts reach packages and git."
)
@click.option(
    "--offer",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A folder that every host sees, read-only, at the same place.",
)
@click.option("--detach", is_flag=True, help="Come back once the world is ready; it goes on.")
@state_dir
@as_json
def start(
    state_dir: Path | None,
    detach: bool,
    json_: bool,
    scenario: Path | None,
    weather: str | None,
    **said: Any,
) -> None:
    """Start a world, or go on with one."""
    from tpuherd.cli.sim_start import apart_from_here, here

    with spoken():
        folder = place(state_dir)
        said["offer"] = said["offer"] and said["offer"].absolute()
        begin = apart_from_here if detach else here
        begin(
            {**said, "folder": folder, "path": os.environ.get("PATH", os.defpath)},
            scenario=scenario,
            storm=weather == "storm",
            json_=json_,
        )


@sim.command()
@state_dir
@as_json
def status(state_dir: Path | None, json_: bool) -> None:
    """Say where a world is and what is in it."""
    from tpuherd.cli.sim_text import page

    with spoken():
        folder = place(state_dir)
        try:
            facts = find(folder)
            numbers = ask(facts, "GET", "world")
        except Absent:
            if json_:
                show({"running": False, "state_dir": str(folder)})
            raise
        if json_:
            show({"running": True, "state_dir": str(folder), **numbers})
        else:
            print_text(page(facts, numbers, folder))


@sim.command()
@click.option(
    "--timeout", type=click.FloatRange(0), default=30.0, help="Seconds to wait for its end."
)
@state_dir
@as_json
def stop(state_dir: Path | None, timeout: float, json_: bool) -> None:
    """End a world; what it holds is kept.

    Its engine ends with it where nothing is wished. Else it waits ten minutes for the world.
    """
    from tpuherd.cli.sim_engine import orphaned
    from tpuherd_sim.state_dir import holder, vacant

    with spoken():
        folder = place(state_dir)
        find(folder)
        pid = holder(folder)
        if pid is not None:
            os.kill(pid, signal.SIGTERM)
            with deadline(timeout, f"The world of pid {pid} does not end: `kill -9 {pid}` ends it"):
                vacant(folder)
        said = orphaned(folder, os.environ)
        if json_:
            show({"stopped": pid, "state_dir": str(folder), "engine": said})
            return
        print_text(f"stopped; `herd sim start --state-dir {folder}` goes on with it")
        if said:
            print_text(said)


@contextmanager
def deadline(seconds: float, sentence: str) -> Iterator[None]:
    """Give up on something that blocks."""

    def late(*_: object) -> None:
        raise Trouble(sentence)

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds or 1e-6)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@sim.command()
@click.argument("node")
@click.option("--zone", help="Where the node is; needed if its name is in several zones.")
@click.option("--no-notice", is_flag=True, help="At once, without the 30 s notice.")
@state_dir
@as_json
def preempt(
    node: str, zone: str | None, no_notice: bool, state_dir: Path | None, json_: bool
) -> None:
    """Take a node back, as clouds do with spot."""
    with spoken():
        facts = find(place(state_dir))
        target = f"{zone}/{node}" if zone else node
        body = {"target": target, **({"notice_s": 0} if no_notice else {})}
        try:
            done = ask(facts, "POST", "weather", "preempt", body=body)
        except Denied as denied:
            there = f"; {nodes_there(facts)}" if "nothing here fits" in str(denied) else ""
            raise Trouble(f"{denied}{there}") from denied
        if json_:
            show(done)
            return
        when = "is gone" if no_notice else "has 30 s"
        for hit in done["done"]:
            print_text(f"{hit['target']} {when}")


def nodes_there(facts: Facts) -> str:
    """The end of a sentence about a node that is not there."""
    from tpuherd.cli.sim_text import some

    names = ask(facts, "GET", "nodes").get("nodes", [])
    return f"there is {some(names)}" if names else "there is no node at all"


@sim.command(context_settings={"ignore_unknown_options": True})
@click.argument("words", nargs=-1, metavar="[KIND [VALUE …] [NAME=VALUE …]]")
@state_dir
@as_json
def weather(words: tuple[str, ...], state_dir: Path | None, json_: bool) -> None:
    """Disturb a world, or list what can be done.

    \b
    herd sim weather preempt gpt-1 notice_s=0
    herd sim weather http-error 429 method=nodes.create for=2m
    herd sim weather clear              ends every rule and what is still to come
    """
    from tpuherd.cli.sim_text import done, forecast

    with spoken():
        facts = find(place(state_dir))
        if not words:
            found = ask(facts, "GET", "weather")
            show(found) if json_ else print_text(forecast(found))
            return
        if words == ("clear",):
            answer = calm(facts)
        else:
            answer = ask(facts, "POST", "weather", words[0], body=understood(words))
        show(answer) if json_ else print_text(done(words[0], answer))


def calm(facts: Facts) -> Json:
    """End all of it: what is still to come, what is in force, what is short."""
    dropped = ask(facts, "DELETE", "scenario")
    answer = ask(facts, "POST", "weather", "clear", body={"rule": "all"})
    for pool in ask(facts, "GET", "weather")["capacity"]:
        zone, _, type_ = pool.partition("/")
        room = {"zone": zone, "type": type_, "nodes": "unlimited"}
        answer["done"] += ask(facts, "POST", "weather", "capacity", body=room)["done"]
    return {**answer, **dropped}


def understood(words: tuple[str, ...]) -> dict[str, str]:
    """The arguments of a kind of weather out of bare words."""
    from tpuherd_sim.weather import arguments

    try:
        return arguments.words(arguments.kind(words[0]), words[1:])
    except arguments.Unfit as unfit:
        raise Trouble(unfit.sentence) from unfit


@sim.command()
@click.option("-f", "--follow", is_flag=True, help="Go on with what happens next.")
@state_dir
@as_json
def log(follow: bool, state_dir: Path | None, json_: bool) -> None:
    """Show what happened in a world."""
    from tpuherd.cli.sim_text import line

    with spoken():
        facts = find(place(state_dir))
        since = 0
        while True:
            found = ask(facts, "GET", "log", query=f"since={since}")
            for entry in found["lines"]:
                if json_:
                    click.echo(json.dumps(entry))
                else:
                    print_text(line(entry["at"], entry["sentence"]))
            since = found["next"]
            if found["more"]:
                continue
            if not follow:
                return
            sys.stdout.flush()
            ask(facts, "GET", "news", query=f"since={since}")


@sim.command()
@click.option(
    "--proxy",
    is_flag=True,
    help="Also lead programs astray that know only Google's addresses. Disturbs all other HTTPS.",
)
@state_dir
@as_json
def env(proxy: bool, state_dir: Path | None, json_: bool) -> None:
    """Print what leads other programs to a world.

    These are exports by which gcloud, Google's libraries and ssh find it, for a shell's eval:

    \b
    eval "$(herd sim env)"
    """
    from tpuherd_sim.client_env import exports, script

    with spoken():
        folder = place(state_dir)
        named = exports(folder, find(folder), proxy=proxy)
        if json_:
            show({**named, "PATH_FIRST": str(folder / "bin")})
        else:
            click.echo(script(folder, named), nl=False)
