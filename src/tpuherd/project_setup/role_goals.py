"""Roles on the project: the user's, and those of the nodes' account."""

from tpuherd.cloud import project_policy_api
from tpuherd.errors import InvalidInput, NotAllowed
from tpuherd.project_setup.setup_session import SetupSession
from tpuherd.project_setup.setup_types import (
    Facts,
    GoalFinding,
    GoalState,
    RecordedChange,
    SetupGoal,
    UndoResult,
)

#: Basic roles that include every role of ours.
INCLUDES_ALL = frozenset({"roles/owner", "roles/editor"})
OWNER = frozenset({"roles/owner"})


async def look_for_role(goal: SetupGoal, here: SetupSession) -> GoalFinding:
    """Ask what the caller may do; of others, read the policy."""
    if goal.facts.get("permissions") and not goal.facts["member"]:
        return await look_for_own_role(goal, here)
    member, role = goal.facts["member"], goal.facts["role"]
    try:
        held = (await here.project_roles()).get(member, frozenset())
    except NotAllowed:
        return GoalFinding(
            goal=goal,
            state=GoalState.BLOCKED,
            note=f"you may not see the project's roles; its owner can run: "
            f"{grant_command(here.project, member, role)}",
        )
    enough = OWNER if "permissions" in goal.facts else INCLUDES_ALL
    for known in sorted(held & {role, *enough}):
        return GoalFinding(goal=goal, state=GoalState.THERE, note=f"it has {known}")
    return GoalFinding(goal=goal, state=GoalState.MISSING)


async def look_for_own_role(goal: SetupGoal, here: SetupSession) -> GoalFinding:
    """Whether the caller has the permissions; whose roles to change, we must be told."""
    try:
        held = await here.held_permissions(frozenset(goal.facts["permissions"]))
    except InvalidInput as error:  # not every permission can be asked for
        note = f"herd can't tell ({error.sentence}): name your account with --member user:YOU"
        return GoalFinding(goal=goal, state=GoalState.BLOCKED, note=note)
    missing = [name for name in goal.facts["permissions"] if name not in held]
    if not missing:
        return GoalFinding(goal=goal, state=GoalState.THERE)
    return GoalFinding(
        goal=goal,
        state=GoalState.BLOCKED,
        note=f"you lack {missing[0]}: name your account with --member user:YOU, or ask the "
        f"project's owner to run: {grant_command(here.project, 'user:YOU', goal.facts['role'])}",
    )


def grant_command(project: str, member: str, role: str) -> str:
    return f"gcloud projects add-iam-policy-binding {project} --member={member} --role={role}"


async def make_role(finding: GoalFinding, here: SetupSession) -> Facts:
    member, role = finding.goal.facts["member"], finding.goal.facts["role"]
    try:
        await project_policy_api.add_project_role(here.rest, here.project, member, role)
    except NotAllowed as error:
        hint = f"its owner can run: {grant_command(here.project, member, role)}"
        refused = NotAllowed("you may not change the project's roles", hint=hint)
        raise refused.carry_reply(error.status, error.reply) from error
    except InvalidInput as error:
        hint = "is the account's name right?"
        wrong = InvalidInput(f"{member} can't get {role}: {error.sentence}", hint=hint)
        raise wrong.carry_reply(error.status, error.reply) from error
    return {"member": member, "role": role}


async def undo_role(change: RecordedChange, here: SetupSession, *, act: bool) -> UndoResult:
    member, role = change.facts["member"], change.facts["role"]
    if role not in (await here.project_roles()).get(member, ()):
        sentence = f"{member} does not have {role} any more"
        return UndoResult(change=change, sentence=sentence, undone=True)
    if act:
        await project_policy_api.remove_project_role(here.rest, here.project, member, role)
    return UndoResult(change=change, sentence=f"Take {role} from {member}", undone=True)
