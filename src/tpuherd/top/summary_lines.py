"""The head of `herd top`: the engine, all nodes and their cost, and what is wrong; pure."""

from collections import Counter

from rich.text import Text

from tpuherd.top.tree_rows import Json
from tpuherd.views.format_text import format_money, format_span
from tpuherd.views.printable import show_controls
from tpuherd.views.text_width import cut_text
from tpuherd.views.trouble_line import read_problem, trouble_line


def summary_text(overview: Json, width: int, now: float) -> Text:
    """One line about everything."""
    engine, cost = overview["engine"], overview["cost"]
    runs = f"engine up {format_span(max(0.0, now - engine['since']))}" if engine["running"] else ""
    phases = Counter[str]()
    for job in overview["jobs"]:
        phases.update(job["phases"])
    parts = [
        "herd top",
        runs or "no engine runs",
        count_of(len(overview["jobs"]), "job"),
        ", ".join(f"{many} {phase}" for phase, many in phases.most_common()),
        count_of(len(overview["nodes"]), "node"),
        f"{format_money(cost['per_hour'], known=cost['price_known'])}/h",
        f"{format_money(cost['total'], known=cost['price_known'])} so far",
    ]
    return Text(cut_text("  ".join(part for part in parts if part), width), "bold")


def count_of(many: int, word: str) -> str:
    return f"{many} {word}" if many == 1 else f"{many} {word}s"


def problem_text(overview: Json, now: float) -> Text:
    """What affects all jobs, a line each."""
    lines = [trouble_line(read_problem(row), now) for row in overview["problems"]]
    lines += overview.get("notices", ())
    return Text("\n".join(f"✗ {show_controls(line)}" for line in lines), "bold red")
