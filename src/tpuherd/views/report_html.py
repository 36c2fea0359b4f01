"""`herd report JOB --html`: one page that needs no script and nothing from the network."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any

from tpuherd.accounting.goodput import MEANINGS, GoodputState
from tpuherd.views.format_text import NOTHING, format_money, format_share, format_span
from tpuherd.views.printable import show_values
from tpuherd.views.slot_timeline import STATE_TITLES

Json = Mapping[str, Any]
LEAST_S = 0.05  #: shorter times are not shown
WIDE, HIGH, GAP = 1000, 22, 8  #: of a slot's timeline
FINEST = 0.25  #: of these units: shorter spans are drawn together with the next
STYLE = """
:root{color-scheme:light dark;--ground:#fff;--text:#1a202c;--muted:#5a6577;--line:#d8dee8}
@media(prefers-color-scheme:dark){
:root{--ground:#12161d;--text:#e6eaf0;--muted:#9aa6b8;--line:#2d3748}}
body{background:var(--ground);color:var(--text);font:15px/1.5 system-ui,sans-serif;margin:2rem auto;
max-width:64rem;padding:0 1rem}
h1{font-size:1.5rem;margin:0}h2{font-size:1.1rem;margin:2rem 0 .5rem}
p{margin:.3rem 0}.muted{color:var(--muted)}
table{border-collapse:collapse;width:100%}.scroll{overflow-x:auto}
th,td{text-align:left;padding:.25rem .8rem .25rem 0;border-bottom:1px solid var(--line)}
th{color:var(--muted);font-weight:500}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}
.tiles{display:flex;flex-wrap:wrap;gap:1rem;margin:1rem 0}
.tile{border:1px solid var(--line);border-radius:8px;padding:.6rem 1rem}.tile b{display:block;
font-size:1.3rem}
svg{width:100%;height:auto;display:block}
svg text{fill:var(--text);font:11px system-ui,sans-serif}
.key{display:inline-block;width:.9em;height:.9em;border-radius:2px;vertical-align:-.1em;
margin-right:.35em}
ol{padding-left:1.2rem}li{margin:.5rem 0}
"""
#: One hue for a kind of time; light and dark pages share them.
TINTS: Mapping[GoodputState, str] = {
    GoodputState.QUEUE_FIRST: "#d69e2e",
    GoodputState.CAPACITY_WAIT: "#dd6b20",
    GoodputState.CONTROLLER_GAP: "#a0aec0",
    GoodputState.PROVISION: "#4c7bd9",
    GoodputState.HOST_SETUP: "#63a4f4",
    GoodputState.STARTING: "#38b2ac",
    GoodputState.RESTORE: "#319795",
    GoodputState.COMPILE: "#81c9d6",
    GoodputState.PRODUCTIVE: "#38a169",
    GoodputState.SAVING: "#9ae6b4",
    GoodputState.WASTED: "#e53e3e",
    GoodputState.STOPPING: "#b794f4",
    GoodputState.DETECT: "#9b2c2c",
    GoodputState.PROCESS_DOWN: "#c05621",
    GoodputState.HUNG: "#702459",
    GoodputState.IDLE: "#718096",
    GoodputState.STOPPED: "#cbd5e0",
    GoodputState.DONE: "#cbd5e0",
    GoodputState.GAVE_UP: "#cbd5e0",
}


def report_html(content: Json, show_time: Callable[[float], str] = str) -> str:
    """The whole page; all text in it is escaped."""
    page = show_values(content)
    title = escape(f"{page['job']}: where time and money went")
    body = "\n".join(
        (
            f"<h1>{title}</h1>",
            *heading(page, show_time),
            section("What to change to gain most", improvement_list(page)),
            section("Timeline", draw_timeline(page)),
            section("Where the time went", state_table(page)),
            section("Losses", loss_tables(page, show_time)) if page["incidents"] else "",
        )
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\';'
        " style-src 'unsafe-inline'\">\n"
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def section(title: str, content: str) -> str:
    return f"<h2>{escape(title)}</h2>\n{content}"


def heading(page: Json, show_time: Callable[[float], str]) -> Iterator[str]:
    """The figures that matter."""
    known = page["price_known"]
    many = len(page["slots"])
    removed = ", removed" if page["removed"] else ""
    yield (
        f'<p class="muted">{escape(show_time(page["start"]))} to {escape(show_time(page["end"]))}'
        f" ({format_span(page['end'] - page['start'])}), {many} slot{'' if many == 1 else 's'}"
        f"{removed}</p>"
    )
    wasted = page["cost"] - page["money"].get(GoodputState.PRODUCTIVE, 0.0)
    tiles = (
        (format_share(page["goodput"]), "goodput"),
        (format_share(page["scheduling"]), "scheduling: there was a node"),
        (format_share(page["runtime"]), "runtime: work on it counted"),
        (format_share(page["program"]), "program: usual step / mean step"),
        (format_money(page["cost"], known=known), "cost"),
        (format_money(wasted, known=known), "not for work that counts"),
        (str(page["steps_lost"]), "steps done twice"),
    )
    each = "".join(
        f'<div class="tile"><b>{value}</b><span class="muted">{words}</span></div>'
        for value, words in tiles
    )
    yield f'<div class="tiles">{each}</div>'
    if not known:
        yield "<p>The price of some node is unknown, so all costs are too low.</p>"


def improvement_list(page: Json) -> str:
    if not page["improvements"]:
        why = f"No predictions: {page['silence']}." if page["silence"] else (
            "None of the changes that herd can predict would have gained 0.2 points."
        )  # fmt: skip
        return f"<p>{escape(why)}</p>"
    rows = "".join(
        f"<li><b>+{100 * row['gain']:.1f} points</b> {escape(row['change'])}"
        f'<br><span class="muted">if: {escape(row["assumes"])}</span></li>'
        for row in page["improvements"]
    )
    alone = "Each is what this history would have given with that change alone."
    return f"<ol>{rows}</ol>\n<p>{alone}</p>"


def draw_timeline(page: Json) -> str:
    """A row for each slot, and the legend; the table below has the same in numbers."""
    start, end = page["start"], page["end"]
    if end <= start:
        return "<p>No time has passed yet.</p>"
    height = len(page["slots"]) * (HIGH + GAP + 14)
    rows = []
    for number, slot in enumerate(page["slots"]):
        top = number * (HIGH + GAP + 14)
        label = f"{slot['slot']}  {format_share(slot['goodput'])}"
        rows.append(f'<text x="0" y="{top + 11}">{escape(label)}</text>')
        rows += slot_paths(slot["spans"], start, end, top + 14)
    states = [state for state in GoodputState if page["seconds"].get(state)]
    legend = "  ".join(
        f'<span style="white-space:nowrap">{key(state)}{escape(STATE_TITLES[state])}</span>'
        for state in states
    )
    return (
        f'<svg viewBox="0 0 {WIDE} {height}" role="img"'
        f' aria-label="what each slot did over time">{"".join(rows)}</svg>\n<p>{legend}</p>'
    )


def slot_paths(spans: Iterable[Json], start: float, end: float, top: float) -> Iterator[str]:
    """One path a state: thousands of spans stay few elements."""
    scale = WIDE / (end - start)
    shapes: dict[str, list[str]] = {}
    for span in merge_short(spans, scale):
        left, right = (span["start"] - start) * scale, (span["end"] - start) * scale
        shapes.setdefault(span["state"], []).append(
            f"M{left:.2f} {top}h{max(right - left, FINEST):.2f}v{HIGH}H{left:.2f}z"
        )
    for state, parts in shapes.items():
        named = GoodputState(state)
        yield (
            f'<path fill="{TINTS[named]}" d="{"".join(parts)}">'
            f"<title>{escape(STATE_TITLES[named])}: {escape(MEANINGS[named])}</title></path>"
        )


def merge_short(spans: Iterable[Json], scale: float) -> Iterator[Json]:
    """Spans too short to be seen become part of the longest around them."""
    group: list[Json] = []
    for span in spans:
        group.append(span)
        if (span["end"] - group[0]["start"]) * scale >= FINEST:
            yield join_spans(group)
            group = []
    if group:
        yield join_spans(group)


def join_spans(group: Sequence[Json]) -> Json:
    longest = max(group, key=lambda span: span["end"] - span["start"])
    return {"start": group[0]["start"], "end": group[-1]["end"], "state": longest["state"]}


def state_table(page: Json) -> str:
    total = sum(page["seconds"].values())
    rows = sorted(page["seconds"].items(), key=lambda item: -item[1])
    cells = [
        (
            key(GoodputState(name)) + escape(STATE_TITLES[GoodputState(name)]),
            escape(MEANINGS[GoodputState(name)]),
            format_span(seconds),
            format_share(seconds / total),
            format_money(page["money"].get(name, 0.0), known=page["price_known"]),
        )
        for name, seconds in rows
        if seconds > LEAST_S
    ]
    return make_table(("State", "", "Time", "Share", "Cost"), cells, numbers=(2, 3, 4))


def loss_tables(page: Json, show_time: Callable[[float], str]) -> str:
    parts = [
        (
            escape(row["part"]),
            *(format_span(row[name]) for name in ("p50", "p90", "worst", "total")),
        )
        for row in page["parts"]
        if row["worst"] > LEAST_S
    ]
    losses = [
        (
            escape(show_time(row["at"])),
            escape(row["slot"]),
            escape(row["verdict"]),
            escape(" → ".join(dict.fromkeys(filter(None, (row["from_zone"], row["to_zone"]))))),
            format_span(row["seconds"]) + ("" if row["finished"] else " so far"),
            NOTHING if row["steps_lost"] is None else str(row["steps_lost"]),
            escape(row["why"]),
        )
        for row in page["incidents"]
    ]
    head = ("Part of the recovery", "Half took at most", "9 of 10", "Worst", "In all")
    return "\n".join(
        (
            make_table(head, parts, numbers=(1, 2, 3, 4)) if parts else "",
            make_table(("When", "Slot", "Loss", "Where", "Recovery", "Steps lost", "Why"), losses,
                       numbers=(4, 5)),
        )
    )  # fmt: skip


def make_table(
    head: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Sequence[int]
) -> str:
    """A table of cells that are escaped already."""

    def cells(tag: str, row: Sequence[str]) -> str:
        return "".join(
            f"<{tag}{' class=n' if at in numbers else ''}>{cell}</{tag}>"
            for at, cell in enumerate(row)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    top = f"<tr>{cells('th', head)}</tr>"
    return f'<div class="scroll"><table><thead>{top}</thead><tbody>{body}</tbody></table></div>'


def key(state: GoodputState) -> str:
    """The square of a state in legends."""
    return f'<span class="key" style="background:{TINTS[state]}"></span>'
