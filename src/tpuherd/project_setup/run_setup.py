"""Looks at all goals, makes what is missing, and undoes what was made.

Each goal is looked at again right before it is made, recorded as begun, made, and recorded as
settled. After a kill in between, a second run finds the goal there or missing and goes on; the
record stays until `--undo` has dealt with it.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from tpuherd.errors import HerdError, NotReached
from tpuherd.project_setup import (
    firewall_goals,
    key_goals,
    os_login_goals,
    role_goals,
    service_goals,
    way_goals,
)
from tpuherd.project_setup.goals import COMPUTE, OS_LOGIN
from tpuherd.project_setup.setup_session import SetupSession, is_api_disabled
from tpuherd.project_setup.setup_types import (
    Facts,
    GoalFinding,
    GoalKind,
    GoalState,
    RecordedChange,
    SetupGoal,
    UndoResult,
)


class UndoChange(Protocol):
    async def __call__(
        self, change: RecordedChange, here: SetupSession, *, act: bool
    ) -> UndoResult: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class GoalFunctions:
    """How goals of one kind are looked at, made and undone."""

    look: Callable[[SetupGoal, SetupSession], Awaitable[GoalFinding]]
    make: Callable[[GoalFinding, SetupSession], Awaitable[Facts]]
    undo: UndoChange


KINDS: Mapping[GoalKind, GoalFunctions] = {
    GoalKind.SERVICE: GoalFunctions(
        look=service_goals.look_for_service,
        make=service_goals.make_service,
        undo=service_goals.undo_service,
    ),
    GoalKind.IDENTITY: GoalFunctions(
        look=service_goals.look_for_identity,
        make=service_goals.make_identity,
        undo=service_goals.undo_identity,
    ),
    GoalKind.ROLE: GoalFunctions(
        look=role_goals.look_for_role, make=role_goals.make_role, undo=role_goals.undo_role
    ),
    GoalKind.FIREWALL: GoalFunctions(
        look=firewall_goals.look_for_rule,
        make=firewall_goals.make_rule,
        undo=firewall_goals.undo_rule,
    ),
    GoalKind.KEY: GoalFunctions(
        look=key_goals.look_for_key, make=key_goals.make_key, undo=key_goals.undo_key
    ),
    GoalKind.OS_LOGIN: GoalFunctions(
        look=os_login_goals.look_for_login_key,
        make=os_login_goals.make_login_key,
        undo=os_login_goals.undo_login_key,
    ),
    GoalKind.WAY: GoalFunctions(
        look=way_goals.look_for_way, make=way_goals.make_way, undo=way_goals.undo_way
    ),
}


#: What must answer before a change of that kind can be undone.
APIS = {GoalKind.FIREWALL: COMPUTE, GoalKind.KEY: COMPUTE, GoalKind.OS_LOGIN: OS_LOGIN}


async def survey_goals(goals: Sequence[SetupGoal], here: SetupSession) -> list[GoalFinding]:
    """Look at every goal and change nothing."""
    return [await look_at_goal(goal, here) for goal in goals]


async def look_at_goal(goal: SetupGoal, here: SetupSession) -> GoalFinding:
    """Look at one goal; an error that is about this goal alone blocks it."""
    try:
        if goal.api and goal.api not in await here.enabled_services():
            return GoalFinding(goal=goal, state=GoalState.LATER)
    except NotReached:
        raise
    except HerdError:  # we may not list APIs: ask the API itself
        pass
    try:
        return await KINDS[goal.kind].look(goal, here)
    except NotReached:
        raise
    except HerdError as error:
        if is_api_disabled(error) and goal.api:
            return GoalFinding(goal=goal, state=GoalState.LATER)
        return GoalFinding(goal=goal, state=GoalState.BLOCKED, note=error_text(error))


async def make_goals(goals: Sequence[SetupGoal], here: SetupSession) -> AsyncIterator[GoalFinding]:
    """Make what is missing, goal by goal, and yield how each ended.

    A goal that fails does not keep the others from being made. Raises NotReached if the cloud
    can't be reached: what was begun is recorded.
    """
    for goal in goals:
        try:
            yield await make_goal(goal, here)
        except NotReached:
            raise
        except HerdError as error:
            yield GoalFinding(goal=goal, state=GoalState.FAILED, note=error_text(error))


async def make_goal(goal: SetupGoal, here: SetupSession) -> GoalFinding:
    functions = KINDS[goal.kind]
    finding = await here.wait_for_api(goal.api, lambda: functions.look(goal, here))
    recorded = here.journal.find(goal.kind, goal.name)
    if finding.state is not GoalState.MISSING:
        if recorded is not None and not recorded.settled and finding.state is GoalState.THERE:
            here.journal.put(replace(recorded, settled=True))
        return finding
    begun = RecordedChange(
        kind=goal.kind,
        name=goal.name,
        settled=False,
        at=here.clock.now(),
        facts=merge_facts(recorded, finding.facts or goal.facts),
    )
    here.journal.put(begun)
    try:
        facts = await here.wait_for_api(goal.api, lambda: functions.make(finding, here))
    except HerdError as error:
        if is_refusal(error):
            await drop_unmade(goal, begun, recorded, here)
        raise
    finally:
        here.drop_caches()
    here.journal.put(replace(begun, settled=True, facts={**begun.facts, **facts}))
    return replace(finding, state=GoalState.MADE)


def is_refusal(error: HerdError) -> bool:
    """Whether the cloud has answered no. After other errors the change may still happen."""
    return 0 < error.status < 500


def merge_facts(recorded: RecordedChange | None, facts: Facts) -> Facts:
    """What was there before our first change is what `--undo` returns to."""
    if recorded is None or recorded.kind is GoalKind.FIREWALL:
        return facts
    kept = ("before", "added", "current", "first")
    return {**facts, **{name: recorded.facts[name] for name in kept if name in recorded.facts}}


async def drop_unmade(
    goal: SetupGoal, begun: RecordedChange, recorded: RecordedChange | None, here: SetupSession
) -> None:
    """After a refusal, drop the record if nothing was made: others may make the same later.

    A refusal may also come after the change, of the call that waits for its end; then it stays.
    """
    here.drop_caches()
    try:
        if (await KINDS[goal.kind].look(goal, here)).state is GoalState.THERE:
            return
    except HerdError:  # unknown: `--undo` will look
        return
    if recorded is None:
        here.journal.remove(begun)
    else:
        here.journal.put(recorded)


async def undo_changes(here: SetupSession, *, act: bool) -> AsyncIterator[UndoResult]:
    """Undo all recorded changes, the last one first, and yield how each ended.

    Without `act`, yield what would happen. Raises NotReached if the cloud can't be reached.
    """
    for change in reversed(list(here.journal.changes)):
        try:
            result = await undo_change(change, here, act=act)
        except NotReached:
            raise
        except (HerdError, KeyError, TypeError) as error:
            text = error_text(error) if isinstance(error, HerdError) else "its record is damaged"
            yield UndoResult(
                change=change,
                sentence=f"{change.kind.value} {change.name}: {text}",
                undone=False,
                failed=True,
            )
            continue
        if act and not result.kept:
            here.journal.remove(change)
        if act:
            here.drop_caches()
        yield result


async def undo_change(change: RecordedChange, here: SetupSession, *, act: bool) -> UndoResult:
    undo = KINDS[change.kind].undo
    api = APIS.get(change.kind, "")
    return await here.wait_for_api(api, lambda: undo(change, here, act=act))


def error_text(error: HerdError) -> str:
    return f"{error.sentence}; {error.hint}" if error.hint else error.sentence
