"""`herd bucket`: where a bucket is, who may use it; creates buckets and accounts for them."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command
from tpuherd.exit_status import ABORTED, FAILED

if TYPE_CHECKING:
    from tpuherd.commands.console import Console
    from tpuherd.commands.host_access import HostAccess
    from tpuherd.results import HostResult

as_json = click.option("--json", "json_", is_flag=True, help="Print JSON.")
without_questions = click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")


@click.group()
def bucket() -> None:
    """Check, create and share buckets.

    BUCKET is my-bucket or gs://my-bucket.
    """


@bucket.command()
@click.argument("name", metavar="BUCKET")
@click.option("--zone", "zones", multiple=True, metavar="ZONE", help="Compare it with this zone.")
@click.option(
    "--from", "target", metavar="TARGET", help="Also write, read and delete an object from hosts."
)
@click.option("--read-only", "read_only", is_flag=True, help="With --from, only list and read.")
@without_questions
@as_json
def check(name: str, **said: Any) -> ParsedCommand:
    """Show where BUCKET is, who may use it, and which zones are near.

    The exit status is 1 if a zone is not near, or if a host can't use the bucket.
    """
    return make_parsed_command("herd bucket check", partial(run_check, name, said))


@bucket.command()
@click.argument("name", metavar="BUCKET")
@click.option(
    "--location",
    required=True,
    metavar="LOCATION",
    help="A zone or region of your nodes; or US, EU, ASIA, NAM4, EUR4, …; or two regions with +.",
)
@without_questions
@as_json
def create(name: str, location: str, yes: bool, json_: bool) -> ParsedCommand:
    """Create BUCKET near your nodes; it is never public."""
    asked = partial(run_create, name, location, yes, json_)
    return make_parsed_command("herd bucket create", asked)


@bucket.command()
@click.argument("name", metavar="BUCKET")
@click.option(
    "--account",
    default="",
    metavar="EMAIL",
    help="An existing service account; default: one for this bucket, created if it is missing.",
)
@click.option("--read-only", "read_only", is_flag=True, help="It may only list and read.")
@without_questions
@as_json
def grant(name: str, **said: Any) -> ParsedCommand:
    """Let a service account use BUCKET, and nothing else.

    Nodes of jobs with this `service_account` may then read and write the bucket.
    """
    return make_parsed_command("herd bucket grant", partial(run_grant, name, said))


async def run_check(
    name: str, said: Mapping[str, Any], console: "Console", home: "HostAccess"
) -> int:
    from tpuherd.cli.job_session import open_job_session, print_json, print_lines
    from tpuherd.commands.probe_bucket import probe_bucket, probe_request
    from tpuherd.jobs import bucket_operations
    from tpuherd.views.bucket_report import bucket_lines

    name = bucket_operations.bucket_name(name)
    zones = [bucket_operations.known_zone(zone) for zone in said["zones"]]
    async with open_job_session(
        console, home, "herd bucket check", yes=said["yes"], begins=False
    ) as here:
        found = await bucket_operations.check(name, zones, here)
        hosts: Sequence[HostResult] = ()
        if said["target"]:
            place, reach = await home.open_remote(console)
            request = probe_request(
                name, said["target"], write=not said["read_only"], yes=said["yes"]
            )
            hosts = await probe_bucket(request, place, reach, here.prompter)
    reports = [{"host": one.host, "works": one.status == 0, "says": said_by(one)} for one in hosts]
    content = {**found.as_json(), "hosts": reports}
    if said["json_"]:
        await print_json(console, content)
    else:
        await print_lines(console, "\n".join(bucket_lines(content)))
    far = any(not one["near"] for one in content["zones"])
    return FAILED if far or any(host.status for host in hosts) else 0


def said_by(host: "HostResult") -> str:
    """Return what the host says, or why it says nothing."""
    return (host.stdout or host.why or host.stderr).strip()


async def run_create(
    name: str, location: str, yes: bool, json_: bool, console: "Console", home: "HostAccess"
) -> int:
    from tpuherd.cli.job_session import open_job_session, print_json, print_lines
    from tpuherd.jobs import bucket_operations

    name = bucket_operations.bucket_name(name)
    place = bucket_operations.chosen_location(location)
    async with open_job_session(console, home, "herd bucket create", yes=yes, begins=False) as here:
        made = await bucket_operations.create(name, place, here)
    if made is None:
        return ABORTED
    found, is_new = made
    if json_:
        about = {"bucket": found.name, "location": found.location, "created": is_new}
        await print_json(console, about)
    else:
        word = "Created" if is_new else "Unchanged:"
        await print_lines(console, f"{word} gs://{found.name} in {found.location}")
    return 0


async def run_grant(
    name: str, said: Mapping[str, Any], console: "Console", home: "HostAccess"
) -> int:
    from tpuherd.cli.job_session import open_job_session, print_json, print_lines
    from tpuherd.jobs import bucket_operations

    name = bucket_operations.bucket_name(name)
    async with open_job_session(
        console, home, "herd bucket grant", yes=said["yes"], begins=False
    ) as here:
        write = not said["read_only"]
        made = await bucket_operations.grant(name, said["account"], here, write=write)
    if made is None:
        return ABORTED
    if said["json_"]:
        about = {"bucket": name, "account": made.account, "created": made.created}
        lists = {"roles": list(made.roles), "added": list(made.added)}
        await print_json(console, {**about, **lists})
        return 0
    lines = [f"Created {made.account}"] if made.created else []
    lines += [f"Gave it {role}" for role in made.added] or ["It already has its roles"]
    lines.append(f"In your jobs: service_account: {made.account}")
    await print_lines(console, "\n".join(lines))
    return 0
