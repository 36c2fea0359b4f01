"""The texts of `herd nfs`: what is mounted where, and what to know about it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tpuherd.targets import fold_names
from tpuherd.views.format_text import NOTHING, format_table

HEAD = ("HOSTS", "FOLDER", "FROM", "STATE", "FREE", "OF", "WRITE")
WELL = ("mounted", "shared")
Rows = Mapping[str, Mapping[str, Any]]  #: the answers of agents, by host


def status_table(answers: Rows, width: int | None = None) -> str:
    """Return the folders of all hosts, equal ones in one line."""
    hosts: dict[tuple[str, ...], list[str]] = {}
    for host, answer in answers.items():
        for cells in [*map(export_cells, answer["exports"]), *map(folder_cells, answer["folders"])]:
            hosts.setdefault(cells, []).append(host)
    rows = [(fold_names(names), *cells) for cells, names in hosts.items()]
    return format_table([HEAD, *rows], width=width) if rows else ""


def folder_cells(one: Mapping[str, Any]) -> tuple[str, ...]:
    return (one["folder"], one["source"], one["state"], *size_cells(one))


def export_cells(one: Mapping[str, Any]) -> tuple[str, ...]:
    return (one["folder"], "own disk", f"{one['state']} to {len(one['clients'])}", *size_cells(one))


def size_cells(one: Mapping[str, Any]) -> tuple[str, str, str]:
    if one["state"] not in WELL:
        return (NOTHING, NOTHING, NOTHING)
    return (
        size_text(one["free"]), size_text(one["total"]), "yes" if one["writable"] else "no",
    )  # fmt: skip


def size_text(many: int) -> str:
    """1.5 TB or 80 GB"""
    return f"{many / 1e12:.1f} TB" if many >= 1e12 else f"{many / 1e9:.0f} GB"


def is_well(answers: Rows) -> bool:
    """Whether everything that is mounted or should be answers."""
    rows = [row for one in answers.values() for row in [*one["folders"], *one["exports"]]]
    return all(row["state"] in WELL for row in rows)


def own_disk_lines(folders: Mapping[str, str], tiers: Iterable[str]) -> list[str]:
    """What to know about a job's folders that are on its own nodes."""
    own = sorted(folder for folder, server in folders.items() if ":" not in server)
    if not own:
        return []
    verb = "is" if len(own) == 1 else "are"
    return [f"{', '.join(own)} {verb} on worker 0's disk and {fate_words(tiers)}"]


def fate_words(tiers: Iterable[str]) -> str:
    """deleted with the node, which may be taken at any time"""
    taken = any(tier in ("spot", "preemptible") for tier in tiers)
    when = ", which Google may take at any time" if taken else ""
    return f"deleted with the node{when}: keep nothing there that you can't lose"


def login_lines(answers: Rows, folder: str, server: str, own_uid: int | None) -> list[str]:
    """Say where the login has another uid, and where it may not write. `own_uid`: of the login on
    the server, if that is a host of ours.
    """
    lines = []
    uids: dict[int, list[str]] = {}
    for host, one in answers.items():
        uids.setdefault(int(one["uid"]), []).append(host)
    if own_uid is not None:
        for uid, hosts in uids.items():
            if uid != own_uid:
                lines.append(
                    f"{fold_names(hosts)}: your login has uid {uid} there and {own_uid} on"
                    f" {server}: you can read and write all files of {folder}, but they look like"
                    " another user's"
                )
    elif len(uids) > 1:
        each = "; ".join(f"{uid} on {fold_names(hosts)}" for uid, hosts in sorted(uids.items()))
        lines.append(
            f"your login's uid differs: {each}. What one host writes is not yours on the other"
        )
    closed = [host for host, one in answers.items() if not one["writable"]]
    if closed:
        lines.append(
            f"{fold_names(closed)}: your login can't write in {folder}: its owner on the server"
            f" is another; where root may, `sudo chown $(id -u) {folder}` once on one host"
        )
    return lines


def zone_lines(zones: Sequence[str]) -> list[str]:
    """Say that traffic leaves a zone."""
    found = sorted(set(zones))
    if len(found) < 2:
        return []
    return [f"these hosts are in {', '.join(found)}: traffic between zones is slower and billed"]
