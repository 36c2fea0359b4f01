"""The texts of `herd smi`: chips and hosts as tables, as plain objects, and as CSV."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tpuherd.model.chip_readings import ChipProcess, ChipReading, HostReading, MachineReading
from tpuherd.targets import fold_names
from tpuherd.views.format_text import NOTHING, format_bytes, format_span, format_table, wrap_text
from tpuherd.views.printable import show_controls

CHIP_HEAD = ("HOST", "CHIP", "HBM", "DUTY", "BAND", "IDLE", "PROCESS")
HOST_HEAD = (
    "HOST", "STEP", "STEPS/S", "CPU", "RAM", "DISK FREE", "NET IN", "NET OUT", "AGE",
)  # fmt: skip
PROCESS_MIN, PROCESS_MAX = 16, 60  #: characters of a process that are shown
INVALID = "invalid"
GIB = 1 << 30
SKEW_S = 30.0  #: a clock that is so far off is worth a note
OLD_S = 60.0  #: so are values of this age


def smi_text(
    readings: Sequence[HostReading], now: float, width: int | None = None, *, top: bool = False
) -> str:
    """Return a line for each chip, one for each host, and what there is to say of hosts.

    `top`: in reverse, for a screen that may cut off the end.
    """
    chips = [
        (one.host, *chip_cells(chip), process_text(chip.processes))
        for one in readings
        for chip in one.chips
    ]
    hosts = [host_cells(one, now) for one in readings]
    right = tuple(range(1, len(HOST_HEAD)))
    tables = [format_table([HOST_HEAD, *hosts], right=right, width=width)]
    if chips:
        cut = cut_processes([CHIP_HEAD, *chips], width)
        tables.insert(0, format_table(cut, right=(2, 3, 4, 5), width=width))
    notes = "\n".join(note_lines(readings))
    parts = [*tables, notes] if notes else tables
    return "\n\n".join(reversed(parts) if top else parts)


def note_lines(readings: Sequence[HostReading]) -> Iterator[str]:
    """What is announced, missing or wrong: a line for all hosts of which it is true."""
    notes: dict[str, list[str]] = {}
    for one in readings:
        for note in host_notes(one):
            notes.setdefault(show_controls(" ".join(note.split())), []).append(one.host)
    urgent = {one.notice.upper() for one in readings if one.notice}
    for note in sorted(notes, key=lambda note: note not in urgent):
        yield f"{fold_names(notes[note])}: {note}"


def host_notes(one: HostReading) -> Iterator[str]:
    if one.notice:
        yield one.notice.upper()
    if one.why:
        yield one.why
    if one.late_s >= OLD_S:
        yield f"libtpu's values are {format_span(one.late_s)} old"
    if one.machine is not None and abs(one.clock_ahead_s) >= SKEW_S:
        way = "ahead of" if one.clock_ahead_s > 0 else "behind"
        yield f"its clock is {format_span(abs(one.clock_ahead_s))} {way} this machine's"
    training = one.training
    if training is not None and training.step is not None and training.age_s >= OLD_S:
        yield f"{training.slot} has reported no step for {format_span(training.age_s)}"


def cut_processes(rows: Sequence[Sequence[str]], width: int | None) -> list[Sequence[str]]:
    """Shorten the last column so that a row is one line."""
    most = PROCESS_MAX
    if width is not None:
        others = sum(max(len(row[at]) for row in rows) + 2 for at in range(len(rows[0]) - 1))
        most = min(PROCESS_MAX, max(PROCESS_MIN, width - others))
    return [
        (*row[:-1], row[-1] if len(row[-1]) <= most else f"{row[-1][: most - 1]}…") for row in rows
    ]


def chip_cells(chip: ChipReading) -> tuple[str, ...]:
    """accel0, 12.3/31.2 GiB, 97 %, 41 %, 0.2 s"""
    return (
        show_controls(chip.device.removeprefix("/dev/")),
        hbm_text(chip),
        *(
            INVALID if name in chip.invalid else percent_text(value)
            for name, value in (
                ("duty_percent", chip.duty_percent),
                ("bandwidth_percent", chip.bandwidth_percent),
            )
        ),
        INVALID if "idle_s" in chip.invalid else span_text(chip.idle_s),
    )


def hbm_text(chip: ChipReading) -> str:
    """12.3/31.2 GiB"""
    if chip.hbm_used is None and chip.hbm_total is None and not chip.invalid & {"hbm_used"}:
        return INVALID if "hbm_total" in chip.invalid else NOTHING
    used, total = (
        INVALID if name in chip.invalid else NOTHING if value is None else f"{value / GIB:.1f}"
        for name, value in (("hbm_used", chip.hbm_used), ("hbm_total", chip.hbm_total))
    )
    return f"{used}/{total} GiB"


def percent_text(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.0f} %"


def span_text(seconds: float | None) -> str:
    return NOTHING if seconds is None else format_span(seconds)


def process_text(processes: Sequence[ChipProcess]) -> str:
    """4242 ann python3 train.py, and how many more"""
    if not processes:
        return NOTHING
    first = processes[0]
    words = " ".join(first.command.split()) or "?"
    program, _, rest = words.partition(" ")
    pid = "?" if first.pid is None else str(first.pid)
    more = f"+{len(processes) - 1} " if len(processes) > 1 else ""
    text = f"{more}{pid} {first.user or '?'} {program.rpartition('/')[2] or program} {rest}"
    return show_controls(text).rstrip()


def host_cells(one: HostReading, now: float) -> tuple[str, ...]:
    training = one.training
    step = training.step if training is not None else None
    return (
        one.host,
        NOTHING if step is None else str(step),
        rate_text(training.step_rate if training is not None else None),
        *machine_cells(one.machine),
        NOTHING if one.machine is None else span_text(one.age_s(now)),
    )


def rate_text(rate: float | None) -> str:
    """8.33, 0.125, 412"""
    if rate is None:
        return NOTHING
    return f"{rate:.0f}" if rate >= 100 else f"{rate:.3g}"


def machine_cells(machine: MachineReading | None) -> tuple[str, ...]:
    if machine is None:
        return (NOTHING,) * 5
    return (
        percent_text(machine.cpu_percent),
        pair_text(machine.ram_used, machine.ram_total),
        pair_text(machine.disk_free, machine.disk_total),
        *(
            NOTHING if rate is None else f"{format_bytes(round(rate))}/s"
            for rate in (machine.net_in, machine.net_out)
        ),
    )


def pair_text(part: int | None, whole: int | None) -> str:
    """12/400 GB"""
    if part is None or whole is None:
        return NOTHING
    return f"{part / 1e9:.0f}/{whole / 1e9:.0f} GB"


def list_chip_objects(readings: Sequence[HostReading], now: float) -> list[Mapping[str, Any]]:
    """Return an object for each chip, and one for each host without any."""
    empty = ChipReading(device="")
    return [
        chip_object(one, chip, now) for one in readings for chip in (one.chips or (empty,))
    ]  # fmt: skip


def chip_object(one: HostReading, chip: ChipReading, now: float) -> Mapping[str, Any]:
    return {
        "host": one.host, "node": one.node, "zone": one.zone, "chip": chip.device or None,
        "hbm_used": chip.hbm_used, "hbm_total": chip.hbm_total,
        "duty_percent": chip.duty_percent, "bandwidth_percent": chip.bandwidth_percent,
        "idle_s": chip.idle_s, "invalid": sorted(chip.invalid),
        "processes": [
            {"pid": it.pid, "user": it.user, "command": it.command, "task": it.task}
            for it in chip.processes
        ],
        **host_object(one),
        "read_at": round(one.read_at, 3), "age_s": round(one.age_s(now), 3),
        "answered": one.machine is not None, "notice": one.notice, "why": one.why,
    }  # fmt: skip


def host_object(one: HostReading) -> Mapping[str, Any]:
    """What is the same for all chips of a host."""
    machine, training = one.machine, one.training
    names = (
        "load", "cores", "cpu_percent", "ram_used", "ram_total", "disk_free", "disk_total",
        "net_in", "net_out",
    )  # fmt: skip
    return {
        **{name: getattr(machine, name) if machine is not None else None for name in names},
        "slot": training and training.slot,
        "attempt": training and training.attempt,
        "step": training and training.step,
        "step_rate": training and training.step_rate,
        "clock_ahead_s": round(one.clock_ahead_s, 3) if machine is not None else None,
    }


BLANK = chip_object(
    HostReading(host="", node="", zone="", read_at=0.0), ChipReading(device=""), 0.0
)
CSV_FIELDS = (*(name for name in BLANK if name not in ("invalid", "processes")), "pids")


def csv_text(readings: Sequence[HostReading], now: float, *, heading: bool) -> str:
    """Return a row for each chip; a value that can't be true is "invalid", an unknown one empty."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    if heading:
        writer.writerow(CSV_FIELDS)
    for row in list_chip_objects(readings, now):
        pids = " ".join("?" if it["pid"] is None else str(it["pid"]) for it in row["processes"])
        cells = {**row, **dict.fromkeys(row["invalid"], INVALID), "pids": pids}
        writer.writerow(csv_cell(cells[name]) for name in CSV_FIELDS)
    return file.getvalue()


def csv_cell(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else show_controls(" ".join(str(value).split()))


def fit_screen(text: str, *, rows: int, width: int) -> list[str]:
    """Return the lines that fit on a terminal; the last one counts those that don't."""
    lines = wrap_text(text, width).split("\n")
    if len(lines) < rows:
        return lines
    left = len(lines) - (rows - 2)
    return [*lines[: rows - 2], f"… {left} more lines: make the window taller, or name fewer hosts"]
