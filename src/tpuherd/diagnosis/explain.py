"""Judges what the logs of all hosts say: which failure is the cause, and what follows from it.

The cause is on the host that failed first by itself: before its log tells of another host's loss or
of being stopped. Times in the logs tell which host was first; without them the classes of failures
do, in the order of RuleClass.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tpuherd.diagnosis.log_scanner import HostScan, LineMatch, LogScanner
from tpuherd.diagnosis.match_line import BOOK, RANKS, RuleBook
from tpuherd.diagnosis.rule import Rule, RuleClass

SILENT = "silent-host"  #: the rule for a host that says nothing while the others lose it
PREEMPTED = "preempted"  #: the rule for a node that was taken away
UNKNOWN_ERROR = "python-error"  #: the rule for an error that no rule explains


class FindingRole(StrEnum):
    """How a finding is related to the failure."""

    CAUSE = "cause"
    ALSO = "also"  #: another failure, elsewhere or later
    CONSEQUENCE = "consequence"  #: of another host's loss
    NOTE = "note"  #: harmless


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """A rule that logs match, where, and what it means there."""

    rule: Rule
    role: FindingRole
    host: str  #: where it showed first; "": the only log
    hosts: tuple[str, ...]  #: all that show it
    number: int  #: of the line, from 1; 0: no line
    text: str  #: the line
    cause: str
    fix: str

    @property
    def id(self) -> str:
        return self.rule.id


def explain_lines(
    lines: Iterable[str], *, exit: int | None = None, book: RuleBook = BOOK
) -> tuple[Finding, ...]:
    """What the log of one host says; the cause comes first. Nothing if the log is healthy."""
    scanner = LogScanner(book=book)
    for line in lines:
        scanner.feed(line)
    return explain_hosts((scanner.finish(exit),))


def name_failure(ends: Iterable[tuple[Iterable[str], int | None]]) -> str:
    """The rule that explains the end of one of these hosts, by its last lines and exit status.

    "" if none does.
    """
    for lines, status in ends:
        for found in explain_lines(lines, exit=status)[:1]:
            if found.id != UNKNOWN_ERROR:  # its line says as much
                return found.id
    return ""


def explain_hosts(scans: Sequence[HostScan], book: RuleBook = BOOK) -> tuple[Finding, ...]:
    """What the logs of all hosts of a run say together; the cause comes first."""
    scans = add_silent_host(scans, book)
    leads = {scan.host: min(scan.matches, key=rank_on_host) for scan in scans if scan.matches}
    if all(lead.rule.kind is RuleClass.INFO for lead in leads.values()):
        return ()
    first = find_first_host(leads)
    groups: dict[str, list[tuple[str, LineMatch]]] = {leads[first].rule.id: []}
    for scan in sorted(scans, key=lambda scan: scan.host != first):
        for match in scan.matches:
            if match is leads[scan.host] or not match.rule.generic:
                groups.setdefault(match.rule.id, []).append((scan.host, match))
    found = [build_finding(group, leads[first]) for group in groups.values()]
    return tuple(sorted(found, key=lambda one: ROLES.index(one.role)))


ROLES = tuple(FindingRole)
NO_CAUSE = {RuleClass.PEER, RuleClass.INFO}


def add_silent_host(scans: Sequence[HostScan], book: RuleBook) -> Sequence[HostScan]:
    """Suspect a host whose log ends without a word while all others tell that a peer was lost."""
    silent = [scan.host for scan in scans if not scan.matches]
    peers = [scan for scan in scans if scan.matches]
    if not silent or len(silent) > len(peers) or SILENT not in book.rules:
        return scans
    if any(match.rule.kind not in NO_CAUSE for scan in peers for match in scan.matches):
        return scans
    rule = book.rules[SILENT]
    return [
        HostScan(
            host=scan.host,
            matches=(silent_match(rule, scan),) if scan.host in silent else scan.matches,
            lines=scan.lines,
        )
        for scan in scans
    ]


def silent_match(rule: Rule, scan: HostScan) -> LineMatch:
    text = f"ends after {scan.lines} lines" if scan.lines else "is empty"
    return LineMatch(rule=rule, text=f"its log {text}", groups={}, number=scan.lines, at=None)


def suspicion(match: LineMatch) -> int:
    """How far a match is from being the cause: 0 is a host's own failure."""
    rule = match.rule
    if rule.kind is RuleClass.INFO:
        return 6
    if rule.kind is RuleClass.PEER:
        return 0 if rule.id == SILENT else 5
    if rule.kind is RuleClass.CLUSTER:
        return 4
    if rule.hint:
        return 3
    return 2 if match.after and not rule.stop else 0


def rank_on_host(match: LineMatch) -> tuple[int, bool, int]:
    """On a host the earliest counts, unless another says more."""
    return suspicion(match), match.rule.generic, match.number


def find_first_host(leads: Mapping[str, LineMatch]) -> str:
    """The host that failed first."""
    least = min(map(suspicion, leads.values()))
    hosts = [host for host, lead in leads.items() if suspicion(lead) == least]
    times = {host: at for host in hosts if (at := leads[host].at) is not None}
    if len(times) == len(hosts):
        return min(hosts, key=times.__getitem__)
    return min(hosts, key=lambda host: (leads[host].rule.generic, RANKS[leads[host].rule.kind]))


def build_finding(group: Sequence[tuple[str, LineMatch]], cause: LineMatch) -> Finding:
    host, match = group[0]
    return describe_match(
        match, choose_role(match, cause), host, tuple(dict.fromkeys(name for name, _ in group))
    )


def choose_role(match: LineMatch, cause: LineMatch) -> FindingRole:
    kind = match.rule.kind
    if kind is RuleClass.INFO:
        return FindingRole.NOTE
    if match.rule is cause.rule and (kind is not RuleClass.PEER or match.rule.id == SILENT):
        return FindingRole.CAUSE
    return FindingRole.CONSEQUENCE if match.rule.is_consequence else FindingRole.ALSO


def describe_match(
    match: LineMatch, role: FindingRole, host: str, hosts: tuple[str, ...]
) -> Finding:
    return Finding(
        rule=match.rule,
        role=role,
        host=host,
        hosts=hosts,
        number=match.number,
        text=match.text,
        cause=fill_in(match.rule.cause, match.groups),
        fix=fill_in(match.rule.fix, match.groups),
    )


def state_fact(rule: Rule, host: str, text: str, lines: Iterable[str] = ()) -> Finding:
    """A finding that is known from elsewhere than a log; its lines may say more."""
    told = next((one for one in explain_lines(lines) if one.rule.id == rule.id), None)
    if told is not None:
        match_text, number, cause, fix = told.text, told.number, told.cause, told.fix
    else:
        match_text, number = text, 0
        cause, fix = fill_in(rule.cause, {}), fill_in(rule.fix, {})
    return Finding(
        rule=rule,
        role=FindingRole.CAUSE,
        host=host,
        hosts=(host,),
        number=number,
        text=match_text,
        cause=cause,
        fix=fix,
    )


def fill_in(sentence: str, groups: Mapping[str, str]) -> str:
    """Put what the line says in the place of {name}."""
    return re.sub(r"\{(\w+)\}", lambda name: groups.get(name[1], "…"), sentence)
