"""The dead-man switch: an attempt whose lease is not renewed is stopped."""

from typing import Any, Dict, Mapping, Optional

from tpuherd_host.agent.state_machine.messages import AppendNote
from tpuherd_host.agent.state_machine.state import ATTEMPT, Connection, Task
from tpuherd_host.agent.state_machine.task_lifecycle import WORD_PORT, stop_task
from tpuherd_host.agent.state_machine.transition import (
    CallRefused,
    Transition,
    check_epoch,
    parse_fields,
)

CallArguments = Mapping[str, Any]


def with_lease(work: Task, seconds: Optional[float], now: float) -> Task:
    """Return the task with a lease of this length; None leaves its switch unarmed."""
    if seconds is None:
        return work
    if seconds <= 0:
        raise CallRefused("unfit", "a lease must be longer than 0 s")
    return work._replace(lease_s=seconds, lease_until=now + seconds)


def renew_leases(
    transition: Transition, one: Connection, call: int, content: CallArguments
) -> CallArguments:
    """Renew the leases of all attempts of this owner, or of one."""
    check_epoch(transition, one)
    asked = parse_fields(content, seconds=float, attempt=str)
    renewed: Dict[str, float] = {}
    for work in list(transition.state.works.values()):
        meant = asked.get("attempt", work.id) == work.id and work.owner == one.owner
        if work.kind == ATTEMPT and work.is_live and meant:
            seconds = asked.get("seconds", work.lease_s)
            if seconds is not None:
                work = transition.save_task(with_lease(work, seconds, transition.now), hard=False)
                renewed[work.id] = transition.now + seconds
    return {"leases": renewed}


def expire_lease(transition: Transition, work: Task) -> None:
    """Stop an attempt whose lease ended, and report that its node should be deleted."""
    work = transition.put_task(work._replace(deadman=True, lease_until=None))
    why = f"no lease for {work.lease_s or 0:.0f} s: the dead-man switch"
    transition.add_effects(
        AppendNote(work, WORD_PORT, f"{why}; it is stopped, and its node should be deleted")
    )
    transition.send_event({"event": "deadman", "attempt": work.id, "wanted": "delete", "why": why})
    stop_task(transition, work, work.grace_s, why)
