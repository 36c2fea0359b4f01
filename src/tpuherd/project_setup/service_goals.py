"""APIs of the project, and the account with which Cloud TPU acts there."""

from tpuherd.cloud import services_api
from tpuherd.errors import HerdError, InvalidInput, NotAllowed, NotFound
from tpuherd.project_setup.goals import TPU
from tpuherd.project_setup.setup_session import SetupSession
from tpuherd.project_setup.setup_types import (
    Facts,
    GoalFinding,
    GoalState,
    RecordedChange,
    SetupGoal,
    UndoResult,
)

#: Roles that Google gives the identity; its documentation has used both names.
TPU_AGENT_ROLES = frozenset({"roles/cloudtpu.serviceAgent", "roles/tpu.serviceAgent"})


async def look_for_service(goal: SetupGoal, here: SetupSession) -> GoalFinding:
    enabled = goal.name in await here.enabled_services()
    return GoalFinding(goal=goal, state=GoalState.THERE if enabled else GoalState.MISSING)


async def make_service(finding: GoalFinding, here: SetupSession) -> Facts:
    name = finding.goal.name
    try:
        await services_api.enable_service(here.rest, here.project, name, here.clock)
    except (NotFound, InvalidInput) as error:
        refusal = InvalidInput(f"{name} can't be enabled: {error.sentence}")
        raise refusal.carry_reply(error.status, error.reply) from error
    return {}


async def undo_service(change: RecordedChange, here: SetupSession, *, act: bool) -> UndoResult:
    if change.name not in await here.enabled_services():
        return UndoResult(change=change, sentence=f"{change.name} is disabled", undone=True)
    if act:
        try:
            await services_api.disable_service(here.rest, here.project, change.name, here.clock)
        except InvalidInput as error:  # in use, or another API needs it
            sentence = f"{change.name} stays enabled: {error.sentence}"
            return UndoResult(change=change, sentence=sentence, undone=False, kept=True)
    return UndoResult(change=change, sentence=f"Disable {change.name}", undone=True)


async def look_for_identity(goal: SetupGoal, here: SetupSession) -> GoalFinding:
    """The identity shows itself by its role. If we may not see roles, it is asked for again."""
    if TPU not in await here.enabled_services():
        return GoalFinding(goal=goal, state=GoalState.LATER)
    try:
        roles = await here.project_roles()
    except HerdError as error:
        if not isinstance(error, NotAllowed):
            raise
        return GoalFinding(goal=goal, state=GoalState.MISSING, note="herd may not see if it exists")
    for member, held in roles.items():
        if held & TPU_AGENT_ROLES:
            return GoalFinding(goal=goal, state=GoalState.THERE, note=member.partition(":")[2])
    return GoalFinding(goal=goal, state=GoalState.MISSING)


async def make_identity(finding: GoalFinding, here: SetupSession) -> Facts:
    name = finding.goal.name
    email = await services_api.create_identity(here.rest, here.project, name, here.clock)
    return {"email": email}


async def undo_identity(change: RecordedChange, here: SetupSession, *, act: bool) -> UndoResult:
    email = change.facts.get("email") or f"the service identity of {change.name}"
    return UndoResult(
        change=change, sentence=f"{email} stays: Google has no way to delete it", undone=False
    )
