"""`herd sim`: starts, inspects and disturbs a simulated Cloud TPU."""

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

from tpuherd.cli.anywhere import current_invocation, named_world
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
    help="The folder of the simulated world.",
)
as_json = click.option("--json", "json_", is_flag=True, help="Print JSON.")


class WorldUnreachable(click.UsageError):
    exit_code = 7


def check_project_id(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    """Refuse what Google Cloud could not have as the id of a project."""
    if value is not None and not re.fullmatch(r"[a-z][a-z0-9-]{2,28}[a-z0-9]", value):
        raise click.BadParameter(f"{value!r} is not a project id: use 4 to 30 of a-z, 0-9 and -")
    return value


@click.group()
def sim() -> None:
    """Start, inspect and disturb a simulated Cloud TPU on this machine."""


@contextmanager
def report_trouble() -> Iterator[None]:
    """Turn a WorldError into one sentence and an exit status."""
    from tpuherd_sim.client import WorldNotRunning

    try:
        yield
    except WorldError as trouble:
        kind = WorldUnreachable if isinstance(trouble, WorldNotRunning) else click.UsageError
        raise kind(str(trouble), click.get_current_context()) from trouble


def world_folder(chosen: Path | None) -> Path:
    return (chosen or named_world() or default_folder(current_invocation().environ)).absolute()


def echo_json(found: Any) -> None:
    click.echo(json.dumps(found, indent=2))


@sim.command()
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="N",
    help="Port of the API; default: a free one.",
)
@click.option(
    "--ssh-port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="N",
    help="SSH port of hosts; default: a free one. gcloud needs 22.",
)
@click.option(
    "--scenario",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="A YAML file of weather and its times.",
)
@click.option("--weather", type=click.Choice(["storm"]), help="Random weather.")
@click.option("--seed", type=click.IntRange(min=0), metavar="N", help="Seed of everything random.")
@click.option(
    "--project", metavar="NAME", callback=check_project_id, help="The only project; default: demo."
)
@click.option(
    "--time-scale",
    type=click.FloatRange(0.01, 1e6),
    metavar="X",
    help="Speed of the cloud, not of hosts; default: 1.",
)
@click.option(
    "--hosts",
    type=click.Choice(["auto", "namespaces", "processes", "none"]),
    default="auto",
    metavar="HOW",
    help="How hosts run: auto (default), namespaces, processes, which can reach your sockets,"
    " or none.",
)
@click.option(
    "--internet/--no-internet",
    default=True,
    help="Whether hosts can reach package indexes and git.",
)
@click.option(
    "--offer",
    "offers",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="A folder that all hosts can read at its path.",
)
@click.option("--detach", is_flag=True, help="Run in the background; return when it is ready.")
@state_dir
@as_json
def start(state_dir: Path | None, detach: bool, **chosen: Any) -> None:
    """Start a world, or continue one that was stopped."""
    from tpuherd.cli.sim_start import start_detached, start_in_process

    with report_trouble():
        chosen["folder"] = world_folder(state_dir)
        chosen["offers"] = [folder.absolute() for folder in chosen["offers"]]
        begin = start_detached if detach else start_in_process
        begin(chosen, current_invocation().environ)


