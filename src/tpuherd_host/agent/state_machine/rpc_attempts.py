"""The verbs for attempts and setup, and the metadata server's notices."""

from typing import Any, Dict, List, Optional

from tpuherd_host.agent.state_machine.deadman import CallArguments, with_lease
from tpuherd_host.agent.state_machine.messages import AppendNote, StepReported
from tpuherd_host.agent.state_machine.rpc_commands import (
    await_task_end,
    display_title,
    is_different_request,
    parse_stage,
    request_signature,
    require_id,
)
from tpuherd_host.agent.state_machine.state import (
    ATTEMPT,
    ATTEMPT_KEEP_S,
    ATTEMPT_LOG_BYTES,
    COMMAND,
    SETUP,
    Connection,
    Task,
    task_json,
)
from tpuherd_host.agent.state_machine.task_lifecycle import WORD_PORT, begin_stage, stop_task
from tpuherd_host.agent.state_machine.transition import (
    CallRefused,
    Transition,
    check_epoch,
    parse_fields,
)

STEPS_MAX = 100
GIVE_WAY_S = 5.0  #: for a setup that another one replaces
REPORT_S = 1.0  #: the least time between step events; heartbeats carry the latest
WORDS_MAX = 64  #: fields of an attempt's reports; later new ones are dropped
#: Notices at which attempts save and end; whether the node is lost, the cloud says.
DEADLY = {
    "preempted": ("TRUE",),
    "maintenance-event": ("TERMINATE_ON_HOST_MAINTENANCE",),
    "shutdown": ("TERM", "REBOOT"),  #: the host shuts down; REBOOT: it starts again by itself
}


def start_attempt(
    transition: Transition, one: Connection, call: int, content: CallArguments
) -> CallArguments:
    """Start the setup steps, then the command; repeating the same call starts nothing."""
    check_epoch(transition, one)
    id = require_id(content, "attempt")
    work = transition.state.works.get(id)
    if work is not None:
        if is_different_request(work, content):
            raise CallRefused("taken", f"{id} was already started with another command")
        return {**task_json(work), "again": True}
    work = build_attempt(transition, one, id, content)
    refuse_second_attempt(transition, work.slot)
    lease_s = parse_fields(content, lease_s=float).get("lease_s")
    work = transition.save_task(with_lease(work, lease_s, transition.now))
    return {**task_json(begin_stage(transition, work)), "again": False}


def refuse_second_attempt(transition: Transition, slot: str) -> None:
    for other in transition.state.works.values():
        if other.kind == ATTEMPT and other.is_live and other.slot == slot:
            raise CallRefused("busy", f"attempt {other.id} of {slot or 'this slot'} still runs")


def build_attempt(transition: Transition, one: Connection, id: str, content: CallArguments) -> Task:
    asked = parse_fields(
        content, slot=str, number=int, setup=list, grace_s=float, notice_grace_s=float,
        log_bytes=int, keep_s=float, hold_s=float,
    )  # fmt: skip
    steps = [parse_stage(step) for step in check_steps(asked.get("setup", []))]
    return Task(
        id=id,
        kind=ATTEMPT,
        stages=(*(step._replace(preload=False) for step in steps), parse_stage(content)),
        asked=transition.now,
        who=one.who,
        owner=one.owner,
        slot=asked.get("slot", ""),
        number=asked.get("number", 0),
        title=display_title(content),
        keep_s=asked.get("keep_s", ATTEMPT_KEEP_S),
        log_bytes=max(1 << 20, asked.get("log_bytes", ATTEMPT_LOG_BYTES)),
        hold_s=asked.get("hold_s", 0.0),
        grace_s=asked.get("grace_s", 30.0),
        notice_grace_s=asked.get("notice_grace_s", 25.0),
        signed=request_signature(content),
    )


def check_steps(steps: Any) -> Any:
    if len(steps) > STEPS_MAX or not all(isinstance(step, dict) for step in steps):
        raise CallRefused("unfit", f"setup must be a list of at most {STEPS_MAX} steps")
    return steps


def run_setup(
    transition: Transition, one: Connection, call: int, content: CallArguments
) -> Optional[CallArguments]:
    """Run setup steps alone and answer when the last one ends. Another setup of this owner is
    stopped first: its end is the answer, and the caller asks again.
    """
    id = require_id(content, "id")
    work = transition.state.works.get(id)
    if work is None:
        asked = parse_fields(content, steps=list, slot=str, secrets=dict)
        secret = asked.get("secrets", {})
        steps = [
            parse_stage({**step, "env": {**secret, **(step.get("env") or {})}})
            for step in check_steps(asked.get("steps", []))
        ]
        if not steps:
            raise CallRefused("unfit", "a setup needs at least one step")
        older = [
            other
            for other in transition.state.works.values()
            if other.kind == SETUP and other.is_live and other.owner == one.owner
        ]
        if older:
            await_task_end(transition, one, call, older[0].id)
            for other in older:
                stop_task(transition, other, GIVE_WAY_S, "replaced by another setup")
            return None
        work = Task(
            id=id,
            kind=SETUP,
            stages=tuple(step._replace(preload=False) for step in steps),
            asked=transition.now,
            who=one.who,
            owner=one.owner,
            slot=asked.get("slot", ""),
            title=", ".join(step.name for step in steps if step.name)[:200] or "setup",
            signed=request_signature(content),
        )
        await_task_end(transition, one, call, id)
        begin_stage(transition, transition.save_task(work))
        return None
    if is_different_request(work, content):
        raise CallRefused("taken", f"{id} was already started with other steps")
    if not work.is_live:
        return task_json(work)
    await_task_end(transition, one, call, id)
    return None


