"""Takes running TPUs that other tools created into a new job, without restarting them.

What makes a node ours is its name, or that of its queued resource. Neither can be changed later, so
herd writes its card into the node's metadata, with the bid that the node is adopted as. From then
on the node is a bid like any other: a lost store finds it, and `herd down` deletes it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tpuherd.catalogue import accelerators
from tpuherd.cloud.bids_api import bid_observation
from tpuherd.cloud.nodes_api import Cloud
from tpuherd.cloud.parse import Node
from tpuherd.cloud.request_bodies import card_text
from tpuherd.engine.actions import bid_card
from tpuherd.errors import HerdError, InvalidInput, NotFound
from tpuherd.jobfile.expand_slots import exact_node_names
from tpuherd.jobfile.grants import hourly_price
from tpuherd.jobfile.jobs_from_cards import rebuild_records
from tpuherd.jobfile.yaml_with_lines import YamlDocument
from tpuherd.jobs.adopt_resources import adoption_result
from tpuherd.jobs.load_history import load_history
from tpuherd.jobs.open_project import Session, user_at_machine
from tpuherd.jobs.submit import (
    CheckedJob,
    check_submission,
    new_job_record,
    put_secrets,
    snapshot_code,
)
from tpuherd.model.slot_history import SlotHistory
from tpuherd.model.slots_and_plan import Ask, Goal, Offer, RequestKind, Slot
from tpuherd.model.stored_job import StoredJob
from tpuherd.near_names import near_names
from tpuherd.results import Adoption
from tpuherd.settings import project_access, project_settings
from tpuherd.targets import fold_names, split_bid_name


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeAdoption:
    """A checked adoption: which node is to fill which slot, as which bid."""

    found: CheckedJob
    asks: Mapping[str, Ask]  #: by node name
    nodes: Mapping[str, Node]

    @property
    def question(self) -> str:
        """What changes for the user."""
        job = self.found.job.name
        return (
            f"this takes {fold_names(self.nodes)} into the job {job}: nothing is restarted, and"
            f" `herd stop` and `herd down {job}` delete {'them' if len(self.nodes) > 1 else 'it'}"
        )


async def find_nodes(names: Sequence[str], here: Session) -> dict[str, Node]:
    """Return the running nodes with these names, which no herd uses yet; a name may be
    ZONE/NODE.
    """
    survey = await (await here.cloud()).list_nodes()
    found: dict[str, Node] = {}
    for name in names:
        zone, _, plain = name.rpartition("/")
        fit = [one for one in survey.nodes if one.name == plain and zone in ("", one.zone)]
        if not fit:
            near = near_names(plain, [one.name for one in survey.nodes])
            why = f": did you mean {' or '.join(near)}?" if near else " that could be adopted"
            silent = f"; {', '.join(sorted(survey.unknown))} did not answer"
            raise NotFound(f"there is no node {name}{why}{silent if survey.unknown else ''}")
        if len(fit) > 1:
            raise InvalidInput(f"{name} exists in several zones: write {fit[0].zone}/{plain}")
        if plain in found:
            raise InvalidInput(f"{plain} is named twice")
        refuse_unusable(fit[0], here)
        found[plain] = fit[0]
    return found


def refuse_unusable(node: Node, here: Session) -> None:
    """Raise InvalidInput for a node that does not run, or is a bid already."""
    named = split_bid_name(node.bid)
    if named is not None and named.owner in project_access.own_owner_ids(here.place):
        stored = here.store.stored_jobs().get(named.job)
        if stored is not None:
            here.check_user(stored)
        raise InvalidInput(
            f"{node.name} is {named.slot} of your herd already",
            hint=f"`herd status {named.job}`, or `herd engine adopt` if no job of this name exists",
        )
    if named is not None:
        raise InvalidInput(
            f"{node.name} belongs to another herd user",
            hint=f"`herd engine adopt {named.owner}` takes over everything of theirs",
        )
    if not node.ready:
        raise InvalidInput(f"{node.name} can't be adopted: it is {node.state}, not READY")


async def check_adoption(
    nodes: Mapping[str, Node], page: YamlDocument, base: Path, here: Session
) -> NodeAdoption | None:
    """Check that the nodes fit the job file; None if the page has mistakes.

    A job without `run` keeps the nodes idle, as `herd up` does; without `runtime`, it gets theirs.
    """
    content = page.value
    if isinstance(content, dict) and "runtime" not in content:
        content["runtime"] = sorted({node.runtime for node in nodes.values() if node.runtime})
    goal = Goal.RUN if isinstance(content, dict) and content.get("run") else Goal.IDLE
    found = await check_submission(page, base, goal, here, adopting=tuple(nodes))
    if found is None:
        return None
    job = found.job
    if job.name in here.store.stored_jobs():
        raise InvalidInput(
            f"a job {job.name} exists already, and nodes are adopted into a new one",
            hint=f"choose another name, or run `herd down {job.name}` first",
        )
    if job.slices > 1:
        raise InvalidInput("nodes of a multislice run can't be adopted: slices should be 1")
    if len(nodes) > job.copies:
        raise InvalidInput(
            f"{len(nodes)} nodes are named, and {job.name} has {job.copies}: set copies:"
            f" {len(nodes)}"
        )
    slots = assign_slots(found, list(nodes))
    history = load_history(here.store)
    owner = project_access.find_owner_id(here.place)
    asks = {}
    for name, slot in slots.items():
        generation = history.slots.get(slot.name, SlotHistory()).generation + 1
        asks[name] = Ask(
            bid=f"{slot.name}-g{generation}-{owner}",
            slot=slot.name,
            generation=generation,
            offer=node_offer(nodes[name], found),
            nodes=1,
            node_digest=slot.node_digest,
        )
    return NodeAdoption(found=found, asks=asks, nodes=nodes)


def assign_slots(found: CheckedJob, names: Sequence[str]) -> dict[str, Slot]:
    """A node with the exact name of a slot's node fills that slot, the others the first free."""
    exact = exact_node_names(found.job) if found.job.node_name else []
    chosen = {name: found.slots[exact.index(name)] for name in names if name in exact}
    free = [slot for slot in found.slots if slot not in chosen.values()]
    return {name: chosen.get(name) or free.pop(0) for name in names}