@sim.command()
@state_dir
@as_json
def status(state_dir: Path | None, json_: bool) -> None:
    """Show where a world is and what is in it."""
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
    "--timeout", type=click.FloatRange(0), default=30.0, help="Seconds to wait for the end."
)
@state_dir
@as_json
def stop(state_dir: Path | None, timeout: float, json_: bool) -> None:
    """Stop a world and keep its state.

    Its engine stops with it if there are no jobs, else it waits ten minutes for the world.
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
                timeout, f"the world (pid {pid}) does not stop: `kill -9 {pid}` ends it"
            ):
                wait_until_stopped(folder)
        said = stop_idle_engine(folder, current_invocation().environ)
        if json_:
            echo_json({"stopped": pid, "state_dir": str(folder), "engine": said})
            return
        print_text(f"Stopped; `herd sim start --state-dir {folder}` continues it")
        if said:
            print_text(said)


@contextmanager
def time_limit(seconds: float, sentence: str) -> Iterator[None]:
    """Raise a WorldError if the block takes longer."""

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
@click.option("--zone", help="The node's zone, if its name is used in several.")
@click.option("--no-notice", is_flag=True, help="Preempt at once, without the 30 s notice.")
@state_dir
@as_json
def preempt(
    node: str, zone: str | None, no_notice: bool, state_dir: Path | None, json_: bool
) -> None:
    """Preempt a node, as the cloud does with spot nodes."""
    from tpuherd_sim.client import RequestRejected, find_running_world, send_request

    with report_trouble():
        facts = find_running_world(world_folder(state_dir))
        target = f"{zone}/{node}" if zone else node
        body = {"target": target, **({"notice_s": 0} if no_notice else {})}
        try:
            done = send_request(facts, "POST", "weather", "preempt", body=body)
        except RequestRejected as denied:
            raise WorldError(f"{denied}; {known_nodes_text(facts)}") from denied
        if json_:
            echo_json(done)
            return
        when = "is gone" if no_notice else "has 30 s"
        for hit in done["done"]:
            print_text(f"{hit['target']} {when}")


def known_nodes_text(facts: WorldInfo) -> str:
    """Return the end of a sentence about an unknown node."""
    from tpuherd.cli.sim_text import first_names
    from tpuherd_sim.client import send_request

    names = send_request(facts, "GET", "nodes").get("nodes", [])
    return f"nodes: {first_names(names)}" if names else "there are no nodes"


@sim.command(context_settings={"ignore_unknown_options": True})
@click.argument("words", nargs=-1, metavar="[KIND [VALUE …] [NAME=VALUE …]]")
@state_dir
@as_json
def weather(words: tuple[str, ...], state_dir: Path | None, json_: bool) -> None:
    """Disturb a world, or list all disturbances.

    KIND is one of the list; `clear` ends every rule and all planned steps.
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
    """End all rules, planned steps and limits of capacity."""
    from tpuherd_sim.client import send_request

    dropped = send_request(facts, "DELETE", "scenario")
    answer = send_request(facts, "POST", "weather", "clear", body={"rule": "all"})
    for pool in send_request(facts, "GET", "weather")["capacity"]:
        zone, _, type_ = pool.partition("/")
        room = {"zone": zone, "type": type_, "nodes": "unlimited"}
        answer["done"] += send_request(facts, "POST", "weather", "capacity", body=room)["done"]
    return {**answer, **dropped}


def parse_weather(words: tuple[str, ...]) -> dict[str, str]:
    """Parse the arguments of a kind of weather."""
    from tpuherd_sim.weather import arguments

    try:
        return arguments.parse_words(arguments.find_kind(words[0]), words[1:])
    except arguments.InvalidWeather as unfit:
        raise WorldError(unfit.sentence) from unfit


@sim.command()
@click.option("-f", "--follow", is_flag=True, help="Keep printing new lines.")
@state_dir
@as_json
def log(follow: bool, state_dir: Path | None, json_: bool) -> None:
    """Show what happened in a world."""
    from tpuherd.cli.sim_text import LOG_INDENT, log_line
    from tpuherd_sim.client import find_running_world, send_request

    with report_trouble():
        facts = find_running_world(world_folder(state_dir))
        since, signs = 0, sys.stdout.isatty()
        while True:
            found = send_request(facts, "GET", "log", query=f"since={since}")
            for entry in found["lines"]:
                if json_:
                    click.echo(json.dumps(entry))
                else:
                    print_text(
                        log_line(entry["at"], entry["name"], entry["sentence"], signs=signs),
                        hang=LOG_INDENT,
                    )
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
    help="Also redirect programs that know only Google's addresses. Breaks all other HTTPS.",
)
@state_dir
@as_json
def env(proxy: bool, state_dir: Path | None, json_: bool) -> None:
    """Print the environment that makes other programs use a world.

    It prints shell exports for eval; with them, gcloud, Google's libraries and ssh use the world.
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
    """Stop the engine if there are no jobs; return a sentence about it, or ""."""
    import asyncio

    from tpuherd.clock import WallClock
    from tpuherd.jobs import engine_control

    try:
        scope = project_access.resolve_scope(environ, world=world)
        if not scope.has_store:
            return ""
        with closing(engine_control.open_store(scope)) as store:
            holder, stored_jobs = store.lease_holder(WallClock().now()), store.stored_jobs()
        if holder is None:
            return ""
        if stored_jobs:
            return (
                f"its engine (pid {holder.pid}) waits ten minutes for the world, because of"
                f" {fold_names(stored_jobs)}; `herd engine stop` stops it now"
            )
        return (
            "its engine has stopped, too" if asyncio.run(engine_control.stop_engine(scope)) else ""
        )
    except HerdError:
        return ""  # the world is stopped anyway
