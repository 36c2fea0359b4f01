"""The firewall rule through which SSH reaches the hosts of a network."""

from dataclasses import replace

from tpuherd.cloud import firewalls_api
from tpuherd.cloud.firewall_rules import (
    ANYWHERE,
    MOSH,
    SSH,
    FirewallRule,
    Traffic,
    deciding_rule,
    is_allowed,
    traffic_text,
)
from tpuherd.errors import OperationFailed
from tpuherd.project_setup.setup_session import SetupSession
from tpuherd.project_setup.setup_types import (
    Facts,
    GoalFinding,
    GoalState,
    RecordedChange,
    SetupGoal,
    UndoResult,
)

AUTOMATIC = "10.128.0.0/9"  #: where the addresses of networks with automatic subnetworks are


async def look_for_rule(goal: SetupGoal, here: SetupSession) -> GoalFinding:
    """Whether all wanted traffic gets through; else what our rule must become."""
    network = goal.facts["network"]
    networks = await firewalls_api.list_networks(here.rest, here.project)
    if network not in networks:
        there = f"there are {', '.join(sorted(networks))}" if networks else "there is none"
        note = f"the project has no network {network}: {there}"
        return GoalFinding(goal=goal, state=GoalState.BLOCKED, note=note)
    rules = await firewalls_api.list_firewalls(here.rest, here.project, network)
    automatic = goal.facts["inside"] and networks[network]
    sources = goal.facts["sources"] or [AUTOMATIC if automatic else ANYWHERE]
    traffic = wanted_traffic(goal)
    deciding = {
        (one, source): deciding_rule(rules, one, source) for one in traffic for source in sources
    }
    if all(deciding.values()):
        names = dict.fromkeys(rule.name for rule in deciding.values() if rule is not None)
        note = open_note(rules) or f"by {', '.join(names)}"
        return GoalFinding(goal=goal, state=GoalState.THERE, note=note)
    if sources == [ANYWHERE] and not goal.facts["sources"]:
        note = f"{network} has its own address ranges: name them with --from RANGE"
        if not goal.facts["inside"]:
            note = "herd can't know the address from which you log in: name it with --from ADDRESS"
        return GoalFinding(goal=goal, state=GoalState.BLOCKED, note=note)
    return plan_rule(goal, here, rules, tuple(sources))


def plan_rule(
    goal: SetupGoal, here: SetupSession, rules: list[FirewallRule], sources: tuple[str, ...]
) -> GoalFinding:
    """Create our rule, or change it; refuse if others changed it, or if another rule denies it."""
    ours = FirewallRule(
        name=goal.name,
        network=goal.facts["network"],
        sources=sources,
        allowed=wanted_traffic(goal),
        description=f"Made by herd setup gcp for {here.owner}; herd setup gcp --undo removes it",
    )
    before = next((one for one in rules if one.name == goal.name), None)
    if before is not None and not is_recorded(before, here.journal.find(goal.kind, goal.name)):
        note = f"somebody else made or changed the rule {goal.name}: delete it, or change it there"
        return GoalFinding(goal=goal, state=GoalState.BLOCKED, note=note)
    note = ""
    if before is not None:
        kept = tuple(one for one in before.allowed if one not in ours.allowed)
        ours = replace(ours, allowed=ours.allowed + kept)
        note = f"{goal.name} lets {rule_text(before)} in now; this replaces it"
    after = [one for one in rules if one is not before] + [ours]
    if not all(is_allowed(after, one, source) for one in ours.allowed for source in sources):
        note = f"another rule of {ours.network} denies it: gcloud compute firewall-rules list"
        return GoalFinding(goal=goal, state=GoalState.BLOCKED, note=note)
    facts = {"rule": rule_facts(ours), "before": rule_facts(before) if before else None}
    return GoalFinding(goal=goal, state=GoalState.MISSING, note=note, facts=facts)


def wanted_traffic(goal: SetupGoal) -> tuple[Traffic, ...]:
    return (SSH, MOSH) if goal.facts["mosh"] else (SSH,)


def rule_text(rule: FirewallRule) -> str:
    """tcp:22 from 203.0.113.7/32"""
    return f"{', '.join(map(traffic_text, rule.allowed))} from {', '.join(rule.sources)}"


def open_note(rules: list[FirewallRule]) -> str:
    """Mention a rule that lets everyone try to log in."""
    rule = deciding_rule(rules, SSH, ANYWHERE)
    return f"{rule.name} lets the whole Internet try to log in" if rule else ""


def rule_facts(rule: FirewallRule) -> dict[str, object]:
    """Return all that makes the rule what it is, as JSON."""
    return {
        "name": rule.name,
        "network": rule.network,
        "sources": sorted(rule.sources),
        "allowed": sorted(map(traffic_text, rule.allowed)),
        "denied": sorted(map(traffic_text, rule.denied)),
        "priority": rule.priority,
        "description": rule.description,
        "enabled": not rule.disabled,
        "ingress": rule.ingress,
        "partial": rule.partial,
    }


def is_recorded(rule: FirewallRule, change: RecordedChange | None) -> bool:
    """Whether the rule is as we made it, or as it was before a change whose end is unknown."""
    if change is None:
        return False
    known = [change.facts.get("rule"), None if change.settled else change.facts.get("before")]
    return rule_facts(rule) in known


async def make_rule(finding: GoalFinding, here: SetupSession) -> Facts:
    facts = finding.facts["rule"]
    allowed = tuple(one for one in (SSH, MOSH) if traffic_text(one) in facts["allowed"])
    rule = FirewallRule(
        name=facts["name"],
        network=facts["network"],
        sources=tuple(facts["sources"]),
        allowed=allowed,
        description=facts["description"],
    )
    if finding.facts["before"]:
        await firewalls_api.change_firewall(here.rest, here.project, rule, here.clock)
    else:
        await firewalls_api.create_firewall(here.rest, here.project, rule, here.clock)
    made = await firewalls_api.get_firewall(here.rest, here.project, rule.name)
    if made is None or rule_facts(made) != facts:
        raise OperationFailed(f"the rule {rule.name} is not as herd made it")
    return {"rule": facts}


async def undo_rule(change: RecordedChange, here: SetupSession, *, act: bool) -> UndoResult:
    rule = await firewalls_api.get_firewall(here.rest, here.project, change.name)
    if rule is None:
        sentence = f"the firewall rule {change.name} does not exist any more"
        return UndoResult(change=change, sentence=sentence, undone=True)
    if not is_recorded(rule, change):
        sentence = f"the firewall rule {change.name} stays: somebody has changed it"
        return UndoResult(change=change, sentence=sentence, undone=False)
    if act:
        await firewalls_api.delete_firewall(here.rest, here.project, change.name, here.clock)
    return UndoResult(
        change=change, sentence=f"Delete the firewall rule {change.name}", undone=True
    )
