"""Follows each resource and operation of a transcript, and compares their states and durations."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tpuherd_sim.compare.differences import Findings
from tpuherd_sim.compare.exchange_differences import items_of
from tpuherd_sim.compare.lifecycles import (
    OPERATION_SPANS,
    STATE_SPANS,
    STEPS,
    Span,
    least_time_between,
)
from tpuherd_sim.compare.seen_messages import Json, shown_state
from tpuherd_sim.compare.transcript_file import Exchange, Transcript
from tpuherd_sim.handle import world_router

TIME = re.compile(r"<time:(-?\d{1,12}\.\d{1,6}):")
COLLECTIONS = {"nodes": "Node", "queuedResources": "QueuedResource"}
#: A duration is far from the model's below this part of the least, above this many of the most.
LOW, HIGH = 0.5, 4.0
SLACK_S = 5.0
HOSTS_S = 20.0  #: a world's hosts boot in real time, however fast its cloud is


@dataclass(frozen=True, kw_only=True, slots=True)
class Sighting:
    """A resource in one reply: it had the state at some time between the two."""

    kind: str
    state: str
    asked_at: float
    seen_at: float
    line: int
    created_at: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class StateRun:
    """Sightings in a row with the same state."""

    first: Sighting
    last: Sighting


def compare_lifecycles(transcript: Transcript, findings: Findings) -> None:
    """Add what happened to resources and operations that the model would not do."""
    slack = SLACK_S if transcript.cloud == "google" else HOSTS_S
    for sightings in follow_resources(transcript.exchanges).values():
        runs = join_sightings(sightings)
        for number, run in enumerate(runs[1:], 1):
            compare_step(runs[number - 1], run, transcript.time_scale, findings)
            before = runs[number - 2] if number > 1 else None
            compare_span(before, runs[number - 1], run, (transcript.time_scale, slack), findings)
    for one in transcript.exchanges:
        if one.status == 200 and not one.repeated:
            for operation in find_operations(one):
                compare_operation(operation, one.line, (transcript.time_scale, slack), findings)


def follow_resources(exchanges: tuple[Exchange, ...]) -> dict[tuple[str, str], list[Sighting]]:
    """Return the sightings of each resource, by its name and what tells its incarnations apart."""
    found: dict[tuple[str, str], list[Sighting]] = {}
    for one in exchanges:
        for kind, item in find_resources(one):
            state = shown_state(item)
            if not state:
                continue
            key = (str(item.get("name")), str(item.get("createTime")))
            found.setdefault(key, []).append(
                Sighting(
                    kind=kind,
                    state=state,
                    asked_at=one.at,
                    seen_at=one.at + max(one.took_s, 0.0),
                    line=one.line,
                    created_at=parse_moment(item.get("createTime")),
                )
            )
    return found


def find_resources(one: Exchange) -> Iterator[tuple[str, Json]]:
    """Yield the nodes and queued resources that a reply shows as they are now."""
    found = world_router().find(one.method, f"/{one.path}")
    if found is None or one.method != "GET" or one.status != 200 or one.reply is None:
        return
    collection, _, verb = found.name.partition(".")
    kind = COLLECTIONS.get(collection)
    if kind is None:
        return
    if verb == "get":
        yield kind, one.reply
    elif verb == "list":
        yield from ((kind, item) for item in items_of(one.reply, collection))


def find_operations(one: Exchange) -> Iterator[Json]:
    reply = one.reply or {}
    for item in (reply, *items_of(reply, "operations")):
        if item.get("done") is True and isinstance(item.get("metadata"), dict):
            yield item


def parse_moment(value: object) -> float | None:
    found = TIME.match(value) if isinstance(value, str) else None
    return float(found[1]) if found else None


def join_sightings(sightings: list[Sighting]) -> list[StateRun]:
    """Return the runs of equal states. Of replies that overlap in time, the order is unknown: one
    that shows another state is left out.
    """
    runs: list[StateRun] = []
    for one in sorted(sightings, key=lambda each: each.seen_at):
        last = runs[-1].last if runs else None
        if last is not None and last.state == one.state:
            runs[-1] = StateRun(first=runs[-1].first, last=one)
        elif last is None or one.asked_at >= last.seen_at:
            runs.append(StateRun(first=one, last=one))
    return runs


def compare_step(before: StateRun, run: StateRun, scale: float, findings: Findings) -> None:
    """Report a change that the model does not make, or not so quickly."""
    kind, first, second = run.first.kind, before.last.state, run.first.state
    if not {first, second} <= STEPS[kind].keys():
        return  # a state that the model does not have is reported as a value
    least_s = least_time_between(kind, first, second)
    subject = f"{kind} {first} → {second}"
    if least_s is None:
        sentence = f"a {kind} went from {first} to {second}; the model's never do"
        findings.add("transition", subject, sentence, run.first.line)
        return
    gap = run.first.seen_at - before.last.asked_at
    if gap < least_s / scale * LOW:
        sentence = f"a {kind} went from {first} to {second} within {gap:.0f} s; the model needs"
        findings.add("transition", subject, f"{sentence} {least_s:.0f} s", run.first.line)


def compare_span(
    before: StateRun | None,
    run: StateRun,
    after: StateRun,
    speed: tuple[float, float],
    findings: Findings,
) -> None:
    """Report a state that surely lasted much shorter or longer than the model's."""
    kind, state = run.first.kind, run.first.state
    span = STATE_SPANS.get((kind, state, after.first.state))
    if span is None:
        return
    shortest = run.last.asked_at - run.first.seen_at
    longest = None
    if before is not None:
        longest = after.first.seen_at - before.last.asked_at
    elif state == "CREATING" and run.first.created_at is not None:
        longest = after.first.seen_at - run.first.created_at
        shortest = run.last.asked_at - run.first.created_at
    subject = f"{kind} {state}"
    compare_duration(f"a {kind} was {state}", subject, (shortest, longest), (span, speed),
                     (after.first.line, findings))  # fmt: skip


def compare_operation(
    operation: Json, line: int, speed: tuple[float, float], findings: Findings
) -> None:
    """Compare the duration of a successful operation, which it states itself."""
    metadata = operation["metadata"]
    begun, ended = (parse_moment(metadata.get(name)) for name in ("createTime", "endTime"))
    parts = str(metadata.get("target", "")).split("/")
    verb = str(metadata.get("verb", ""))
    span = OPERATION_SPANS.get((parts[-2] if len(parts) > 1 else "", verb))
    if begun is None or ended is None or span is None or "error" in operation:
        return
    took = ended - begun
    title = f"{parts[-2]}.{verb}"
    compare_duration(f"the operation {title} ran", f"Operation {title}", (took, took),
                     (span, speed), (line, findings))  # fmt: skip


def compare_duration(
    title: str,
    subject: str,
    observed: tuple[float, float | None],
    expected: tuple[Span, tuple[float, float]],
    place: tuple[int, Findings],
) -> None:
    """Report a duration if even its nearest possible value is far from the model's."""
    shortest, longest = observed
    (low, high), (scale, slack) = expected
    line, findings = place
    usual = f"the model's takes {low:.0f} to {high:.0f} s"
    if scale != 1.0:
        usual += f", here {scale:g} times faster"
    if longest is not None and longest < low / scale * LOW - SLACK_S:
        findings.add("timing", subject, f"{title} for less than {longest:.0f} s; {usual}", line)
    elif shortest > high / scale * HIGH + slack:
        findings.add("timing", subject, f"{title} for at least {shortest:.0f} s; {usual}", line)
