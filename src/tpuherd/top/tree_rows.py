"""What `herd top` shows as a tree: jobs, their slots, hosts and chips; pure.

It is built from the rows of jobs/live_view.py. A part of the tree that is closed has no rows.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tpuherd.views.format_text import format_bytes, format_goodput
from tpuherd.views.phase_signs import phase_sign, worst_sign

Json = Mapping[str, Any]
Key = tuple[str, ...]  #: the names from the job down


@dataclass(frozen=True, kw_only=True, slots=True)
class TreeRow:
    """One line of the tree; None: not known."""

    key: Key
    kind: str  #: job, slot, host or chip
    name: str
    phase: str = ""
    sign: str = " "
    tint: str = ""
    where: str = ""
    step: int | None = None
    duty: float | None = None  #: percent
    memory: tuple[float, float] | None = None  #: bytes of HBM in use, and there
    processor: float | None = None  #: percent
    goodput: str = ""
    per_hour: float | None = None
    why: str = ""
    opens: bool = False  #: it has rows below it
    is_open: bool = False

    @property
    def target(self) -> str:
        """What commands call it."""
        job, *rest = self.key
        slot = rest[0] if rest else job
        return f"{slot}/w{rest[1]}" if len(rest) > 1 else slot


def build_rows(overview: Json, opened: Collection[Key], words: str = "") -> list[TreeRow]:
    """Return the rows that are to be seen: the most urgent job first.

    `words` filters jobs and slots; a leading ! keeps those that do not match.
    """
    nodes = {node["node"]: node for node in overview["nodes"]}
    jobs = sorted(overview["jobs"], key=lambda job: (job_urgency(job), job["job"]))
    return [row for job in jobs for row in job_tree(job, nodes, opened, words)]


def job_urgency(job: Json) -> int:
    return worst_sign(job["phases"]).urgency


def job_tree(
    job: Json, nodes: Mapping[str, Json], opened: Collection[Key], words: str
) -> Iterator[TreeRow]:
    slots = [slot for slot in job["slot_rows"] if matches(words, job, slot)]
    if not slots and not matches(words, job):
        return
    key = (job["job"],)
    hosts = [host for slot in slots for host in hosts_of(slot, nodes)]
    sign = worst_sign(job["phases"])
    yield TreeRow(
        key=key,
        kind="job",
        name=job["job"],
        phase=job["phase"],
        sign=sign.sign,
        tint=sign.tint,
        where=" ".join((*job["type"], *job["zones"])),
        step=max((slot["step"] for slot in slots if slot["step"] is not None), default=None),
        goodput=format_goodput(job),
        per_hour=job["per_hour"],
        why=most_urgent_why(slots),
        opens=bool(slots),
        is_open=key in opened,
        **chip_totals(hosts),
    )
    if key in opened:
        for slot in slots:
            yield from slot_tree(key, slot, hosts_of(slot, nodes), opened)


def matches(words: str, job: Json, slot: Json | None = None) -> bool:
    """Whether a job or slot is to be seen."""
    wanted = words.removeprefix("!").strip().lower()
    if not wanted:
        return True
    seen = [job["job"], *job["type"], *job["zones"]]
    if slot is None:
        seen.append(job["phase"])
    else:
        seen += [slot["slot"], slot["phase"], slot["why"]]
    return any(wanted in str(text).lower() for text in seen) != words.startswith("!")


def most_urgent_why(slots: Sequence[Json]) -> str:
    worst = min(slots, key=lambda slot: phase_sign(slot["phase"]).urgency, default=None)
    return str(worst["why"]) if worst is not None else ""


def hosts_of(slot: Json, nodes: Mapping[str, Json]) -> Sequence[Json]:
    node = nodes.get(slot["node"] or "")
    return node["hosts"] if node is not None else ()


def slot_tree(
    above: Key, slot: Json, hosts: Sequence[Json], opened: Collection[Key]
) -> Iterator[TreeRow]:
    key = (*above, slot["slot"])
    sign = phase_sign(slot["phase"])
    yield TreeRow(
        key=key,
        kind="slot",
        name=slot["slot"],
        phase=slot["phase"],
        sign=sign.sign,
        tint=sign.tint,
        where=" ".join(word for word in (slot["type"], slot["zone"], slot["tier"]) if word),
        step=slot["step"],
        goodput=format_goodput(slot),
        per_hour=slot["per_hour"],
        why=slot["why"],
        opens=bool(hosts),
        is_open=key in opened,
        **chip_totals(hosts),
    )
    if key in opened:
        for host in hosts:
            yield from host_tree(key, host, opened)


def host_tree(above: Key, host: Json, opened: Collection[Key]) -> Iterator[TreeRow]:
    key = (*above, str(host["worker"]))
    heard = host["at"] is not None
    yield TreeRow(
        key=key,
        kind="host",
        name=f"w{host['worker']}",
        phase="" if heard else "no sample",
        why="; ".join(text for text in (host_text(host), host["why"]) if text),
        opens=bool(host["duty"]),
        is_open=key in opened,
        processor=host["cpu"],
        **chip_totals([host]),
    )
    if key not in opened:
        return
    for chip, duty in enumerate(host["duty"]):
        yield TreeRow(
            key=(*key, str(chip)),
            kind="chip",
            name=f"chip {chip}",
            duty=duty,
            memory=memory_pair(host["hbm_used"][chip], host["hbm_total"][chip]),
        )


def host_text(host: Json) -> str:
    """What the machine itself does, in words."""
    parts = []
    if (memory := memory_pair(host["ram_used"], host["ram_total"])) is not None:
        parts.append(f"RAM {format_bytes(int(memory[0]))} of {format_bytes(int(memory[1]))}")
    if host["disk_free"] is not None:
        parts.append(f"disk {format_bytes(int(host['disk_free']))} free")
    if host["net_in"] is not None and host["net_out"] is not None:
        rates = (format_bytes(int(host[name])) for name in ("net_in", "net_out"))
        parts.append("network {}/s in, {}/s out".format(*rates))
    return ", ".join(parts)


def memory_pair(used: float | None, total: float | None) -> tuple[float, float] | None:
    return None if used is None or not total else (used, total)


def chip_totals(hosts: Iterable[Json]) -> dict[str, Any]:
    """The mean duty and the sums of memory of all chips that are known."""
    duties: list[float] = []
    used = total = 0.0
    for host in hosts:
        duties += [one for one in host["duty"] if one is not None]
        for one in map(memory_pair, host["hbm_used"], host["hbm_total"]):
            used, total = (used + one[0], total + one[1]) if one else (used, total)
    return {
        "duty": sum(duties) / len(duties) if duties else None,
        "memory": memory_pair(used, total),
    }
