"""Reads one host's log line by line and keeps what may explain a failure.

What is followed by training steps, or by many ordinary lines, was overcome: it is forgotten. So the
memory needed does not grow with the log.
"""

import re
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from tpuherd.diagnosis.first_failure import (
    ERROR,
    clean_line,
    shorten_line,
    starts_traceback,
)
from tpuherd.diagnosis.line_time import find_line_time
from tpuherd.diagnosis.match_line import BOOK, RuleBook, match_error, matching_rules, narrow_book
from tpuherd.diagnosis.rule import Rule, RuleClass
from tpuherd.model.slot_history import UNFIT

STEPS_MAX = 2  #: more training steps after a failure: it was overcome
LINES_MAX = 1000  #: the same of ordinary lines
HINT_STEPS_MAX, HINT_LINES_MAX = 0, 4  #: the same after a mere warning
STEP = re.compile(r"\b(?:step|epoch|iter(?:ation)?|loss)\b\W{0,4}\d", re.IGNORECASE)
NARROW_LINES = 20  #: more lines at once: worth finding out which rules they may match at all
LINE_CHARS_MAX = 8192
#: An error, though no rule knows it: rather too few lines than those of healthy logs.
ALARM = re.compile(
    r"\b\w*(?:[Ee]rror|ERROR|[Ff]atal|FATAL|[Pp]anic|[Ee]xception)\b:|^[EF]\d{4} \d\d:"
    r"|: (?:command )?not found$|[Dd]enied$"
)
TAIL = 20  #: last lines in which an unknown error is looked for


@dataclass(frozen=True, kw_only=True, slots=True)
class LineMatch:
    """A line of a host's log that matches a rule."""

    rule: Rule
    text: str  #: the line, fit to be shown
    groups: Mapping[str, str]
    number: int  #: of the line, from 1; 0: no line, but the exit status
    at: float | None  #: when it was written, if known
    after: bool = False  #: after a line that tells of another host's loss, or of being stopped


@dataclass(frozen=True, kw_only=True, slots=True)
class HostScan:
    """What a host's log may explain."""

    host: str
    matches: tuple[LineMatch, ...]  #: in order
    lines: int = 0  #: how many it has
    alarm: str = ""  #: the last line that sounds like an error, if no rule explains the end


@dataclass(slots=True)
class Candidate:
    """The first line of a rule, and how much followed its latest one."""

    match: LineMatch
    steps: int  #: of the log, up to its latest line
    plain: int  #: ordinary lines of the log, up to then


class LogScanner:
    """The lines of one host, one after another."""

    def __init__(self, host: str = "", book: RuleBook = BOOK) -> None:
        self.host = host
        self._book = self._narrow = book
        self._kept: dict[str, Candidate] = {}  #: by rule
        self._number = self._steps = self._plain = 0
        self._margin: str | None = None  #: what stands before each line of the traceback
        self._ignored = False  #: the next traceback is of an error that Python ignored
        self._said = ""  #: why our library has ended the program
        self._last: deque[str] = deque(maxlen=TAIL)

    def feed(self, line: str, *, at: float | None = None, number: int | None = None) -> None:
        """Take in the next line; `number` if it is not the one after the last."""
        self._number = self._number + 1 if number is None else number
        if not line or line.isspace():
            return
        self._last.append(line)
        if line.startswith(ERROR):
            self._said = line
        rules = self._read_rules(line)
        if rules is not None:
            self._keep(*rules, line, at)
        elif self._kept and self._margin is None:
            self._plain += 1
            if STEP.search(line) is not None:
                self._steps += 1

    def feed_text(self, text: str, *, at: float | None = None, number: int | None = None) -> None:
        """Take in many lines at once; `number` is that of the first one."""
        self._number = self._number if number is None else number - 1
        lines = text.removesuffix("\n").split("\n") if text else []
        if len(lines) > NARROW_LINES:
            self._narrow = narrow_book(self._book, text)
        for line in lines:
            self._number += 1
            for part in line.split("\r"):  # a progress bar writes over itself
                self.feed(cut_line(part), at=at, number=self._number)
        self._narrow = self._book

    def finish(self, exit: int | None = None) -> HostScan:
        """What the log says, now that it is complete; `exit`: the status of its command."""
        kept = [one.match for one in self._kept.values() if not self._is_overcome(one)]
        kept.sort(key=lambda one: one.number)
        broken = [one.number for one in kept if one.rule.is_consequence or one.rule.stop]
        first = min(broken, default=self._number + 1)
        matches = [replace(one, after=one.number > first) for one in kept]
        if not any(is_own_failure(one.rule) for one in matches):
            matches += self._exit_match(exit)
        alarms = [line for line in self._last if ALARM.search(line) is not None]
        return HostScan(
            host=self.host,
            matches=tuple(matches),
            lines=self._number,
            alarm=shorten_line(clean_line(alarms[-1])) if alarms and not matches else "",
        )

    def _read_rules(self, line: str) -> tuple[Rule, re.Match[str]] | None:
        """The rule that tells most of the line; within a traceback only of its last line."""
        if self._margin is not None:
            body = line.removeprefix(self._margin)
            if body[:1].isspace() or starts_traceback(body):
                return None
            self._margin = None
            ignored, self._ignored = self._ignored, False
            if ignored:
                return None
            return next(iter(matching_rules(line, self._narrow)), None) or match_error(
                clean_line(body), self._book
            )
        if starts_traceback(line) and "Group Traceback" not in line:
            self._margin = line[: line.index("Traceback")]
            return None
        self._ignored = "Exception ignored in" in line
        return next(iter(matching_rules(line, self._narrow)), None)

    def _keep(self, rule: Rule, match: re.Match[str], line: str, at: float | None) -> None:
        before = self._kept.get(rule.id)
        if before is not None and not self._is_overcome(before):
            before.steps, before.plain = self._steps, self._plain
            return
        text = shorten_line(clean_line(line))
        groups = {name: clean_line(value) for name, value in match.groupdict().items() if value}
        found = LineMatch(
            rule=rule,
            text=text,
            groups=groups,
            number=self._number,
            at=find_line_time(line) if at is None else at,
        )
        self._kept[rule.id] = Candidate(match=found, steps=self._steps, plain=self._plain)

    def _is_overcome(self, one: Candidate) -> bool:
        """Whether the program went on all the same."""
        rule = one.match.rule
        if rule.lasting:
            return False
        steps, lines = self._steps - one.steps, self._plain - one.plain
        if rule.hint:
            return steps > HINT_STEPS_MAX or lines > HINT_LINES_MAX
        return steps > STEPS_MAX or lines > LINES_MAX

    def _exit_match(self, exit: int | None) -> Iterator[LineMatch]:
        """What the exit status alone says."""
        rule = None if exit is None else self._book.by_exit.get(exit)
        if rule is not None:
            text = shorten_line(clean_line(self._said)) if exit == UNFIT and self._said else ""
            text = text or f"exit status {exit}"
            yield LineMatch(rule=rule, text=text, groups={}, number=0, at=None)


def cut_line(line: str) -> str:
    """The beginning and the end of an overlong line."""
    if len(line) <= LINE_CHARS_MAX:
        return line
    return f"{line[: LINE_CHARS_MAX // 2]}\n{line[-LINE_CHARS_MAX // 2 :]}"


def is_own_failure(rule: Rule) -> bool:
    """Whether it is of a host that failed by itself."""
    mere = rule.hint or rule.stop or rule.is_consequence
    return not mere and rule.kind not in {RuleClass.INFO, RuleClass.CLUSTER}
