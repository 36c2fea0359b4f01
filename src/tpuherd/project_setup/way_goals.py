"""The context that says how to reach hosts: written here, on this machine."""

from collections.abc import Mapping
from typing import Any

from tpuherd.project_setup.setup_session import SetupSession
from tpuherd.project_setup.setup_types import (
    Facts,
    GoalFinding,
    GoalState,
    RecordedChange,
    SetupGoal,
    UndoResult,
)
from tpuherd.settings.contexts_file import edit_contexts, load_contexts
from tpuherd.settings.host_routes import RouteKind, parse_route
from tpuherd.settings.project_access import ProjectAccess

Json = dict[str, Any]
OF_WORLDS = frozenset({RouteKind.EXTERNAL, RouteKind.COMMAND})


async def look_for_way(goal: SetupGoal, here: SetupSession) -> GoalFinding:
    if here.place.world is not None and parse_route(goal.facts["way"]).kind not in OF_WORLDS:
        note = (
            "only in Google Cloud, as the hosts of a simulated world have external addresses alone"
        )
        return GoalFinding(goal=goal, state=GoalState.THERE, note=note)
    content = load_contexts(here.place.folders.config)
    name = goal.name
    before = content["contexts"].get(name, {}).get("ways")
    if before == [goal.facts["way"]]:
        return GoalFinding(goal=goal, state=GoalState.THERE, note=f"in the context {name}")
    facts = {
        "context": name,
        "way": goal.facts["way"],
        "before": before,
        "added": name not in content["contexts"],
        "current": not content.get("current"),
        "cloud": own_cloud(here.place),
    }
    kind = "a new context" if facts["added"] else "the context"
    now = f", instead of {', '.join(before)}" if before else ""
    note = f"in {kind} {name}{', which becomes the current one' if facts['current'] else ''}{now}"
    return GoalFinding(goal=goal, state=GoalState.MISSING, note=note, facts=facts)


def own_cloud(place: ProjectAccess) -> Json:
    """Return what a context says of this project or world."""
    return {"project": place.project} if place.world is None else {"world": str(place.world)}


def own_context(content: Json, place: ProjectAccess) -> str:
    """Return the name of the project's context: the current one, the first, or a new one."""
    cloud = own_cloud(place)
    names = sorted(content["contexts"], key=lambda name: (name != content.get("current"), name))
    for name in names:
        if cloud.items() <= content["contexts"][name].items():
            return str(name)
    name = place.project
    while name in content["contexts"]:
        name += "-herd"
    return name


async def make_way(finding: GoalFinding, here: SetupSession) -> Facts:
    facts = finding.facts
    with edit_contexts(here.place.folders.config) as content:
        context = content["contexts"].setdefault(facts["context"], dict(facts["cloud"]))
        context["ways"] = [facts["way"]]
        if facts["current"]:
            content["current"] = facts["context"]
    return facts


async def undo_way(change: RecordedChange, here: SetupSession, *, act: bool) -> UndoResult:
    facts, config = change.facts, here.place.folders.config
    name = facts["context"]
    found: Mapping[str, Any] = load_contexts(config)["contexts"].get(name, {})
    if found.get("ways") != [facts["way"]]:
        sentence = f"the context {name} has another way now"
        return UndoResult(change=change, sentence=sentence, undone=True)
    ours = facts["added"] and dict(found) == {**facts["cloud"], "ways": [facts["way"]]}
    if act:
        with edit_contexts(config) as content:
            context = content["contexts"][name]
            if ours:
                del content["contexts"][name]
            elif facts["before"]:
                context["ways"] = facts["before"]
            else:
                del context["ways"]
            if facts["current"] and content.get("current") == name:
                del content["current"]
    sentence = f"Remove the context {name}" if ours else f"Restore the way of the context {name}"
    return UndoResult(change=change, sentence=sentence, undone=True)
