"""Findings as text and JSON: `herd explain`, and what `herd status` and `herd why` show of them."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tpuherd.diagnosis.explain import Finding, FindingRole, state_fact
from tpuherd.diagnosis.known_rules import RULES
from tpuherd.targets import fold_names, split_bid_name

Json = dict[str, Any]
ELSEWHERE = {
    FindingRole.ALSO: "Also found",
    FindingRole.CONSEQUENCE: "What follows from a lost host",
    FindingRole.NOTE: "Harmless, but good to know",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """What the logs of one run say."""

    subject: str  #: train.log, or attempt 2 of gpt-0
    findings: tuple[Finding, ...]
    attempt: str = ""  #: its id
    node: str = ""  #: what to call its node in commands
    healthy: str = ""  #: the sentence if there is no finding
    alarm: str = ""  #: a line that sounds like an error, though no rule knows it


def finding_row(id: str, lines: Iterable[str], bid: str) -> Json | None:
    """What explains the end of an attempt, by the recorded rule and its last lines."""
    rule = RULES.get(id)
    if rule is None:
        return None  # none, or of a newer herd
    found = state_fact(rule, "", "", lines)
    name = split_bid_name(bid)
    return {
        "id": found.id,
        "cause": found.cause,
        "fix": name_node(found.fix, "" if name is None else name.slot),
    }


def name_node(fix: str, node: str) -> str:
    """Put the node's name into the commands of a fix."""
    return re.sub(r"\b(?:NODE|HOST)\b", node, fix) if node else fix


def cause_lines(row: Mapping[str, Any]) -> Iterator[str]:
    """A cause and its fix, as below an attempt."""
    yield f"cause: {row['cause']} ({row['id']})"
    yield f"fix: {row['fix']}"


def explanation_text(explanations: Sequence[Explanation]) -> str:
    """`herd explain`"""
    parts = ["\n".join(explanation_lines(one)) for one in explanations]
    return ("\n\n" if any(one.findings for one in explanations) else "\n").join(parts)


def explanation_lines(explanation: Explanation) -> Iterator[str]:
    if not explanation.findings:
        yield explanation.healthy
        if explanation.alarm:
            yield "The last line that sounds like an error:"
            yield f"  | {explanation.alarm}"
        return
    first = explanation.findings[0]
    if first.role is FindingRole.CAUSE:
        yield f"{explanation.subject}: {first.cause}"
    else:
        yield (
            f"{explanation.subject}: no log tells the cause, only that a host was lost:"
            f" {first.cause}"
        )
    yield f"  {place_text(first)}"
    if first.text:
        yield f"  | {first.text}"
    yield f"  fix: {name_node(first.fix, explanation.node)}"
    yield f"  rule: {first.id}{source_text(first)}"
    rest = explanation.findings[1:]
    for role, heading in ELSEWHERE.items():
        told = [one for one in rest if one.role is role]
        if told:
            yield f"{heading}:"
            yield from (f"  {place_text(one)}: {one.cause} ({one.id})" for one in told)


def place_text(finding: Finding) -> str:
    """gpt-0/w2, line 812; also gpt-0/w[0-1]"""
    line = f"line {finding.number}" if finding.number else ""
    parts = [part for part in (finding.host, line) if part]
    others = [host for host in finding.hosts if host != finding.host]
    also = f"; also {fold_names(others)}" if others else ""
    return f"{', '.join(parts)}{also}" or "its end"


def source_text(finding: Finding) -> str:
    known = finding.rule.evidence
    parts = [part for part in (finding.rule.source, known and f"evidence: {known}") if part]
    return f" ({'; '.join(parts)})" if parts else ""


def explanation_rows(explanations: Sequence[Explanation]) -> list[Json]:
    """`herd explain --json`: all findings, the cause of each run first."""
    return [
        {
            "id": one.id,
            "class": str(one.rule.kind),
            "role": str(one.role),
            "attempt": explanation.attempt,
            "host": one.host,
            "hosts": list(one.hosts),
            "line": one.number,
            "text": one.text,
            "cause": one.cause,
            "fix": name_node(one.fix, explanation.node),
            "source": one.rule.source,
            "evidence": one.rule.evidence,
        }
        for explanation in explanations
        for one in explanation.findings
    ]
