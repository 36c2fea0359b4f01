"""`herd record`: keeps a transcript of the traffic with the cloud that names nothing of yours."""

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command
from tpuherd.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from tpuherd.commands.console import Console
    from tpuherd.commands.host_access import HostAccess
    from tpuherd.settings.recordings import Recording

FILE = "herd-transcript.jsonl"
DAYS_MAX = 30
LINE_MAX = 16 << 20


@click.group()
def record() -> None:
    """Keep a transcript of the traffic with the cloud, without names, to send to the authors."""


@record.command()
@click.argument("file", default=FILE)
@click.option(
    "--for",
    "lasting",
    default="12h",
    metavar="TIME",
    show_default=True,
    help="When it ends by itself: 90m, 12h, 3d.",
)
def start(file: str, lasting: str) -> ParsedCommand:
    """Record this project's traffic from now on.

    Use herd as usual meanwhile: the engine, the daemon and every command append to FILE
    (herd-transcript.jsonl by default). It has methods, fields, states, error codes and times; no
    names, addresses, keys or texts.
    """
    return make_parsed_command("herd record start", partial(run_record_start, file, lasting))


@record.command()
def stop() -> ParsedCommand:
    """End the recording; its file is complete then."""
    return make_parsed_command("herd record stop", run_record_stop)


@record.command()
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def status(json_: bool) -> ParsedCommand:
    """Show what is being recorded, and until when."""
    return make_parsed_command("herd record status", partial(run_record_status, json_))


@record.command()
@click.argument("file", required=False)
def show(file: str | None) -> ParsedCommand:
    """Print a transcript, one line per record.

    FILE is the current recording by default. Check it before you send it; the file itself has one
    JSON object a line.
    """
    return make_parsed_command("herd record show", partial(run_record_show, file))


@record.command()
@click.argument("target")
@click.option("-y", "--yes", is_flag=True, help="Do not ask about nodes of other herd users.")
def hosts(target: str, yes: bool) -> ParsedCommand:
    """Add to the transcript what the hosts of TARGET have.

    These are names that Google gave (keys of tpu-env, metadata paths, devices, metrics) and
    versions of Python and the kernel.
    """
    return make_parsed_command("herd record hosts", partial(run_record_hosts, target, yes))


async def run_record_start(file: str, lasting: str, console: "Console", home: "HostAccess") -> int:
    from tpuherd.clock import WallClock
    from tpuherd.jobfile.value_types import format_duration, parse_duration
    from tpuherd.settings import project_access, recordings

    seconds = parse_duration(lasting)
    if seconds is None or not 0 < seconds <= DAYS_MAX * 86400:
        raise InvalidInput(f"{lasting!r} is not a duration of at most {DAYS_MAX} days", hint="12h")
    place = project_access.resolve_access(console.environ, world=console.said.world)
    path = console.folder / Path(file).expanduser()
    recordings.start_recording(
        recordings.recording_flag(place),
        path,
        cloud=recordings.describe_cloud(place.world),
        now=WallClock().now(),
        seconds=seconds,
    )
    await console.print_text(f"Recording {place.title} to {path} for {format_duration(seconds)}")
    await console.print_notice("Use herd as usual; `herd record stop` ends it.")
    return 0


async def run_record_stop(console: "Console", home: "HostAccess") -> int:
    from tpuherd.settings import recordings

    ended = recordings.stop_recording(project_flag(console))
    await console.print_text(f"Recorded {transcript_size(ended)} to {ended.file}")
    await console.print_notice(
        f"Check it before you send it: herd record show {ended.file}\n"
        f"What it shows about the simulator: herd sim compare {ended.file}"
    )
    return 0


async def run_record_status(json_: bool, console: "Console", home: "HostAccess") -> int:
    from tpuherd.cli.job_session import print_json
    from tpuherd.clock import WallClock
    from tpuherd.jobfile.value_types import format_duration
    from tpuherd.settings import recordings

    found = recordings.load_recording(project_flag(console))
    now = WallClock().now()
    active = found is not None and found.until > now and found.file.exists()
    if json_:
        about = {
            "recording": active,
            "file": str(found.file) if found else None,
            "until": found.until if found else None,
            "bytes": transcript_bytes(found) if found else None,
        }
        await print_json(console, about)
        return 0
    if found is None:
        await console.print_text("This project is not being recorded.")
    elif not found.file.exists():
        await console.print_text(
            f"Nothing is recorded: {found.file} is gone. `herd record stop` ends it."
        )
    elif not active:
        await console.print_text(
            f"The recording to {found.file} is over. `herd record stop` closes it."
        )
    else:
        left = format_duration(round((found.until - now) / 60) * 60)
        size = transcript_size(found)
        await console.print_text(f"Recording to {found.file}: {size} so far, {left} left")
    return 0


async def run_record_show(file: str | None, console: "Console", home: "HostAccess") -> int:
    from tpuherd.settings import recordings
    from tpuherd.views.transcript_lines import transcript_line

    path = console.folder / Path(file or FILE).expanduser()
    if file is None:
        current = recordings.load_recording(project_flag(console))
        path = current.file if current else path
    if not path.is_file():
        raise NotFound(f"there is no transcript {path}", hint="herd record start begins one")
    shown = 0
    with path.open("rb") as stream:
        for raw in iter(partial(stream.readline, LINE_MAX), b""):
            try:
                entry = json.loads(raw)
            except (ValueError, RecursionError):
                continue
            if isinstance(entry, dict) and "kind" in entry:
                shown += 1
                await console.print_text(transcript_line(entry))
    if not shown:
        raise InvalidInput(f"{path} is not a transcript", hint="herd record start writes one")
    return 0


async def run_record_hosts(target: str, yes: bool, console: "Console", home: "HostAccess") -> int:
    from tpuherd.cli.ask_user import TerminalPrompter
    from tpuherd.clock import WallClock
    from tpuherd.commands.record_hosts import record_hosts
    from tpuherd.exit_status import FAILED
    from tpuherd.settings import recordings

    found = recordings.load_recording(project_flag(console))
    if found is None or found.until <= WallClock().now():
        raise InvalidInput("this project is not being recorded", hint="first: herd record start")
    place, reach = await home.open_remote(console)
    prompter = TerminalPrompter(console, "herd record hosts", yes=yes)
    missed = await record_hosts(target, found, place, reach, prompter)
    for one in missed:
        said = (one.why or one.stderr).strip().splitlines() or ["no answer"]
        await console.print_notice(f"{one.host}: {said[-1]}")
    await console.print_text(f"Recorded the hosts of {target} to {found.file}")
    return FAILED if missed else 0


def project_flag(console: "Console") -> Path:
    """Return the flag of the project, whether or not its cloud can be reached."""
    from tpuherd.settings import project_access, recordings

    return recordings.recording_flag(
        project_access.resolve_scope(console.environ, world=console.said.world)
    )


def transcript_bytes(found: "Recording") -> int:
    """Return the size of both parts."""
    parts = (found.file, found.old_part)
    return sum(one.stat().st_size for one in parts if one.exists())


def transcript_size(found: "Recording") -> str:
    return f"{transcript_bytes(found) / 1000:.1f} kB"
