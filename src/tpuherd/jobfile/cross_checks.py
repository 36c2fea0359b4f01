"""Checks fields of a job against each other and the catalogue: types, zones, runtimes."""

import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

from tpuherd.catalogue import accelerators, generations, regions, runtimes, zones
from tpuherd.jobfile.nfs_folders import WORKER_0, find_nfs_folder
from tpuherd.jobfile.yaml_with_lines import FieldPath
from tpuherd.near_names import near_names
from tpuherd.targets import split_bid_name

NAME_MAX = 40
ReportMistake = Callable[[FieldPath, str], None]
Values = Mapping[str, Any]
FieldCheck = Callable[[Values, ReportMistake], None]
TYPE = re.compile(r"([a-z0-9]+?)-?(?:pod)?-([0-9]+)")
OURS = re.compile(r"HERD_.*|RUN_ID")
RUN_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
#: Tiers whose nodes are not taken away.
FIRM_TIERS = frozenset(("on-demand", "reserved"))
OWN_METADATA = ("tpuherd", "ssh-keys", "enable-oslogin")


def item_path(values: Values, name: str, place: int) -> FieldPath:
    """Return the path of one list item; a single value in a file may have no brackets."""
    return (name, place) if len(values[name]) > 1 else (name,)


def check_name(values: Values, wrong: ReportMistake) -> None:
    """The name must be short, and different from every slot's name."""
    name = values.get("name", "")
    if len(name) > NAME_MAX:
        wrong(
            ("name",),
            f"{name!r} is longer than {NAME_MAX} characters; node names are derived from it",
        )
    if re.search(r"-[0-9]+$", name):
        bare = re.sub(r"(-[0-9]+)+$", "", name)
        wrong(("name",), f"{name!r} ends in a number, as slot names do: call it {bare} or {bare}x")


def check_types(values: Values, wrong: ReportMistake) -> None:
    """The Cloud TPU API must offer each type."""
    for place, type_ in enumerate(values.get("accelerator", ())):
        known = accelerators().get(type_)
        if known is None:
            wrong(item_path(values, "accelerator", place), unknown_type_message(type_))
        elif known.enum is None:
            said = f"{type_} is only offered through Kubernetes, not by the Cloud TPU API"
            wrong(item_path(values, "accelerator", place), said)


def check_known_types(values: Values, wrong: ReportMistake) -> None:
    """Each type must exist, here or in Kubernetes."""
    for place, type_ in enumerate(values.get("accelerator", ())):
        if type_ not in accelerators():
            wrong(item_path(values, "accelerator", place), unknown_type_message(type_))


def unknown_type_message(type_: str) -> str:
    """Return the sentence for an unknown type, with similar types."""
    match = TYPE.fullmatch(type_.lower().removeprefix("tpu-"))
    if match:
        prefix = {one.name: one.prefix for one in generations().values()}.get(match[1], match[1])
        sizes = sorted(int(one.rpartition("-")[2]) for one in accelerators()
                       if one.rpartition("-")[0] == prefix)  # fmt: skip
        size = int(match[2])
        if size in sizes:
            return f"unknown type {type_}: did you mean {prefix}-{size}?"
        if sizes:
            near = sorted(sorted(sizes, key=lambda one: abs(one - size))[:2])
            return (
                f"unknown type {type_}: did you mean {' or '.join(f'{prefix}-{n}' for n in near)}?"
            )
    near_words = near_names(type_, accelerators(), most=2)
    if near_words:
        return f"unknown type {type_}: did you mean {' or '.join(near_words)}?"
    kinds = ", ".join(one.prefix for one in generations().values() if one.enum)
    return f"unknown type {type_}: types begin with {kinds}, such as v4-32"


