"""What the fields of a job say together: types, zones and runtimes that go with each other."""

import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

from tpuherd.catalogue import accelerators, generations, regions, runtimes, zones
from tpuherd.jobfile.yaml_with_lines import FieldPath
from tpuherd.near_names import near_names

NAME_MAX = 40
ReportMistake = Callable[[FieldPath, str], None]
Values = Mapping[str, Any]
TYPE = re.compile(r"([a-z0-9]+?)-?(?:pod)?-([0-9]+)")
OURS = re.compile(r"HERD_.*|RUN_ID")
OWN_METADATA = ("tpuherd", "ssh-keys", "enable-oslogin")


def item_path(values: Values, name: str, place: int) -> FieldPath:
    """Where one of several stands; in a file, one may stand without brackets."""
    return (name, place) if len(values[name]) > 1 else (name,)


def check_name(values: Values, wrong: ReportMistake) -> None:
    """Short enough, and nothing that could be a slot's."""
    name = values.get("name", "")
    if len(name) > NAME_MAX:
        wrong(("name",), f"{name!r} is longer than {NAME_MAX}: names of nodes are made of it")
    if re.search(r"-[0-9]+$", name):
        bare = re.sub(r"(-[0-9]+)+$", "", name)
        wrong(("name",), f"{name!r} ends in a number, as slots do: call it {bare}, or {bare}x")


def check_types(values: Values, wrong: ReportMistake) -> None:
    """The Cloud TPU API has them."""
    for place, type_ in enumerate(values.get("accelerator", ())):
        known = accelerators().get(type_)
        if known is None:
            wrong(item_path(values, "accelerator", place), unknown_type_message(type_))
        elif known.enum is None:
            said = f"{type_} is offered by Kubernetes only, not by the Cloud TPU API"
            wrong(item_path(values, "accelerator", place), said)


def unknown_type_message(type_: str) -> str:
    """The sentence for a type that there is none of, with what comes near."""
    match = TYPE.fullmatch(type_.lower().removeprefix("tpu-"))
    if match:
        prefix = {one.name: one.prefix for one in generations().values()}.get(match[1], match[1])
        sizes = sorted(int(one.rpartition("-")[2]) for one in accelerators()
                       if one.rpartition("-")[0] == prefix)  # fmt: skip
        size = int(match[2])
        if size in sizes:
            return f"there is no {type_}: did you mean {prefix}-{size}?"
        if sizes:
            near = sorted(sorted(sizes, key=lambda one: abs(one - size))[:2])
            return (
                f"there is no {type_}: did you mean {' or '.join(f'{prefix}-{n}' for n in near)}?"
            )
    near_words = near_names(type_, accelerators(), most=2)
    if near_words:
        return f"there is no {type_}: did you mean {' or '.join(near_words)}?"
    kinds = ", ".join(one.prefix for one in generations().values() if one.enum)
    return f"there is no {type_}: types begin with {kinds}, such as v4-32"


def check_zones(values: Values, wrong: ReportMistake) -> None:
    """And have one of the types; and each type is in one of them."""
    chosen = [one for one in values.get("accelerator", ()) if one in accelerators()]
    wished = values.get("zones", ())
    for place, name in enumerate(wished):
        zone = zones().get(name)
        if zone is None:
            wrong(item_path(values, "zones", place), unknown_zone_message(name))
        elif chosen and not zone.types.intersection(chosen):
            there = [one.name for one in zones().values() if one.types.intersection(chosen)]
            said = f"{name} has no {' or '.join(chosen)}: it is in {', '.join(there)}"
            wrong(item_path(values, "zones", place), said)
    if wished and all(name in zones() for name in wished):
        for type_ in chosen:
            if len(chosen) > 1 and not any(type_ in zones()[name].types for name in wished):
                place = values["accelerator"].index(type_)
                said = f"{type_} is in none of the zones {', '.join(wished)}"
                wrong(item_path(values, "accelerator", place), said)


def unknown_zone_message(name: str) -> str:
    """The sentence for a zone without TPUs, or that is none."""
    if any(name in one.zones for one in regions().values()):
        beside = [one for one in zones() if one.startswith(name.rpartition("-")[0])]
        return f"{name} has no TPUs{': try ' + ' or '.join(beside) if beside else ''}"
    near = near_names(name, zones(), most=2)
    return f"there is no zone {name}{': did you mean ' + ' or '.join(near) + '?' if near else ''}"


def check_runtimes(values: Values, wrong: ReportMistake) -> None:
    """Each type has one that it can boot; one we have never heard of may be new."""
    wished = values.get("runtime", ())
    kinds = {
        type_: accelerators()[type_].generation
        for type_ in values.get("accelerator", ())
        if type_ in accelerators()
    }
    for place, version in enumerate(wished):
        if version not in runtimes():
            near = closest_runtime(version)
            if near:
                said = f"there is no runtime {version}: did you mean {near}?"
                wrong(item_path(values, "runtime", place), said)
    if not wished or any(version not in runtimes() for version in wished):
        return
    for type_, kind in kinds.items():
        if not any(kind in runtimes()[version].generations for version in wished):
            fit = [one.version for one in runtimes().values() if kind in one.generations]
            usual = generations()[kind].runtime
            said = f"{' and '.join(wished)} cannot run on {type_}: take {usual}"
            others = [one for one in fit if one != usual][:2]
            wrong(("runtime",), said + (f", {', '.join(others)}" if others else ""))


def closest_runtime(version: str) -> str:
    """A known one from which it differs by letters, not by numbers only."""
    near = get_close_matches(version, runtimes(), n=1, cutoff=0.85)
    if near and re.sub(r"[0-9]", "", near[0]) != re.sub(r"[0-9]", "", version):
        return near[0]
    return ""


def check_exclusive_fields(values: Values, wrong: ReportMistake) -> None:
    """Fields that say the same thing differently, or need each other."""
    if values.get("copies", 1) > 1 and values.get("slices", 1) > 1:
        wrong(
            ("slices",), "copies and slices don't go together: nodes run by themselves, or as one"
        )
    if values.get("workdir") and values.get("repo"):
        wrong(("repo",), "workdir and repo don't go together: code comes from one of them")
    if values.get("slices", 1) > 1 and values.get("request") == "direct":
        wrong(("request",), "slices are asked for together, by a queued resource")
    if values.get("reservation") and "reserved" not in values.get("tier", ()):
        wrong(("reservation",), "goes with tier: reserved")


def check_variables(values: Values, wrong: ReportMistake) -> None:
    """None that herd sets itself, none twice."""
    names = {one.name for one in values.get("secrets", ())}
    for field, words in (("env", values.get("env", {})), ("secrets", names)):
        for name in words:
            if OURS.fullmatch(name):
                wrong((field, name), "is set by herd itself")
    for name in names.intersection(values.get("env", {})):
        wrong(("secrets", name), "stands in env too")
    for name in OWN_METADATA:
        if name in values.get("metadata", {}):
            wrong(("metadata", name), "is set by herd itself")


def check_disks(values: Values, wrong: ReportMistake) -> None:
    """A disk is in a zone, and its node must be there."""
    wished = values.get("zones", ())
    for place, disk in enumerate(values.get("data_disks", ())):
        zone = disk.split("/")[3]
        if wished != (zone,):
            wrong(item_path(values, "data_disks", place), f"is in {zone} only: write zones: {zone}")


CHECKS: tuple[Callable[[Values, ReportMistake], None], ...] = (
    check_name,
    check_types,
    check_zones,
    check_runtimes,
    check_exclusive_fields,
    check_variables,
    check_disks,
)
