"""`herd ls` and `herd status` on a terminal: what is wrong, then pictures, then details.

Their text in files and pipes is in job_pages.py.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isfinite
from typing import Any, cast

from tpuherd.accounting.goodput import MEANINGS, GoodputState, SlotAccount
from tpuherd.model.samples import STEP
from tpuherd.targets import fold_names
from tpuherd.views.column_table import Cell, Column, draw_table
from tpuherd.views.finding_lines import cause_lines
from tpuherd.views.format_text import (
    NOTHING,
    format_goodput,
    format_money,
    format_number,
    format_share,
    format_span,
    wrap_text,
)
from tpuherd.views.job_pages import as_list, fact_lines, idle_line, ordered_times, show_zones
from tpuherd.views.job_rows import count_phases, has_many_users
from tpuherd.views.phase_signs import (
    DONE,
    RESTING,
    WARNING,
    WRONG,
    PhaseSign,
    phase_sign,
    worst_sign,
)
from tpuherd.views.slot_pictures import Curve, timeline_lines
from tpuherd.views.text_width import paint_text
from tpuherd.views.timeline_bar import BAR_PARTS

Json = Mapping[str, Any]
FULL_SLOTS = 2  #: a job with more shows the details only of those that need a look
BOLD, FAINT = "1", "2"
JOB_COLUMNS = (
    Column(title="", gap=1),
    Column(title="JOB", least=16),
    Column(title="USER"),
    Column(title="PHASE", least=20),
    Column(title="READY", right=True, drop=2),
    Column(title="WHERE", drop=3, least=10),
    Column(title="ATTEMPT", right=True, drop=6),
    Column(title="AGE", right=True, drop=5),
    Column(title="GOODPUT", right=True, drop=1),
    Column(title="COST", right=True),
    Column(title="PER HOUR", right=True, drop=4),
)
SLOT_COLUMNS = (
    Column(title="", gap=1),
    Column(title="SLOT", least=16),
    Column(title="PHASE"),
    Column(title="WHERE", drop=1, least=10),
    Column(title="ATTEMPT", right=True, drop=4),
    Column(title="STEP", right=True),
    Column(title="SAVED", right=True, drop=2),
    Column(title="GOODPUT", right=True),
    Column(title="COST", right=True, drop=3),
    Column(title="PER HOUR", right=True, drop=5),
)
#: Headings of a slot's details.
DETAILS = frozenset({"bids", "attempts", "losses"})
TIME_COLUMNS = (
    Column(title="", gap=1),
    Column(title="", least=30),
    Column(title="", right=True),
    Column(title="", right=True),
)
TIME_INDENT = 4
#: What to type next, by a slot's phase.
NEXT_COMMANDS: Mapping[str, str] = {
    "failing": "herd explain {slot}",
    "gave up": "herd explain {slot}",
    "unhealthy": "herd check {slot}",
    "recovering": "herd events {slot} -f",
    "queued": "herd types --zones",
}


def jobs_screen(rows: Sequence[Json], *, colour: bool, width: int) -> str:
    """`herd ls` on a terminal: the most urgent jobs first."""
    if not rows:
        return "No jobs. Start one with `herd run`."
    ordered = sorted(rows, key=lambda row: (job_sign(row).urgency, row["job"]))
    cells = [job_cells(row, job_sign(row)) for row in ordered]
    columns: Sequence[Column] = JOB_COLUMNS
    if not has_many_users(rows):
        columns = tuple(one for one in JOB_COLUMNS if one.title != "USER")
        cells = [[*row[:2], *row[3:]] for row in cells]
    lines = [*draw_table(columns, cells, width=width, colour=colour)]
    notes = [*job_notes(ordered, colour=colour)]
    if len(rows) > 1:
        notes.append(paint_text(total_line(rows), FAINT, colour=colour))
    return "\n".join([*lines, *([""] if notes else []), *fit_lines(notes, width)])


def job_sign(row: Json) -> PhaseSign:
    sign = worst_sign(row["phases"])
    return min(sign, WARNING, key=lambda one: one.urgency) if row["idle"] else sign


def job_cells(row: Json, sign: PhaseSign) -> list[Cell]:
    where = show_zones(row["zones"]) + (f", {row['slices']} slices" if row["slices"] > 1 else "")
    ready = "" if row["ready"] == row["slots"] else "33"
    return [
        Cell(sign.sign, sign.tint),
        Cell(row["job"], BOLD),
        Cell(row["user"] or NOTHING),
        Cell(phase_text(row), sign.tint),
        Cell(f"{row['ready']}/{row['slots']}", ready if sign not in (DONE, RESTING) else ""),
        Cell(where),
        Cell(format_number(row["attempt"] or None)),
        Cell(format_span(row["age_s"])),
        Cell(format_goodput(row)),
        Cell(format_money(row["cost"], known=row["price_known"])),
        Cell(format_money(row["per_hour"], known=row["price_known"])),
    ]


def phase_text(row: Json) -> str:
    """running, or 1 failing, 2 running: the most urgent first."""
    phases = row["phases"]
    if len(phases) < 2:
        return row["phase"] or NOTHING
    return count_phases({word: phases[word] for word in sorted(phases, key=phase_urgency)})


def phase_urgency(phase: str) -> int:
    return phase_sign(phase).urgency


def job_notes(rows: Iterable[Json], *, colour: bool) -> Iterator[str]:
    """Yield a line for each job that is in trouble, with the command that tells more."""
    for row in rows:
        bad = {word: many for word, many in row["phases"].items() if phase_sign(word) is WRONG}
        if bad:
            what = ", ".join(
                f"{many} slot{'s' if many > 1 else ''} {word}" for word, many in bad.items()
            )
            mark = paint_text(WRONG.sign, WRONG.tint, colour=colour)
            yield f"{mark} {row['job']}: {what}: herd status {row['job']}"
        if row["idle"]:
            yield f"{paint_text(WARNING.sign, WARNING.tint, colour=colour)} {idle_line(row)}"


def total_line(rows: Sequence[Json]) -> str:
    """3 jobs, $140.92 so far, $14.80 per hour now"""
    known = all(row["price_known"] for row in rows)
    cost, rate = (sum(row[name] for row in rows) for name in ("cost", "per_hour"))
    money = f"{format_money(cost, known=known)} so far, {format_money(rate, known=known)}"
    return f"{len(rows)} jobs, {money} per hour now"


def fit_lines(lines: Iterable[str], width: int) -> Iterator[str]:
    for line in lines:
        yield from wrap_text(line, width).split("\n")


def status_screen(
    page: Json,
    accounts: Mapping[str, SlotAccount],
    curves: Mapping[str, Sequence[Curve]],
    *,
    colour: bool,
    width: int,
) -> str:
    """`herd status` on a terminal: head, sentences, timelines, table, details."""
    slots = sorted(page["slot_details"], key=lambda slot: phase_urgency(slot["phase"]))
    parts = [
        heading_lines(page, colour=colour, width=width),
        sentence_lines(slots, colour=colour),
        timeline_lines(
            [accounts[slot["slot"]] for slot in slots if slot["slot"] in accounts],
            curves,
            colour=colour,
            width=width,
        ),
        draw_table(
            SLOT_COLUMNS,
            [slot_cells(slot, latest_step(slot, curves)) for slot in slots],
            width=width,
            colour=colour,
        ),
        *(detail_lines(slot, colour=colour, width=width) for slot in detailed_slots(slots)),
    ]
    if more := len(slots) - len(detailed_slots(slots)):
        name = next(slot["slot"] for slot in slots if slot not in detailed_slots(slots))
        line = f"{more} more slots: `herd status {name}` shows one in full"
        parts.append(iter([paint_text(line, FAINT, colour=colour)]))
    texts = ("\n".join(fit_lines(part, width)) for part in parts)
    return "\n\n".join(text for text in texts if text)


def detailed_slots(slots: Sequence[Json]) -> list[Json]:
    """Return all slots if they are few, else those in trouble."""
    if len(slots) <= FULL_SLOTS:
        return [*slots]
    bad = [slot for slot in slots if phase_urgency(slot["phase"]) <= WARNING.urgency]
    return bad[:FULL_SLOTS]


def heading_lines(page: Json, *, colour: bool, width: int) -> Iterator[str]:
    """Yield what the job is, how it is, and what it costs."""
    sign, document = worst_sign(page["phases"]), page["document"]
    kind = " or ".join(as_list(document.get("accelerator"))) or ", ".join(page["type"])
    tier = " or ".join(as_list(document.get("tier")))
    slices = f"{page['slices']} slices of " if page["slices"] > 1 else ""
    phase = paint_text(f"{sign.sign} {phase_text(page)}", sign.tint, colour=colour)
    what = f"{slices}{kind} {tier}".strip()
    yield f"{paint_text(page['job'], BOLD, colour=colour)}  {phase}  {what}".rstrip()
    run = document.get("run")
    if run:
        yield f"  {run if isinstance(run, str) else ' '.join(run)}"
    known = page["price_known"]
    cost, rate = (format_money(page[one], known=known) for one in ("cost", "per_hour"))
    whose = page["user"] or page["who"]
    by = f" by {whose}" if whose else ""
    age = f"submitted {format_span(page['age_s'])} ago{by}"
    money = f"{cost} so far, {rate} per hour now"
    line = f"  {page['ready']} of {page['slots']} ready, {money}, {age}"
    yield from (paint_text(one, FAINT, colour=colour) for one in fit_lines([line], width))


def sentence_lines(slots: Sequence[Json], *, colour: bool) -> Iterator[str]:
    """Yield what each slot does or waits for, its cause and the next command; equal ones once."""
    same: dict[tuple[str, ...], list[Json]] = {}
    for slot in slots:
        key = (slot["phase"], slot["why"], *slot_advice(slot))
        same.setdefault(key, []).append(slot)
    for (phase, why, *advice), group in same.items():
        sign = phase_sign(phase)
        names = fold_names([slot["slot"] for slot in group])
        mark = paint_text(sign.sign, sign.tint, colour=colour)
        said = why if why.startswith(phase) else f"{phase}: {why}" if why else phase
        yield f"{mark} {paint_text(names, BOLD, colour=colour)} {said}"
        yield from (f"    {line}" for line in advice)
        if command := NEXT_COMMANDS.get(phase):
            slot = group[0]["slot"]
            yield f"    next: {paint_text(command.format(slot=slot), '36', colour=colour)}"


def slot_advice(slot: Json) -> tuple[str, ...]:
    """The cause of a failure and how to fix it, while it matters."""
    if phase_sign(slot["phase"]) is not WRONG or not slot["attempts"]:
        return ()
    last = slot["attempts"][-1]
    if last["finding"]:
        return tuple(cause_lines(last["finding"]))
    if not last["first_failing"]:
        return ()
    code = "" if last["exit"] is None else f", exit {last['exit']}"
    said = last["lines"][-1:]
    return (f"first failing host: {last['first_failing']}{code}", *(f"| {line}" for line in said))


def latest_step(slot: Json, curves: Mapping[str, Sequence[Curve]]) -> int | None:
    """The step that a running script told last; events know it only from time to time."""
    told = [curve.points for curve in curves.get(slot["slot"], ()) if curve.name == STEP]
    if slot["phase"] != "running" or not told or not told[0] or not isfinite(told[0][-1][1]):
        return cast("int | None", slot["step"])
    return max(int(told[0][-1][1]), slot["step"] or 0)


def slot_cells(slot: Json, step: int | None) -> list[Cell]:
    sign = phase_sign(slot["phase"])
    return [
        Cell(sign.sign, sign.tint),
        Cell(slot["slot"], BOLD),
        Cell(slot["phase"], sign.tint),
        Cell(slot["zone"] or NOTHING),
        Cell(format_number(slot["attempt"] or None)),
        Cell(format_number(step)),
        Cell(format_number(slot["saved"])),
        Cell(format_goodput(slot)),
        Cell(format_money(slot["cost"], known=slot["price_known"])),
        Cell(format_money(slot["per_hour"], known=slot["price_known"])),
    ]


def detail_lines(slot: Json, *, colour: bool, width: int) -> Iterator[str]:
    """Yield the bids, attempts and losses of a slot, and what each of its states means."""
    told = [*map(shorten_attempt, slot["attempts"][:-1]), *slot["attempts"][-1:]]
    lines = [*fact_lines({**slot, "attempts": told})]
    if lines or slot["seconds"]:
        yield paint_text(slot["slot"], BOLD, colour=colour)
    for line in lines:
        yield paint_text(line, FAINT, colour=colour and line.strip() in DETAILS)
    rows = [time_cells(*one) for one in ordered_times(slot["seconds"])]
    if rows:
        yield paint_text("  where the time went", FAINT, colour=colour)
        table = draw_table(TIME_COLUMNS, rows, width=width - TIME_INDENT, colour=colour)
        yield from (" " * TIME_INDENT + line for line in [*table][1:])


def shorten_attempt(attempt: Json) -> Json:
    """How an earlier attempt ended, without its last lines."""
    return {**attempt, "first_failing": "", "finding": None}


def time_cells(name: str, time: float, share: float | None) -> list[Cell]:
    state = GoodputState(name)
    part = BAR_PARTS[state]
    cells = [Cell(MEANINGS[state]), Cell(format_span(time)), Cell(format_share(share))]
    return [Cell(part.sign.strip() or NOTHING, part.tint), *cells]