def node_offer(node: Node, found: CheckedJob) -> Offer:
    """The offer that the node would have come from; InvalidInput if the job has none like it."""
    job = found.job.name
    if node.type not in found.job.accelerator:
        types = " or ".join(found.job.accelerator)
        raise InvalidInput(f"{node.name} is a {node.type}, and {job} asks for {types}")
    here = [one for one in found.offers if one.type == node.type and one.zone == node.zone]
    if not here:
        zones = ", ".join(dict.fromkeys(one.zone for one in found.offers))
        raise InvalidInput(f"{node.name} is in {node.zone}, and {job} may run in {zones}")
    if node.runtime != here[0].runtime:
        raise InvalidInput(
            f"{node.name} has the runtime {node.runtime}, and {job} asks for {here[0].runtime}:"
            " it would be replaced at once",
            hint=f"set runtime: {node.runtime}",
        )
    same = next((one for one in here if one.tier == node.tier), None)
    price = same.price if same else hourly_price(node.zone, accelerators()[node.type], node.tier)
    return replace(here[0], tier=node.tier, kind=RequestKind.DIRECT, price=price)


async def adopt_nodes(adoption: NodeAdoption, here: Session) -> Adoption | None:
    """Write the cards, then the job with its bids in one transaction; None if the user says no."""
    found, now = adoption.found, here.clock.now()
    details = ""
    if not found.granted:
        details = f"no grants are configured for {here.place.project}: replacements are billed"
    if not await here.prompter.ask_confirmation(adoption.question, details):
        return None
    if not found.granted:
        project_settings.allow_everything(here.config_folder, here.place.project)
    snapshot = await snapshot_code(found, here)
    if snapshot is None:
        return None
    stored = replace(new_job_record(found.job, found.goal, snapshot, now), user=here.user)
    marked = await write_cards(adoption, stored, here)
    sights = [bid_observation(node.bid, None, [node]) for node in marked]
    records = rebuild_records(sights, here.store.stored_jobs(), now, user_at_machine())
    assert not records.unknown, "the cards were written a moment ago"
    put_secrets(found, here)
    here.store.add_jobs([stored], records.events)
    return adoption_result([node.bid for node in marked])


async def write_cards(adoption: NodeAdoption, stored: StoredJob, here: Session) -> list[Node]:
    """Write all cards, or none: what was written is removed if one can't be."""
    cloud = await here.cloud()
    owner = project_access.find_owner_id(here.place)
    slots = {slot.name: slot for slot in adoption.found.slots}
    marked: list[Node] = []
    try:
        for name, ask in adoption.asks.items():
            node = adoption.nodes[name]
            card = bid_card(ask, slots[ask.slot], stored, owner=owner, now=here.clock.now())
            text = card_text({**card, "bid": ask.bid, "node": node.incarnation})
            written = await cloud.write_card(node.zone, node.name, text)
            if written.bid != ask.bid:
                raise NotFound(f"{name} was created anew meanwhile")
            marked.append(written)
    except HerdError:
        await remove_cards(marked, cloud)
        raise
    return marked


async def remove_cards(nodes: Sequence[Node], cloud: Cloud) -> None:
    """Undo; a node whose card can't be removed is shown by `herd gc` and `herd engine adopt`."""
    for node in nodes:
        try:
            await cloud.write_card(node.zone, node.name, None)
        except HerdError:
            continue