def list_attempts(
    transition: Transition, one: Connection, call: int, content: CallArguments
) -> CallArguments:
    """List attempts that run or are kept, running setups, and notices: a controller that connects
    later misses nothing.
    """
    works = [
        task_json(work)
        for work in transition.state.works.values()
        if work.kind == ATTEMPT or (work.kind == SETUP and work.is_live)
    ]
    return {
        "attempts": works,
        "notices": dict(transition.state.notices),
        "unused_s": seconds_unused(transition),
        "pauses": list_pauses(transition),
    }


def list_pauses(transition: Transition) -> List[Dict[str, float]]:
    """Return when this agent stood still: how long ago that ended, and how long it took."""
    now = transition.now
    return [{"ago_s": max(0.0, now - at), "s": s} for at, s in transition.state.pauses]


def seconds_unused(transition: Transition) -> Optional[float]:
    """Return how long ago the last command of a user ended; 0: one runs; None: none is known."""
    commands = [work for work in transition.state.works.values() if work.kind == COMMAND]
    if any(work.is_live for work in commands):
        return 0.0
    ends = [work.ended for work in commands if work.ended is not None]
    return max(0.0, transition.now - max(ends)) if ends else None


def halt_attempt(
    transition: Transition, one: Connection, call: int, content: CallArguments
) -> Optional[CallArguments]:
    """Stop an attempt; answer when its chips are free."""
    check_epoch(transition, one)
    id = require_id(content, "attempt")
    work = transition.state.works.get(id)
    if work is None or work.kind != ATTEMPT:
        return {"id": id, "kind": ATTEMPT, "phase": "absent"}
    if not work.is_live:
        return task_json(work)
    grace_s = parse_fields(content, grace_s=float).get("grace_s", work.grace_s)
    await_task_end(transition, one, call, id)
    stop_task(
        transition, work, max(0.0, grace_s), str(content.get("why") or "it was stopped")[:500]
    )
    return None


def apply_report(transition: Transition, event: StepReported) -> None:
    """Record a training program's progress; fields that a report omits keep their values.

    Otherwise a bare "complete" would hide the numbers just before it, which were not sent yet.
    """
    content = dict(event.content)
    work = transition.state.works.get(str(content.pop("attempt", "")))
    if work is None or not work.is_live:
        return
    passing = ("time", "refused")  # of one report each
    known = {name: value for name, value in (work.report or {}).items() if name not in passing}
    if len({*known, *content}) <= WORDS_MAX:
        content = {**known, **content}
    due = transition.now >= work.reported_at + REPORT_S
    at = transition.now if due else work.reported_at
    transition.put_task(work._replace(report={**content, "time": transition.now}, reported_at=at))
    if due:
        report_event = {
            "event": "step",
            "attempt": work.id,
            "time": transition.now,
            "report": content,
        }
        transition.send_event(report_event, engines=True)


def apply_notice(transition: Transition, key: str, value: str) -> None:
    """Report a change of the host's metadata, and stop attempts while there is time to save."""
    if transition.state.notices.get(key) == value:
        return
    transition.state = transition.state._replace(notices={**transition.state.notices, key: value})
    deadly = value in DEADLY.get(key, ())
    notice_event = {
        "event": "notice",
        "what": key,
        "value": value,
        "deadly": deadly,
        "time": transition.now,
    }
    transition.send_event(notice_event)
    for work in list(transition.state.works.values()):
        if deadly and work.kind == ATTEMPT and work.is_live and work.kill_at is None:
            why = f"the host is going away: {key} is {value}"
            transition.add_effects(AppendNote(work, WORD_PORT, why))
            stop_task(transition, work, work.notice_grace_s, why)


def send_heartbeat(transition: Transition) -> None:
    """Tell engines which attempts are alive, and that users run commands."""
    live = [w for w in transition.state.works.values() if w.kind == ATTEMPT and w.is_live]
    commands = seconds_unused(transition) == 0.0
    if live or commands:
        keys = ("id", "phase", "stage", "length", "report")
        rows = [{key: shown[key] for key in keys} for shown in map(task_json, live)]
        event = {"event": "heartbeat", "time": transition.now, "attempts": rows, "used": commands,
                 "pauses": list_pauses(transition)}  # fmt: skip
        transition.send_event(event, engines=True)