def check_zones(values: Values, wrong: ReportMistake) -> None:
    """Each zone must offer one of the types, and one of the zones must offer each type."""
    chosen = [one for one in values.get("accelerator", ()) if one in accelerators()]
    requested = values.get("zones", ())
    for place, name in enumerate(requested):
        zone = zones().get(name)
        if zone is None:
            wrong(item_path(values, "zones", place), unknown_zone_message(name))
        elif chosen and not zone.types.intersection(chosen):
            there = [one.name for one in zones().values() if one.types.intersection(chosen)]
            said = f"{name} has no {' or '.join(chosen)}: use {', '.join(there)}"
            wrong(item_path(values, "zones", place), said)
    if requested and all(name in zones() for name in requested):
        for type_ in chosen:
            if len(chosen) > 1 and not any(type_ in zones()[name].types for name in requested):
                place = values["accelerator"].index(type_)
                said = f"none of the zones {', '.join(requested)} has {type_}"
                wrong(item_path(values, "accelerator", place), said)


def unknown_zone_message(name: str) -> str:
    """Return the sentence for a zone that does not exist or has no TPUs."""
    if any(name in one.zones for one in regions().values()):
        beside = [one for one in zones() if one.startswith(name.rpartition("-")[0])]
        return f"{name} has no TPUs{': try ' + ' or '.join(beside) if beside else ''}"
    near = near_names(name, zones(), most=2)
    return f"unknown zone {name}{': did you mean ' + ' or '.join(near) + '?' if near else ''}"


def check_runtimes(values: Values, wrong: ReportMistake) -> None:
    """Each type must have a runtime that boots on it; unknown runtimes may be new."""
    requested = values.get("runtime", ())
    kinds = {
        type_: accelerators()[type_].generation
        for type_ in values.get("accelerator", ())
        if type_ in accelerators()
    }
    for place, version in enumerate(requested):
        if version not in runtimes():
            near = closest_runtime(version)
            if near:
                said = f"unknown runtime {version}: did you mean {near}?"
                wrong(item_path(values, "runtime", place), said)
    if not requested or any(version not in runtimes() for version in requested):
        return
    for type_, kind in kinds.items():
        if not any(kind in runtimes()[version].generations for version in requested):
            fit = [one.version for one in runtimes().values() if kind in one.generations]
            usual = generations()[kind].runtime
            said = f"{' and '.join(requested)} cannot run on {type_}: use {usual}"
            others = [one for one in fit if one != usual][:2]
            wrong(("runtime",), said + (f", {', '.join(others)}" if others else ""))


def closest_runtime(version: str) -> str:
    """Return a known runtime that differs by letters and not only by numbers, or ""."""
    near = get_close_matches(version, runtimes(), n=1, cutoff=0.85)
    if near and re.sub(r"[0-9]", "", near[0]) != re.sub(r"[0-9]", "", version):
        return near[0]
    return ""


def check_slices(values: Values, wrong: ReportMistake) -> None:
    """Several slices need a generation whose nodes can run one program."""
    if values.get("slices", 1) < 2:
        return
    for place, type_ in enumerate(values.get("accelerator", ())):
        known = accelerators().get(type_)
        if known is not None and not generations()[known.generation].multislice:
            said = f"{type_} can't be one of several slices, only v4 and later can: set slices: 1"
            wrong(item_path(values, "accelerator", place), f"{said}, or copies for separate nodes")


def check_exclusive_fields(values: Values, wrong: ReportMistake) -> None:
    """Report fields that contradict or require each other."""
    if values.get("copies", 1) > 1 and values.get("slices", 1) > 1:
        wrong(
            ("slices",),
            "copies and slices can't be combined: nodes run either separately or as one",
        )
    if values.get("workdir") and values.get("repo"):
        wrong(("repo",), "workdir and repo can't be combined: set one of them")
    if values.get("slices", 1) > 1 and values.get("request") == "direct":
        wrong(("request",), "slices need a queued resource, which requests all of them at once")
    if values.get("node_name") and values.get("request") == "direct":
        wrong(("node_name",), "requires request: queued, by whose name herd knows its nodes")
    if values.get("reservation") and "reserved" not in values.get("tier", ()):
        wrong(("reservation",), "requires tier: reserved")


def check_node_name(values: Values, wrong: ReportMistake) -> None:
    """An exact name must not look like one that herd gives."""
    name = values.get("node_name", "")
    if split_bid_name(name) or split_bid_name(f"{name}-0"):
        wrong(("node_name",), f"{name} is a name that herd itself gives: choose another")


def check_requirements(values: Values, wrong: ReportMistake) -> None:
    """The requirements must be among the shipped files."""
    if values.get("requirements") and not values.get("workdir") and not values.get("repo"):
        wrong(("requirements",), "is a file of the shipped code: set workdir, such as workdir: .")


