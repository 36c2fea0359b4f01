"""What `herd types` shows of TPU types, read from the catalogue."""

from collections.abc import Mapping, Sequence
from typing import Any

from tpuherd.catalogue import Accelerator, accelerators, generations, runtimes, zones
from tpuherd.catalogue.reader import read_table
from tpuherd.errors import NotFound
from tpuherd.jobfile.cross_checks import unknown_type_message
from tpuherd.jobfile.grants import hourly_price
from tpuherd.views.format_text import NOTHING, format_table

Json = dict[str, Any]
SUMMARY_HEAD = ("GENERATION", "TYPES", "HBM", "BF16", "HOST", "SLICES", "IMAGE", "PYTHON",
                "SPOT")  # fmt: skip
SIZES_HEAD = ("TYPE", "CHIPS", "HBM", "HOSTS", "TOPOLOGY", "ZONES", "ON-DEMAND", "SPOT")
ZONES_HEAD = ("ZONE", "ON-DEMAND", "SPOT")
SLICES_FROM = "several nodes can run one program (`slices: 2`)"
NO_SLICES = "each node runs by itself: Google offers multislice from v4 on"


def type_rows(name: str = "") -> list[Json]:
    """A row for each type; of one type, of a generation, or all. NotFound if there is none."""
    word = name.lower()
    prefixes = {one.name: one.prefix for one in generations().values()}
    found = [
        one
        for one in accelerators().values()
        if word in ("", one.type, one.generation, prefixes[one.generation])
    ]
    if not found:
        raise NotFound(unknown_type_message(name))
    rows = [type_row(one) for one in found if one.enum is not None]
    if not rows:
        raise NotFound(f"{name} is only offered through Kubernetes, not by the Cloud TPU API")
    return rows


def type_row(one: Accelerator) -> Json:
    kind = generations()[one.generation]
    cpus, ram = kind.machines.get(one.chips_per_host, (None, None))
    images = [
        {
            "version": image.version,
            "ubuntu": image.ubuntu,
            "python": image.python,
            "default": image.version == kind.runtime,
        }
        for image in runtimes().values()
        if one.generation in image.generations
    ]
    return {
        "type": one.type,
        "generation": one.generation,
        "topology": one.topology,
        "chips": one.chips,
        "cores": one.cores,
        "hbm_gib": one.hbm_gib,
        "bf16_tflops": one.bf16_tflops,
        "hosts": one.hosts,
        "chips_per_host": one.chips_per_host,
        "machine": kind.machine_types.get(one.chips_per_host, ""),
        "host_cpus": cpus,
        "host_ram_gb": ram,
        "multislice": kind.multislice,
        "images": sorted(images, key=lambda image: not image["default"]),
        "zones": [
            {
                "zone": zone.name,
                "on_demand": hourly_price(zone.name, one, "on-demand"),
                "spot": hourly_price(zone.name, one, "spot"),
            }
            for zone in zones().values()
            if one.type in zone.types
        ],
    }


def types_text(
    name: str, rows: Sequence[Mapping[str, Any]], *, colour: bool = False, width: int | None = None
) -> str:
    """`herd types`: generations, the sizes of one, or all of one type."""
    dates = f"Prices in dollars per hour and node, as listed on {price_date()}."
    if len(rows) == 1:
        text = type_text(rows[0], colour=colour, width=width)
    elif name:
        text = sizes_text(rows, colour=colour, width=width)
    else:
        text = generations_text(rows, colour=colour, width=width)
        dates = f"{dates} `herd types v4` shows the sizes of a generation, `herd types v4-8` one."
    return f"{text}\n\n{dates}"


def price_date() -> str:
    return read_table("prices")[0]["date"]


def generations_text(rows: Sequence[Mapping[str, Any]], *, colour: bool, width: int | None) -> str:
    """A row for each generation."""
    cells = []
    for name, kind in generations().items():
        each = [row for row in rows if row["generation"] == name]
        if not each:
            continue
        first, last = each[0], each[-1]
        image = first["images"][0]
        cells.append((
            name,
            f"{first['type']} … {last['type'].rpartition('-')[2]}",
            f"{kind.hbm_gib_per_chip} GiB/chip",
            f"{kind.bf16_tflops_per_chip} TFLOP/s",
            host_text(each[min(1, len(each) - 1)]),
            "yes" if kind.multislice else "no",
            image["version"],
            image["python"],
            f"{first['type']} {least_price(first, 'spot')}",
        ))  # fmt: skip
    return format_table([SUMMARY_HEAD, *cells], colour=colour, width=width)


def host_text(row: Mapping[str, Any]) -> str:
    """4 chips, 240 vCPUs, 400 GB of RAM"""
    chips = f"{row['chips_per_host']} chip{'s' if row['chips_per_host'] > 1 else ''}"
    if row["host_cpus"] is None:
        return chips
    return f"{chips}, {row['host_cpus']} vCPUs, {row['host_ram_gb']} GB of RAM"


def sizes_text(rows: Sequence[Mapping[str, Any]], *, colour: bool, width: int | None) -> str:
    """A row for each size of a generation."""
    cells = [
        (
            row["type"],
            str(row["chips"]),
            f"{row['hbm_gib']:,} GiB",
            str(row["hosts"]),
            row["topology"],
            str(len(row["zones"])),
            least_price(row, "on_demand"),
            least_price(row, "spot"),
        )
        for row in rows
    ]
    right = (1, 2, 3, 5, 6, 7)
    table = format_table([SIZES_HEAD, *cells], right=right, colour=colour, width=width)
    slices = SLICES_FROM if rows[0]["multislice"] else NO_SLICES
    last = rows[-1]
    return f"{table}\n\nEach host of a {last['type']} has {host_text(last)}; {slices}."


def least_price(row: Mapping[str, Any], tier: str) -> str:
    """The lowest known price of all zones."""
    known = [zone[tier] for zone in row["zones"] if zone[tier] is not None]
    if not known:
        return NOTHING
    more = len({zone[tier] for zone in row["zones"]}) > 1
    return f"{'from ' if more else ''}{price_text(min(known))}"


def price_text(dollars: float | None) -> str:
    return NOTHING if dollars is None else f"${dollars:,.2f}"


def type_text(row: Mapping[str, Any], *, colour: bool, width: int | None) -> str:
    """Everything about one type."""
    many = "s" if row["hosts"] > 1 else ""
    machine = f" ({row['machine']})" if row["machine"] else ""
    each = "each with " if many else "with "
    chips = f"{row['chips']} chip{'s' * (row['chips'] > 1)}"
    head = (
        f"{row['type']}: {chips}, {row['hbm_gib']:,} GiB of HBM,"
        f" {row['bf16_tflops']:,} TFLOP/s in bf16, topology {row['topology']}"
    )
    lines = [
        head,
        f"{row['hosts']} host{many}{machine}, {each}{host_text(row)}",
        SLICES_FROM if row["multislice"] else NO_SLICES,
    ]
    images = [("IMAGE", "UBUNTU", "PYTHON", "")]
    images += [
        (one["version"], one["ubuntu"], one["python"], "default" if one["default"] else "")
        for one in row["images"]
    ]
    places = [ZONES_HEAD]
    places += [
        (one["zone"], price_text(one["on_demand"]), price_text(one["spot"])) for one in row["zones"]
    ]
    tables = [
        format_table(places, right=(1, 2), colour=colour, width=width),
        format_table(images, colour=colour, width=width),
    ]
    return "\n\n".join(["\n".join(lines), *tables])
