"""The text of `herd ls`, `herd status` and `herd why`, from the values of job_rows."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tpuherd.accounting.goodput import MEANINGS, STARTUP, GoodputState
from tpuherd.targets import fold_names
from tpuherd.views.finding_lines import cause_lines
from tpuherd.views.format_text import (
    NOTHING,
    count_slices,
    format_goodput,
    format_money,
    format_number,
    format_share,
    format_span,
    format_table,
)
from tpuherd.views.job_rows import has_many_users

Json = Mapping[str, Any]
LINES = 6  #: of a host's last output
ATTEMPTS = 8  #: latest attempts shown
LOSSES = 5
BAR = 24
LEAST_S = 0.05  #: shorter times are not shown
BEFORE_RESTORE = ("python_s", "import_s", "meet_s")  #: what `start` consists of
JOBS = ("JOB", "PHASE", "READY", "WHERE", "ATTEMPT", "AGE", "GOODPUT", "COST", "PER HOUR")
SLOTS = ("SLOT", "PHASE", "WHERE", "ATTEMPT", "STEP", "SAVED", "GOODPUT", "COST", "PER HOUR")


def jobs_text(rows: Sequence[Json], *, colour: bool = False, width: int | None = None) -> str:
    """`herd ls`"""
    if not rows:
        return "No jobs. Start one with `herd run`."
    cells: list[tuple[str, ...]] = [
        (
            row["job"],
            row["phase"] or NOTHING,
            f"{row['ready']}/{row['slots']}",
            show_zones(row["zones"]) + (f", {row['slices']} slices" if row["slices"] > 1 else ""),
            format_number(row["attempt"] or None),
            format_span(row["age_s"]),
            format_goodput(row),
            format_money(row["cost"], known=row["price_known"]),
            format_money(row["per_hour"], known=row["price_known"]),
        )
        for row in rows
    ]
    cells, right = [JOBS, *cells], [2, 4, 5, 6, 7, 8]
    if has_many_users(rows):
        users = ["USER", *(row["user"] or NOTHING for row in rows)]
        cells = [(one[0], user, *one[1:]) for one, user in zip(cells, users, strict=True)]
        right = [at + 1 for at in right]
    table = format_table(cells, right=right, colour=colour, width=width)
    return "\n".join([table, *map(idle_line, (row for row in rows if row["idle"]))])


def idle_line(row: Json) -> str:
    """Return the warning for a job whose nodes are idle."""
    nodes = "its node" if row["ready"] == 1 else f"{row['idle']} of its nodes"
    price = format_money(row["per_hour"], known=row["price_known"])
    return (
        f"{row['job']}: nothing has run on {nodes} for long, {price} an hour: herd why {row['job']}"
    )


def show_zones(zones: Sequence[str]) -> str:
    return zones[0] if len(zones) == 1 else f"{len(zones)} zones" if zones else NOTHING


def job_text(page: Json, *, colour: bool = False, width: int | None = None) -> str:
    """`herd status`: all of a job, each slot in full if there are few."""
    parts = [job_heading(page), format_table([SLOTS, *map(slot_cells, page["slot_details"])],
        right=range(3, 9),
                                  colour=colour, width=width)]  # fmt: skip
    parts += ["\n".join(slot_lines(slot, colour=colour)) for slot in page["slot_details"]]
    return "\n\n".join(part for part in parts if part)


def job_heading(page: Json) -> str:
    """The line with what was submitted and its cost."""
    document = page["document"]
    what = " or ".join(as_list(document.get("accelerator"))) or ", ".join(page["type"])
    tier = " or ".join(as_list(document.get("tier")))
    whose = page["user"] or page["who"]
    by = f" by {whose}" if whose else ""
    head = [
        f"{page['job']}: {count_slices(page['slices'])}{what} {tier}".rstrip(),
        f"{page['ready']} of {page['slots']} ready",
        f"submitted {format_span(page['age_s'])} ago{by}",
        f"{format_money(page['cost'], known=page['price_known'])} so far",
        f"{format_money(page['per_hour'], known=page['price_known'])} per hour now",
    ]
    lines = [", ".join(head)]
    if document.get("run"):
        run = document["run"]
        lines.append(f"  {run if isinstance(run, str) else ' '.join(run)}")
    return "\n".join(lines)


def as_list(value: Any) -> list[str]:
    return [] if value is None else [value] if isinstance(value, str) else list(value)


def slot_cells(slot: Json) -> tuple[str, ...]:
    return (
        slot["slot"],
        slot["phase"],
        slot["zone"] or NOTHING,
        format_number(slot["attempt"] or None),
        format_number(slot["step"]),
        format_number(slot["saved"]),
        format_goodput(slot),
        format_money(slot["cost"], known=slot["price_known"]),
        format_money(slot["per_hour"], known=slot["price_known"]),
    )


def slot_lines(slot: Json, *, colour: bool) -> Iterator[str]:
    yield f"{slot['slot']}: {slot['why'] or slot['phase']}"
    yield from fact_lines(slot)
    if slot["seconds"]:
        yield "  where the time went"
        rows = [("", "", "", ""), *time_cells(slot["seconds"])]
        for line in format_table(rows, right=(1, 2), colour=colour).splitlines()[1:]:
            yield f"    {line}"


def fact_lines(slot: Json) -> Iterator[str]:
    """Yield a slot's goodput if it is not known, checkpoints, bids, attempts and losses."""
    if slot["goodput_why"]:
        yield f"  goodput {slot['goodput_why']}"
    kept = {"best": slot["best_step"], "milestone": slot["milestone"]}
    if marks := [
        f"{name} {format_number(step)}" for name, step in kept.items() if step is not None
    ]:
        yield f"  checkpoints: newest {format_number(slot['saved'])}, {', '.join(marks)}"
    if slot["bids"]:
        yield "  bids"
        for bid in slot["bids"]:
            price = "" if bid["per_hour"] is None else f", {format_money(bid['per_hour'])} per hour"
            why = f" ({bid['message']})" if bid["message"] else ""
            yield (
                f"    {bid['bid']}  {bid['zone']}  {bid['type']} {bid['tier']}"
                f"  {bid['stage']} for {format_span(bid['duration_s'])}{price}{why}"
            )
    if slot["attempts"]:
        yield "  attempts"
        for attempt in slot["attempts"][-ATTEMPTS:]:
            yield from attempt_lines(attempt)
    if slot["recoveries"]:
        yield "  losses"
        for recovery in slot["recoveries"][-LOSSES:]:
            yield f"    {recovery_text(recovery)}"


