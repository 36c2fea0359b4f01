"""`herd notify`: who gets messages about jobs."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command
from tpuherd.errors import InvalidInput
from tpuherd.exit_status import FAILED, MISUSED

if TYPE_CHECKING:
    from tpuherd.commands.console import Console
    from tpuherd.commands.host_access import HostAccess
    from tpuherd.store.database import Database

as_json = click.option("--json", "json_", is_flag=True, help="Print JSON.")
BYTES_MAX = 1_000_000


@click.group()
def notify() -> None:
    """Send messages about jobs by Slack, Discord, ntfy, e-mail, a webhook or a command.

    The field `notify` of a job names its receivers; docs/howto/notify.md describes it.
    """


@notify.command("list")
@as_json
def list_(json_: bool) -> ParsedCommand:
    """List the receivers of messages, their jobs, and which of them fail."""
    return make_parsed_command("herd notify list", partial(run_notify_list, json_))


@notify.command()
@click.argument("name", required=False)
@click.option("--all", "every", is_flag=True, help="All receivers of all jobs.")
@as_json
def test(name: str | None, every: bool, json_: bool) -> ParsedCommand:
    """Send a test message now, and print what each receiver answered.

    NAME is a job; without it, the receivers of `herd notify set` get the message. This machine
    sends it; the engine sends its messages from where it runs.
    """
    if name and every:
        raise click.UsageError("give a job, or --all")
    return make_parsed_command("herd notify test", partial(run_notify_test, name, every, json_))


@notify.command()
@click.argument("answer", type=click.Choice(["yes", "no"]), default="yes")
def allow(answer: str) -> ParsedCommand:
    """Let this account's engine send messages of others' jobs.

    In a lab, such a message connects to the mail server or web address that its job names. `no`
    ends it, which is the default. Commands of others never run here.
    """
    return make_parsed_command("herd notify allow", partial(run_notify_allow, answer == "yes"))


@notify.command("set")
@click.argument("file", required=False)
@click.option(
    "--clear", is_flag=True, help="Remove them: only receivers that jobs name get messages."
)
def set_(file: str | None, clear: bool) -> ParsedCommand:
    """Set the receivers of all jobs without a `notify` of their own.

    FILE has what `notify:` has in a job file; - reads stdin. Addresses, tokens and passwords are
    kept as secrets are: in files that only you can read.
    """
    if bool(file) == clear:
        raise click.UsageError("give FILE, or --clear")
    return make_parsed_command("herd notify set", partial(run_notify_set, file))


async def run_notify_list(json_: bool, console: "Console", home: "HostAccess") -> int:
    from tpuherd.cli.store_session import open_store_session
    from tpuherd.jobs.receiver_list import receiver_rows
    from tpuherd.views.receiver_table import receivers_text

    async with open_store_session(console) as here:
        show = partial(receivers_text, now=here.now, **console.table_style)
        rows = receiver_rows(here.store, others=others_allowed(console))
        await here.print_content(rows, show, json_=json_)
    return 0


async def run_notify_test(
    name: str | None, every: bool, json_: bool, console: "Console", home: "HostAccess"
) -> int:
    from tpuherd.cli.store_session import open_store_session
    from tpuherd.jobs.receiver_list import send_test_messages
    from tpuherd.views.receiver_table import tests_text

    async with open_store_session(console) as here:
        rows = await send_test_messages(
            here.store,
            name,
            every=every,
            others=others_allowed(console),
            environ=console.environ,
            clock=here.clock,
        )
        await here.print_content(rows, tests_text, json_=json_)
        if not all(row["accepted"] for row in rows):
            return FAILED
        end_problem(here.store)
    return 0


def others_allowed(console: "Console") -> bool:
    """Whether this account lets its engine send messages of jobs that others submitted."""
    from tpuherd.settings.project_access import resolve_scope
    from tpuherd.settings.project_settings import tells_others

    scope = resolve_scope(console.environ, world=console.said.world)
    return tells_others(scope.folders.config, world=scope.world, project=scope.project)


async def run_notify_allow(allowed: bool, console: "Console", home: "HostAccess") -> int:
    from tpuherd.settings.project_access import resolve_scope
    from tpuherd.settings.project_settings import allow_telling_others

    scope = resolve_scope(console.environ, world=console.said.world)
    allow_telling_others(
        scope.folders.config, world=scope.world, project=scope.project, allowed=allowed
    )
    does = "sends" if allowed else "does not send"
    await console.print_text(
        f"The engine of this account {does} messages of jobs that others submitted"
        f" ({scope.title}); it notices within half a minute"
    )
    return 0


def end_problem(store: "Database") -> None:
    """The user has fixed something; an engine whose messages still fail says so again."""
    from tpuherd.model.trouble import NOTIFY

    if any(one.source == NOTIFY for one in store.troubles.read()):
        store.troubles.end_trouble(NOTIFY)


async def run_notify_set(file: str | None, console: "Console", home: "HostAccess") -> int:
    from tpuherd.cli.job_session import print_lines
    from tpuherd.cli.store_session import open_store_session
    from tpuherd.jobfile.yaml_with_lines import read_yaml
    from tpuherd.jobs.receiver_list import receiver_rows, set_receivers
    from tpuherd.store.notify_secrets import put_receivers

    async with open_store_session(console) as here:
        if file is None:
            put_receivers(here.store.secrets, (), {})
            end_problem(here.store)
            await print_lines(console, "Removed the receivers of jobs without `notify`")
            return 0
        page = read_yaml(await read_input(file, console))
        base = console.folder if file == "-" else (console.folder / file).parent
        if not await set_receivers(page, base, console.environ, here.store):
            for one in sorted(page.mistakes, key=lambda each: each.line):
                await console.print_notice(f"herd notify set: {one.format_line(file)}")
            return MISUSED
        end_problem(here.store)
        names = [row["receiver"] for row in receiver_rows(here.store) if row["default"]]
        said = f"Jobs without `notify` send messages to: {', '.join(names) or 'nobody'}"
        await print_lines(console, f"{said}. Try it: herd notify test" if names else said)
    return 0


async def read_input(file: str, console: "Console") -> str:
    """Return the text of a file, or of stdin."""
    if file != "-":
        try:
            content = (console.folder / Path(file).expanduser()).read_bytes()
        except OSError as error:
            raise InvalidInput(f"{file} can't be read: {error.strerror}") from error
        return content.decode(errors="replace")
    text = b""
    while piece := await console.read():
        text += piece
        if len(text) > BYTES_MAX:
            raise InvalidInput("the input is larger than a megabyte")
    return text.decode(errors="replace")
