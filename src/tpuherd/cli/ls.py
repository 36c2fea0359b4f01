"""`herd ls`: lists all jobs."""

from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

import click

from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command
from tpuherd.views.job_pages import jobs_text

if TYPE_CHECKING:
    from collections.abc import Collection

    from tpuherd.cloud.parse import Node
    from tpuherd.commands.console import Console
    from tpuherd.commands.host_access import HostAccess
    from tpuherd.results import NodeSummary


NODES = ("NODE", "ZONE", "TYPE", "TIER", "STATE", "AGE", "ADDRESS", "JOB", "PER HOUR")


@click.command()
@click.option("--nodes", is_flag=True, help="List all TPUs of the project instead, gcloud's too.")
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def ls(nodes: bool, json_: bool) -> ParsedCommand:
    """List all jobs with their state, zone, goodput and cost.

    READY is the number of ready nodes, out of those that the job asks for.
    """
    return make_parsed_command("herd ls", partial(run_ls_nodes if nodes else run_ls, json_))


async def run_ls(json_: bool, console: "Console", home: "HostAccess") -> int:
    from tpuherd.cli.store_session import open_store_session
    from tpuherd.jobs.job_queries import job_rows

    async with open_store_session(console) as here:
        rows = job_rows(here.store, here.now)
        await here.print_troubles(apart=json_)
        style = console.screen_style
        if style is None:
            text = partial(jobs_text, **console.table_style)
        else:
            from tpuherd.views.job_screens import jobs_screen

            text = partial(jobs_screen, **style)
        await here.print_content(rows, text, json_=json_)
    return 0


async def run_ls_nodes(json_: bool, console: "Console", home: "HostAccess") -> int:
    """Ask the cloud: whatever made a node, it is paid for."""
    from tpuherd.cli.job_session import format_dollars, print_json
    from tpuherd.planner.retry_limits import format_age
    from tpuherd.settings.project_access import own_owner_ids
    from tpuherd.views.format_text import NOTHING, format_table

    place, reach = await home.open_remote(console)
    listed = await reach.cloud.list_nodes()
    if listed.unknown:
        zones = ", ".join(listed.unknown)
        await console.print_notice(f"herd ls: no answer from {zones}; what is there is not known")
    owners, now = own_owner_ids(place), reach.clock.now()
    found = sorted(listed.nodes, key=lambda one: (one.zone, one.name))
    rows = [node_row(one, owners) for one in found]
    if json_:
        await print_json(console, [asdict(row) for row in rows])
        return 0
    cells = [
        (
            row.node, row.zone, row.type, row.tier, row.state, format_age(now - row.created),
            row.address or NOTHING,
            row.job or (f"of {row.owner}" if row.owner else NOTHING),
            NOTHING if row.per_hour is None else format_dollars(row.per_hour),
        )
        for row in rows
    ]  # fmt: skip
    text = format_table([NODES, *cells], **console.table_style) if cells else "no nodes"
    await console.print_text(text, coloured=True)
    return 0


def node_row(node: "Node", owners: "Collection[str]") -> "NodeSummary":
    from tpuherd.catalogue import accelerators
    from tpuherd.jobfile.grants import hourly_price
    from tpuherd.results import NodeSummary
    from tpuherd.targets import split_bid_name

    bid, kind = split_bid_name(node.bid), accelerators().get(node.type)
    own = bid is not None and bid.owner in owners
    first = node.workers[0] if node.workers else None
    return NodeSummary(
        node=node.name,
        zone=node.zone,
        type=node.type,
        tier=node.tier,
        state=node.state,
        created=node.created,
        address=(first.external_ip or first.internal_ip) if first else "",
        job=bid.job if bid is not None and own else "",
        owner=bid.owner if bid is not None and not own else "",
        per_hour=hourly_price(node.zone, kind, node.tier) if kind is not None else None,
    )
