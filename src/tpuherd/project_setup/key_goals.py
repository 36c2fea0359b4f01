"""Our SSH key in the project's metadata, where the hosts of all nodes look for keys."""

from collections.abc import Mapping

from tpuherd.cloud import project_metadata_api
from tpuherd.cloud.parse import SSH_KEYS, add_ssh_key
from tpuherd.project_setup.setup_session import SetupSession
from tpuherd.project_setup.setup_types import (
    Facts,
    GoalFinding,
    GoalState,
    RecordedChange,
    SetupGoal,
    UndoResult,
)

Items = Mapping[str, str]
USE_OS_LOGIN = "use --keys os-login --member YOU@EXAMPLE.COM"


async def look_for_key(goal: SetupGoal, here: SetupSession) -> GoalFinding:
    project = await project_metadata_api.get_compute_project(here.rest, here.project)
    if project.os_login:
        note = f"the project uses OS Login, which ignores keys in metadata: {USE_OS_LOGIN}"
        return GoalFinding(goal=goal, state=GoalState.BLOCKED, note=note)
    items = project.metadata.items
    login, _, public = goal.name.partition(":")
    if add_ssh_key(items, login, public) is None:
        return GoalFinding(goal=goal, state=GoalState.THERE)
    others = len([line for line in items.get(SSH_KEYS, "").splitlines() if line.strip()])
    return GoalFinding(
        goal=goal,
        state=GoalState.MISSING,
        note=f"{others} other keys stay" if others else "",
        facts={
            "login": login,
            "public": public,
            "first": SSH_KEYS not in items,
            "newline": items.get(SSH_KEYS, "").endswith("\n"),
        },
    )


async def make_key(finding: GoalFinding, here: SetupSession) -> Facts:
    facts = finding.facts

    def add_key(items: Items) -> Items | None:
        return add_ssh_key(items, facts["login"], facts["public"])

    await project_metadata_api.change_metadata(here.rest, here.project, add_key, here.clock)
    return facts


async def undo_key(change: RecordedChange, here: SetupSession, *, act: bool) -> UndoResult:
    login = change.facts["login"]

    def remove_key(items: Items) -> Items | None:
        return without_ssh_key(items, change.name, change.facts)

    project = await project_metadata_api.get_compute_project(here.rest, here.project)
    if remove_key(project.metadata.items) is None:
        sentence = f"the SSH key of {login} is not in the project's metadata any more"
        return UndoResult(change=change, sentence=sentence, undone=True)
    if act:
        await project_metadata_api.change_metadata(here.rest, here.project, remove_key, here.clock)
    sentence = f"Remove the SSH key of {login} from the project's metadata"
    return UndoResult(change=change, sentence=sentence, undone=True)


def without_ssh_key(items: Items, mine: str, facts: Facts) -> Items | None:
    """Return the metadata without the line of that key; None if it has none.

    An item that we added goes as a whole when it is empty.
    """
    lines = items.get(SSH_KEYS, "").split("\n")
    kept = [line for line in lines if " ".join(line.split()[:2]) != mine]
    if len(kept) == len(lines):
        return None
    text = "\n".join(kept)
    if facts["newline"] and kept and kept == lines[:-1]:  # ours was the last line
        text += "\n"
    if facts["first"] and not text.strip():
        return {name: value for name, value in items.items() if name != SSH_KEYS}
    return {**items, SSH_KEYS: text}