def attempt_lines(attempt: Json) -> Iterator[str]:
    how = attempt["verdict"] or "runs"
    steps = ""
    if attempt["step"] is not None:
        start = f"{attempt['resumed']} to " if attempt["resumed"] is not None else ""
        steps = f", steps {start}{attempt['step']}"
    reason = attempt["why"] or ""
    why = f": {reason}" if reason else ""
    yield (
        f"    {attempt['number']}  {attempt['zone']}"
        f"  {how} after {format_span(attempt['duration_s'])}{steps}{why}"
    )
    if started := startup_text(attempt).strip(" ()"):
        yield f"       startup: {started}"
    if attempt["first_failing"]:
        code = "" if attempt["exit"] is None else f", exit {attempt['exit']}"
        yield f"       first failing host: {attempt['first_failing']}{code}"
    if attempt["finding"]:
        yield from (f"       {line}" for line in cause_lines(attempt["finding"]))
    elif attempt["first_failing"]:
        yield from (f"       | {line}" for line in attempt["lines"][-LINES:])


def startup_text(row: Json) -> str:
    """(Python 0.4 s, imports 6.1 s, …): the time a start took, if the command reports it."""
    startup = row["startup"]
    each = (
        f"{name} {format_span(startup[key])}" for key, name in STARTUP.items() if startup.get(key)
    )
    parts = ", ".join(each)
    return f" ({parts})" if parts else ""


def recovery_text(recovery: Json) -> str:
    """One loss and the time of its recovery, in a sentence."""
    first = {"startup": {key: recovery["startup"].get(key) for key in BEFORE_RESTORE}}
    parts = ", ".join(
        f"{part} {format_span(seconds)}{startup_text(first) if part == 'start' else ''}"
        for part, seconds in recovery["parts"].items()
        if seconds > LEAST_S
    )
    lost = recovery["steps_lost"]
    steps = "" if lost is None else f"; {lost} step{'' if lost == 1 else 's'} lost"
    zones = [zone for zone in (recovery["from_zone"], recovery["to_zone"]) if zone]
    route = f" ({' → '.join(dict.fromkeys(zones))})" if zones else ""
    took = "recovered after" if recovery["finished"] else "not recovered after"
    head = f"{recovery['verdict']} in attempt {recovery['attempt']}{route}"
    return f"{head}: {took} {format_span(recovery['seconds'])}: {parts or 'at once'}{steps}"


def time_cells(seconds: Mapping[str, float]) -> list[tuple[str, str, str, str]]:
    """Each state with its time, share and a bar, the longest first."""
    return [
        (
            MEANINGS[GoodputState(name)],
            format_span(time),
            format_share(share),
            "█" * round(BAR * share) if share else "",
        )
        for name, time, share in ordered_times(seconds)
    ]


def ordered_times(seconds: Mapping[str, float]) -> list[tuple[str, float, float | None]]:
    """Each state with its time and share, the longest first."""
    total = sum(seconds.values())
    ordered = sorted(seconds.items(), key=lambda item: -item[1])
    return [(name, time, time / total if total else None) for name, time in ordered
            if time > LEAST_S]  # fmt: skip


def withheld_line(row: Json) -> str:
    return f"{row['receiver']} gets no messages: {row['why']}"


def why_text(content: Json, *, current: bool) -> str:
    """`herd why`: what each slot does or waits for, and the cause of a failure."""
    slots, findings = content["slots"], content["findings"]
    same: dict[str, list[str]] = {}
    for name, sentence in slots.items():
        same.setdefault(sentence or "the engine has not looked at it yet", []).append(name)
    lines: list[str] = []
    for sentence, names in same.items():
        lines.append(f"{fold_names(names)}: {sentence}")
        causes = {findings[name]["id"]: findings[name] for name in names if name in findings}
        lines += [f"  {line}" for cause in causes.values() for line in cause_lines(cause)]
    lines += [withheld_line(one) for one in content["withheld"]]
    if not current:
        lines.append(
            "No engine is running, so this may be out of date. Start one with `herd engine start`."
        )
    return "\n".join(lines)
