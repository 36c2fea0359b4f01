"""Explains how attempts of a job ended, from the stored logs of all their hosts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tpuherd.accounting.goodput import AttemptAccount
from tpuherd.commands.find_logs import (
    HostLog,
    LogQuery,
    find_logs,
    no_logs_sentence,
    submission_times,
)
from tpuherd.commands.log_windows import HEAD_BYTES, TAIL_BYTES, large_notices
from tpuherd.diagnosis.explain import (
    PREEMPTED,
    Finding,
    FindingRole,
    explain_hosts,
    state_fact,
)
from tpuherd.diagnosis.log_scanner import HostScan, LogScanner
from tpuherd.diagnosis.match_line import RuleBook
from tpuherd.errors import NotFound
from tpuherd.jobs.job_queries import job_attempts
from tpuherd.model.slot_history import Verdict
from tpuherd.settings.project_access import ProjectScope
from tpuherd.store.log_store import SETUP, LogStore
from tpuherd.store.open_database import open_database
from tpuherd.targets import split_bid_name
from tpuherd.views.finding_lines import Explanation
from tpuherd.views.fold_output import PlainMerger
from tpuherd_host.agent.log_records import Record

WELL = {Verdict.SUCCESS, Verdict.STOPPED}


@dataclass(frozen=True, kw_only=True, slots=True)
class RunLogs:
    """An attempt, a setup or a command with all that is stored of it."""

    id: str
    slot: str  #: or what it ran on
    started: float
    setup: bool = False
    account: AttemptAccount | None = None  #: of an attempt that the store knows
    logs: tuple[HostLog, ...] = field(default=())

    @property
    def subject(self) -> str:
        if self.account is not None:
            return f"attempt {self.account.attempt.number} of {self.slot}"
        number = self.logs[0].number if self.logs else 0
        if self.setup:
            return f"the setup of {self.slot}"
        return f"attempt {number} of {self.slot}" if number else self.id


def explain_job(
    look: LogQuery, shelf: LogStore, place: ProjectScope, book: RuleBook, now: float
) -> tuple[list[Explanation], list[str]]:
    """Explain the chosen attempt of each slot, or the latest ones; return notices, too.

    Raise NotFound if neither an attempt nor a log is known.
    """
    runs = find_runs(look, shelf, place, now)
    if not runs:
        raise NotFound(no_logs_sentence(look, shelf))
    skipped: dict[str, int] = {}
    if look.attempt is None:
        runs = latest_runs(runs)
    explained = [explain_run(run, shelf, book, skipped) for run in runs]
    failed = [one for one in explained if one.findings]
    return failed or explained, large_notices(skipped)


def latest_runs(runs: Sequence[RunLogs]) -> list[RunLogs]:
    """The latest attempt of each slot, and a setup that came after it."""
    latest: dict[tuple[str, bool], RunLogs] = {(run.slot, run.setup): run for run in runs}
    attempts = {slot: run.started for (slot, setup), run in latest.items() if not setup}
    return [
        run
        for (slot, setup), run in latest.items()
        if not setup or run.started > attempts.get(slot, 0.0)
    ]


def find_runs(look: LogQuery, shelf: LogStore, place: ProjectScope, now: float) -> list[RunLogs]:
    """All that ran on the target, the oldest first."""
    assert look.target is not None
    begun = submission_times(look.target, place, now)
    found: dict[str, RunLogs] = {}
    for log in find_logs(look, shelf, begun):
        bid = split_bid_name(log.place.bid or log.place.node)
        before = found.get(log.about.id) or RunLogs(
            id=log.about.id,
            slot=bid.slot if bid is not None else log.about.target,
            started=log.about.started,
            setup=log.about.kind == SETUP,
        )
        found[log.about.id] = replace(before, logs=(*before.logs, log))
    for slot, account in load_attempts(look.target, place, now):
        attempt = account.attempt
        if look.attempt not in (None, str(attempt.number), attempt.id):
            continue
        if attempt.launched_at < begun.get(slot.rpartition("-")[0], 0.0):
            continue
        before = found.get(attempt.id) or RunLogs(
            id=attempt.id, slot=slot, started=attempt.launched_at
        )
        found[attempt.id] = replace(before, slot=slot, account=account)
    return sorted(found.values(), key=lambda run: run.started)


def load_attempts(target: str, place: ProjectScope, now: float) -> list[tuple[str, AttemptAccount]]:
    """The attempts of a job or slot that the store knows, with their slots."""
    if not place.has_store:
        return []
    store = open_database(place, now)
    try:
        return job_attempts(store, now, target)
    finally:
        store.close()


def explain_run(
    run: RunLogs, shelf: LogStore, book: RuleBook, skipped: dict[str, int]
) -> Explanation:
    """What the logs of one run say, together with what the engine knows of its end."""
    plain = Explanation(
        subject=run.subject,
        findings=(),
        attempt=run.id,
        node=run.slot,
        healthy=healthy_text(run),
    )
    if run.account is not None and run.account.attempt.verdict in WELL:
        return plain
    exits = known_exits(run)
    scans = [scan_log(log, shelf, book, exits, skipped) for log in run.logs]
    found = add_known_end(explain_hosts(scans, book), run, book)
    alarm = "" if found else next((scan.alarm for scan in scans if scan.alarm), "")
    return replace(plain, findings=found, alarm=alarm)


def healthy_text(run: RunLogs) -> str:
    """The sentence about a run in whose logs nothing is found."""
    subject = f"{run.subject[0].upper()}{run.subject[1:]}"
    if run.account is None:
        return f"Nothing in the logs of {run.subject} points to a known failure."
    verdict = run.account.attempt.verdict
    if verdict is None:
        return f"{subject} runs, and nothing in its logs points to a known failure."
    if verdict is Verdict.SUCCESS:
        return f"{subject} succeeded."
    why = run.account.why or str(verdict)
    if verdict is Verdict.STOPPED:
        return f"{subject} was stopped: {why}."
    return f"{subject} ended: {why}. No rule knows this failure."


def known_exits(run: RunLogs) -> Mapping[str, int]:
    """The exit status of the host that failed first."""
    attempt = run.account.attempt if run.account is not None else None
    if attempt is None or attempt.exit is None:
        return {}
    return {attempt.host: attempt.exit}


def add_known_end(found: Sequence[Finding], run: RunLogs, book: RuleBook) -> tuple[Finding, ...]:
    """Put first what the cloud or the engine knows, where logs do not tell the cause."""
    attempt = run.account.attempt if run.account is not None else None
    if run.account is None or attempt is None:
        return tuple(found)
    why, rule = run.account.why, book.rules.get(attempt.finding)
    if attempt.verdict is Verdict.PREEMPTED:
        rule = book.rules[PREEMPTED]
    elif rule is None or any(one.role is FindingRole.CAUSE for one in found):
        return tuple(found)
    known = state_fact(rule, attempt.host or attempt.bid, why, attempt.lines)
    rest = (replace(one, role=demoted_role(one)) for one in found if one.id != rule.id)
    return known, *rest


def demoted_role(finding: Finding) -> FindingRole:
    return FindingRole.ALSO if finding.role is FindingRole.CAUSE else finding.role


def scan_log(
    log: HostLog, shelf: LogStore, book: RuleBook, exits: Mapping[str, int], skipped: dict[str, int]
) -> HostScan:
    """Scan the log of one host, without the middle of a large one."""
    end = shelf.end_offset(log.about.id, log.place)
    if end > HEAD_BYTES + TAIL_BYTES:
        skipped[f"the log of {log.label}"] = end - HEAD_BYTES - TAIL_BYTES
    scanner, plain = LogScanner(log.label, book), PlainMerger()
    at = log.about.started
    for record in read_ends(log, shelf, end):
        at = record.at
        for block in plain.feed("", record.port, record.piece, at):
            scanner.feed_text(block.text.decode(errors="replace"), at=at)
    for block in plain.end_host("", at):
        scanner.feed_text(block.text.decode(errors="replace"), at=at)
    return scanner.finish(exits.get(f"{log.place.node}/w{log.place.worker}"))


def read_ends(log: HostLog, shelf: LogStore, end: int) -> Iterator[Record]:
    """The records at the beginning and the end of a host's log."""
    tail = end - TAIL_BYTES
    for offset, record in shelf.read_records(log.about.id, log.place):
        if HEAD_BYTES < offset < tail:
            break
        yield record
    else:
        return
    for _, record in shelf.read_records(log.about.id, log.place, tail):
        yield record