def check_cluster(values: Values, wrong: ReportMistake) -> None:
    """A cluster lives as long as the command."""
    if values.get("cluster") and not values.get("run"):
        wrong(("cluster",), "is started for a command: set run, such as run: python3 train.py")


def check_image(values: Values, wrong: ReportMistake) -> None:
    """A container runs the command, and brings its Python and packages."""
    if not values.get("image"):
        return
    if not values.get("run"):
        wrong(("image",), "is what a command runs in: set run, such as run: python3 train.py")
    if values.get("cluster"):
        said = "cluster and image can't be combined: have the command start Ray in the container"
        wrong(("cluster",), said)
    for name in ("python", "requirements"):
        if values.get(name):
            wrong((name,), f"{name} and image can't be combined: the image has its own packages")


def check_checkpoint_folder(values: Values, wrong: ReportMistake) -> None:
    """Checkpoints must outlive the node."""
    folders, path = values.get("nfs", {}), values.get("checkpoint", "")
    folder = find_nfs_folder(folders, path)
    if folder and folders[folder] == WORKER_0:
        said = f"{folder} is on worker 0's disk, which is deleted with the node: use a bucket"
        wrong(("checkpoint",), f"{said}, gs://BUCKET/PATH, or a server that stays")


def check_variables(values: Values, wrong: ReportMistake) -> None:
    """No variable may be set by herd itself or be set twice."""
    names = {one.name for one in values.get("secrets", ())}
    for field, words in (("env", values.get("env", {})), ("secrets", names)):
        for name in words:
            if OURS.fullmatch(name) and (field, name) != ("env", "RUN_ID"):
                wrong((field, name), "is set by herd")
    run_id = values.get("env", {}).get("RUN_ID")
    if run_id is not None and (values.get("copies", 1) > 1 or values.get("sweep")):
        wrong(("env", "RUN_ID"), "is set by herd, as each copy or trial is a run of its own")
    elif run_id is not None and not RUN_ID.fullmatch(run_id):
        wrong(("env", "RUN_ID"), f"{run_id!r} can't be the name of a folder: use a-z, 0-9, _ and -")
    for name in names.intersection(values.get("env", {})):
        wrong(("secrets", name), "is also in env")
    for name in OWN_METADATA:
        if name in values.get("metadata", {}):
            wrong(("metadata", name), "is set by herd")


def check_deadline(values: Values, wrong: ReportMistake) -> None:
    """A deadline needs nodes that are not taken away, and one command whose work is known."""
    if not values.get("deadline"):
        return
    if not FIRM_TIERS.intersection(values.get("tier", ())):
        said = "needs nodes that are not taken away: write tier: [spot, on-demand]"
        wrong(("deadline",), f"{said}, and max_cost if there is a limit")
    if values.get("sweep"):
        wrong(("deadline",), "can't be combined with sweep: its trials have no common end")
    if values.get("exact") or values.get("node_name"):
        which = "node_name" if values.get("node_name") else "exact"
        wrong(("deadline",), f"can't be combined with {which}: it needs a second node to change to")


def check_disks(values: Values, wrong: ReportMistake) -> None:
    """Nodes must be in the zone of their data disks."""
    requested = values.get("zones", ())
    for place, disk in enumerate(values.get("data_disks", ())):
        zone = disk.split("/")[3]
        if requested != (zone,):
            wrong(
                item_path(values, "data_disks", place), f"exists only in {zone}: set zones: {zone}"
            )


CHECKS: tuple[FieldCheck, ...] = (
    check_name,
    check_types,
    check_zones,
    check_runtimes,
    check_slices,
    check_exclusive_fields,
    check_node_name,
    check_requirements,
    check_cluster,
    check_image,
    check_checkpoint_folder,
    check_variables,
    check_deadline,
    check_disks,
)

#: Those of a job for another engine: only the Cloud TPU API has these zones and runtimes.
CHECKS_ELSEWHERE: tuple[FieldCheck, ...] = (
    check_known_types,
    *(one for one in CHECKS if one not in (check_types, check_zones, check_runtimes)),
)
