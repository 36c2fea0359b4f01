"""`herd sim`: start, look at and disturb a simulated Cloud TPU."""

import json
import os
import re
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tpuherd.cli.anywhere import named_world
from tpuherd.cli.print_text import print_text
from tpuherd.errors import HerdError
from tpuherd.settings import project_access
from tpuherd.targets import fold_names
from tpuherd_sim.state_dir import WorldError, WorldInfo, default_folder

if TYPE_CHECKING:
    from tpuherd_sim.client import Json

state_dir = click.option(
    "--state-dir",
    metavar="DIRECTORY",
    type=click.Path(file_okay=False, path_type=Path),
    help="Which world: the folder it lives in.",
)
as_json = click.option("--json", "json_", is_flag=True, help="Print JSON.")


class WorldUnreachable(click.UsageError):
    """No world answers."""

    exit_code = 7


def check_project_id(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    """Refuse what Google Cloud could not have as the id of a project."""
    if value is not None and not re.fullmatch(r"[a-z][a-z0-9-]{2,28}[a-z0-9]", value):
        raise click.BadParameter(f"{value!r} is no project id: a-z, 0-9 and -, 4 to 30 of them")
    return value


@click.group()
def sim() -> None:
    """Start, look at and disturb a simulated Cloud TPU on this machine."""


@contextmanager
def report_trouble() -> Iterator[None]:
    """Turn what the world complains about into one sentence and an exit status."""
    from tpuherd_sim.client import WorldNotRunning

    try:
        yield
    except WorldError as trouble:
        kind = WorldUnreachable if isinstance(trouble, WorldNotRunning) else click.UsageError
        raise kind(str(trouble), click.get_current_context()) from trouble


def world_folder(chosen: Path | None) -> Path:
    """The folder of the world that is meant."""
    return (chosen or named_world() or default_folder(os.environ)).absolute()


def echo_json(found: Any) -> None:
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
@click.option(
    "--project", metavar="NAME", callback=check_project_id, help="Its only one; else demo."
)
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
    from tpuherd.cli.sim_start import start_detached, start_in_process

    with report_trouble():
        folder = world_folder(state_dir)
        said["offer"] = said["offer"] and said["offer"].absolute()
        begin = start_detached if detach else start_in_process
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
    from tpuherd.cli.sim_text import world_text
    from tpuherd_sim.client import WorldNotRunning, find_running_world, send_request

    with report_trouble():
        folder = world_folder(state_dir)
        try:
            facts = find_running_world(folder)
            numbers = send_request(facts, "GET", "world")
        except WorldNotRunning:
            if json_:
                echo_json({"running": False, "state_dir": str(folder)})
            raise
        if json_:
            echo_json({"running": True, "state_dir": str(folder), **numbers})
        else:
            print_text(world_text(facts, numbers, folder))


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
    from tpuherd_sim.client import find_running_world
    from tpuherd_sim.state_dir import running_world_pid, wait_until_stopped

    with report_trouble():
        folder = world_folder(state_dir)
        find_running_world(folder)
        pid = running_world_pid(folder)
        if pid is not None:
            os.kill(pid, signal.SIGTERM)
            with time_limit(
                timeout, f"The world of pid {pid} does not end: `kill -9 {pid}` ends it"
            ):
                wait_until_stopped(folder)
        said = stop_idle_engine(folder, os.environ)
        if json_:
            echo_json({"stopped": pid, "state_dir": str(folder), "engine": said})
            return
        print_text(f"stopped; `herd sim start --state-dir {folder}` goes on with it")
        if said:
            print_text(said)


@contextmanager
def time_limit(seconds: float, sentence: str) -> Iterator[None]:
    """Give up on something that blocks."""

    def late(*_: object) -> None:
        raise WorldError(sentence)

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
    from tpuherd_sim.client import RequestRejected, find_running_world, send_request

    with report_trouble():
        facts = find_running_world(world_folder(state_dir))
        target = f"{zone}/{node}" if zone else node
        body = {"target": target, **({"notice_s": 0} if no_notice else {})}
        try:
            done = send_request(facts, "POST", "weather", "preempt", body=body)
        except RequestRejected as denied:
            there = (
                f"; {known_nodes_text(facts)}" if "no node or host matches" in str(denied) else ""
            )
            raise WorldError(f"{denied}{there}") from denied
        if json_:
            echo_json(done)
            return
        when = "is gone" if no_notice else "has 30 s"
        for hit in done["done"]:
            print_text(f"{hit['target']} {when}")


def known_nodes_text(facts: WorldInfo) -> str:
    """The end of a sentence about a node that is not there."""
    from tpuherd.cli.sim_text import first_names
    from tpuherd_sim.client import send_request

    names = send_request(facts, "GET", "nodes").get("nodes", [])
    return f"there is {first_names(names)}" if names else "there is no node at all"


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
    from tpuherd.cli.sim_text import hits_text, weather_text
    from tpuherd_sim.client import find_running_world, send_request

    with report_trouble():
        facts = find_running_world(world_folder(state_dir))
        if not words:
            found = send_request(facts, "GET", "weather")
            echo_json(found) if json_ else print_text(weather_text(found))
            return
        if words == ("clear",):
            answer = clear_weather(facts)
        else:
            answer = send_request(facts, "POST", "weather", words[0], body=parse_weather(words))
        echo_json(answer) if json_ else print_text(hits_text(words[0], answer))


def clear_weather(facts: WorldInfo) -> "Json":
    """End all of it: what is still to come, what is in force, what is short."""
    from tpuherd_sim.client import send_request

    dropped = send_request(facts, "DELETE", "scenario")
    answer = send_request(facts, "POST", "weather", "clear", body={"rule": "all"})
    for pool in send_request(facts, "GET", "weather")["capacity"]:
        zone, _, type_ = pool.partition("/")
        room = {"zone": zone, "type": type_, "nodes": "unlimited"}
        answer["done"] += send_request(facts, "POST", "weather", "capacity", body=room)["done"]
    return {**answer, **dropped}


def parse_weather(words: tuple[str, ...]) -> dict[str, str]:
    """The arguments of a kind of weather out of bare words."""
    from tpuherd_sim.weather import arguments

    try:
        return arguments.parse_words(arguments.find_kind(words[0]), words[1:])
    except arguments.InvalidWeather as unfit:
        raise WorldError(unfit.sentence) from unfit


@sim.command()
@click.option("-f", "--follow", is_flag=True, help="Go on with what happens next.")
@state_dir
@as_json
def log(follow: bool, state_dir: Path | None, json_: bool) -> None:
    """Show what happened in a world."""
    from tpuherd.cli.sim_text import log_line
    from tpuherd_sim.client import find_running_world, send_request

    with report_trouble():
        facts = find_running_world(world_folder(state_dir))
        since = 0
        while True:
            found = send_request(facts, "GET", "log", query=f"since={since}")
            for entry in found["lines"]:
                if json_:
                    click.echo(json.dumps(entry))
                else:
                    print_text(log_line(entry["at"], entry["sentence"]))
            since = found["next"]
            if found["more"]:
                continue
            if not follow:
                return
            sys.stdout.flush()
            send_request(facts, "GET", "news", query=f"since={since}")


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
    from tpuherd_sim.client import find_running_world
    from tpuherd_sim.client_env import client_environment, export_script

    with report_trouble():
        folder = world_folder(state_dir)
        named = client_environment(folder, find_running_world(folder), proxy=proxy)
        if json_:
            echo_json({**named, "PATH_FIRST": str(folder / "bin")})
        else:
            click.echo(export_script(folder, named), nl=False)


def stop_idle_engine(world: Path, environ: Mapping[str, str]) -> str:
    """End it where nothing is wished; else say that it waits. "" where there is none of ours."""
    import asyncio

    from tpuherd.clock import WallClock
    from tpuherd.jobs import engine_control

    try:
        scope = project_access.resolve_scope(environ, world=world)
        if not scope.store_folder.exists():
            return ""
        with closing(engine_control.open_store(scope)) as store:
            holder, wishes = store.lease_holder(WallClock().now()), store.stored_jobs()
        if holder is None:
            return ""
        if wishes:
            return (
                f"its engine (pid {holder.pid}) waits for it, since {fold_names(wishes)} is"
                " wished, and"
                " ends if it stays away: herd engine stop ends it now"
            )
        return "its engine has ended, too" if asyncio.run(engine_control.stop_engine(scope)) else ""
    except HerdError:
        return ""  # the world is stopped all the same
