"""Reads the dated tables, each once at its first use."""

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tpuherd.catalogue.rows import (
    Accelerator,
    BucketLocation,
    Generation,
    Price,
    Region,
    Runtime,
    Zone,
)

TABLES = Path(__file__).with_name("tables")
API_VERSIONS = ("v1", "v2", "v2alpha1")


def read_table(table: str) -> tuple[dict[str, str], list[dict[str, str]]]:
    """Return the header (date, source, note) and the rows of a table."""
    text = (TABLES / f"{table}.csv").read_text(encoding="utf-8").splitlines()
    header = dict(line[2:].split(": ", 1) for line in text if line.startswith("# "))
    names, *rows = (line.split(",") for line in text if not line.startswith("#"))
    return header, [dict(zip(names, row, strict=True)) for row in rows]


@cache
def accelerators() -> Mapping[str, Accelerator]:
    """Return every size by its type."""
    return {
        row["type"]: Accelerator(
            type=row["type"],
            generation=row["generation"],
            enum=row["enum"] or None,
            topology=row["topology"],
            cores=int(row["cores"]),
            chips=int(row["chips"]),
            chips_per_host=int(row["chips_per_host"]),
            hosts=int(row["hosts"]),
            chips_per_host_bounds=row["chips_per_host_bounds"].replace(".", ","),
            host_bounds=row["host_bounds"].replace(".", ","),
            hbm_gib=int(row["hbm_gib"]),
            bf16_tflops=int(row["bf16_tflops"]),
        )
        for row in read_table("accelerators")[1]
    }


@cache
def _sizes_by_topology() -> Mapping[tuple[str, str], Accelerator]:
    return {(one.enum, one.topology): one for one in accelerators().values() if one.enum}


def by_topology(enum: str, topology: str) -> Accelerator | None:
    """Return the size with this topology, such as V4 and 2x2x2."""
    return _sizes_by_topology().get((enum, topology))


@cache
def generations() -> Mapping[str, Generation]:
    """Return every generation by its name."""
    return {
        row["name"]: Generation(
            name=row["name"],
            prefix=row["prefix"],
            enum=row["enum"] or None,
            cores_per_chip=int(row["cores_per_chip"]),
            devices_per_chip=int(row["devices_per_chip"]),
            hbm_gib_per_chip=int(row["hbm_gib_per_chip"]),
            hbm_gb_per_s=int(row["hbm_gb_per_s"]),
            bf16_tflops_per_chip=int(row["bf16_tflops_per_chip"]),
            torus=int(row["torus"]),
            pci=row["pci"],
            subsystem=row["subsystem"],
            device=row["device"],
            machine_types={
                int(chips): machine
                for chips, machine in (pair.split("=") for pair in row["machine_types"].split())
            },
            machines={
                int(chips): (int(cpus), int(ram))
                for chips, cpus, ram in (
                    re.split("[=/]", machine) for machine in row["machines"].split()
                )
            },
            multislice=row["multislice"] == "yes",
            runtime=row["runtime"],
            gke=row["gke"],
        )
        for row in read_table("generations")[1]
    }


@cache
def zones() -> Mapping[str, Zone]:
    """Return every zone with TPUs of this API, by its name."""
    types: dict[str, set[str]] = {}
    for row in read_table("zones")[1]:
        types.setdefault(row["zone"], set()).update(
            one.type
            for one in accelerators().values()
            if one.generation == row["generation"]
            and row["sizes"] in ("all", "single" if one.hosts == 1 else "pods")
        )
    return {
        name: Zone(name=name, region=name.rpartition("-")[0], types=frozenset(types[name]))
        for name in sorted(types)
    }


@cache
def runtimes() -> Mapping[str, Runtime]:
    """Return every known image by its version."""
    return {
        row["version"]: Runtime(
            version=row["version"],
            generations=frozenset(row["generations"].split()),
            ubuntu=row["ubuntu"],
            python=row["python"],
        )
        for row in read_table("runtimes")[1]
    }


@cache
def prices() -> tuple[Price, ...]:
    return tuple(
        Price(
            generation=row["generation"],
            sizes=row["sizes"],
            region=row["region"],
            on_demand=float(row["on_demand"]),
            spot=float(row["spot"]) if row["spot"] else None,
        )
        for row in read_table("prices")[1]
    )


@cache
def egress() -> Mapping[tuple[str, str], float]:
    """Return USD per GiB read by (bucket's continent, reader's continent or "same" region)."""
    return {
        (row["bucket"], reader): float(price)
        for row in read_table("egress")[1]
        for reader, price in row.items()
        if reader != "bucket"
    }


@cache
def regions() -> Mapping[str, Region]:
    return {
        row["region"]: Region(
            name=row["region"],
            continent=row["continent"],
            zones=tuple(f"{row['region']}-{letter}" for letter in row["zones"].split()),
        )
        for row in read_table("regions")[1]
    }


@cache
def bucket_locations() -> Mapping[str, BucketLocation]:
    """Return the multi-region and dual-region locations by their upper-case names."""
    return {
        row["location"]: BucketLocation(
            name=row["location"],
            kind=row["kind"],
            continent=row["continent"],
            regions=tuple(row["regions"].split()),
        )
        for row in read_table("buckets")[1]
    }


@cache
def discovery(version: str) -> dict[str, Any]:
    """Return the API's discovery document without descriptions; KeyError for an unknown version."""
    if version not in API_VERSIONS:
        raise KeyError(version)
    text = (TABLES / f"discovery-{version}.json").read_text(encoding="utf-8")
    document: dict[str, Any] = json.loads(text)
    return document
