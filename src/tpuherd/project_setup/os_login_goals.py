"""Our SSH key in a user's OS Login profile, for projects where keys in metadata are ignored."""

from tpuherd.cloud import os_login_api
from tpuherd.errors import NotAllowed
from tpuherd.project_setup.setup_session import SetupSession, is_api_disabled
from tpuherd.project_setup.setup_types import (
    Facts,
    GoalFinding,
    GoalState,
    RecordedChange,
    SetupGoal,
    UndoResult,
)


async def look_for_login_key(goal: SetupGoal, here: SetupSession) -> GoalFinding:
    facts = goal.facts
    try:
        profile = await os_login_api.get_login_profile(here.rest, facts["email"])
    except NotAllowed as error:
        if is_api_disabled(error):
            raise
        note = "only its user may see and change it: that user can run this command"
        return GoalFinding(goal=goal, state=GoalState.BLOCKED, note=note)
    login = f"log in as {profile.username}: herd context add NAME --login {profile.username}"
    note = login if profile.username and profile.username != here.place.login else ""
    if profile.fingerprint(facts["public"]):
        return GoalFinding(goal=goal, state=GoalState.THERE, note=note)
    return GoalFinding(goal=goal, state=GoalState.MISSING, note=note, facts=dict(facts))


async def make_login_key(finding: GoalFinding, here: SetupSession) -> Facts:
    email, public = finding.facts["email"], finding.facts["public"]
    await os_login_api.import_login_key(here.rest, email, public)
    return finding.facts


async def undo_login_key(change: RecordedChange, here: SetupSession, *, act: bool) -> UndoResult:
    email, public = change.facts["email"], change.facts["public"]
    profile = await os_login_api.get_login_profile(here.rest, email)
    fingerprint = profile.fingerprint(public)
    if not fingerprint:
        sentence = f"the OS Login profile of {email} does not have the SSH key any more"
        return UndoResult(change=change, sentence=sentence, undone=True)
    if act:
        await os_login_api.delete_login_key(here.rest, email, fingerprint)
    sentence = f"Remove the SSH key from the OS Login profile of {email}"
    return UndoResult(change=change, sentence=sentence, undone=True)
