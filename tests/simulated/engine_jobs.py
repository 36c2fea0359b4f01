"""Jobs of these tests: small documents, and the slots that an engine makes of them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.simulated.engine_world import OWNER, TYPE, ZONES
from tpuherd.catalogue import accelerators
from tpuherd.model.lab_shares import NO_SHARES, LabShares
from tpuherd.model.node_spec import EnvironmentSpec, LaunchSpec, NodeSpec
from tpuherd.model.slots_and_plan import (
    Deadline,
    DesiredSlots,
    Goal,
    HistoryEvent,
    Limits,
    Offer,
    RequestKind,
    Slot,
)
from tpuherd.model.stored_job import StoredJob
from tpuherd.sweeps.map_items import item_events, items_digest
from tpuherd.targets import split_bid_name

TOLD = "TOLD"


@dataclass(frozen=True, kw_only=True, slots=True)
class SimJob:
    """A job as a test submits it."""

    job: str = "gpt"
    goal: Goal = Goal.RUN
    copies: int = 1
    zones: tuple[str, ...] = ZONES
    type: str = TYPE
    kind: RequestKind = RequestKind.QUEUED
    tier: str = "spot"
    firm_zones: tuple[str, ...] = ()  #: where it may have on-demand nodes instead
    deadline_s: float = 0.0  #: from its submission on; 0: none
    nodes: int = 1
    code: str = "c1"
    node: str = "n1"
    setup: bool = True
    outputs: bool = False
    ahead: bool = True  #: hosts are set up before READY
    checkpoint: str = ""  #: hosts fetch it while they are set up
    packed: bool = False  #: it has a Python environment, and runs in a container
    limits: Mapping[str, Any] = field(default_factory=dict)
    sweep: Mapping[str, Any] | None = None
    items: tuple[str, ...] = ()  #: of a map
    user: str = ""  #: whose it is
    priority: int = 0
    keep: bool = False  #: the map's nodes stay, as those of `herd up`
    notify: Sequence[Mapping[str, Any]] | None = None

    def document(self) -> dict[str, Any]:
        """As a job's: what rides in the card, and what a lost store is rebuilt from.

        What only these tests know rides along as a variable of the job's environment.
        """
        told = {
            "zones": list(self.zones), "type": self.type, "kind": self.kind.value,
            "tier": self.tier, "nodes": self.nodes, "code": self.code, "node": self.node,
            "setup": self.setup, "outputs": self.outputs, "limits": dict(self.limits),
            "copies": self.copies, "ahead": self.ahead,
            "firm_zones": list(self.firm_zones), "deadline_s": self.deadline_s,
            "priority": self.priority,
            **({"checkpoint": self.checkpoint} if self.checkpoint else {}),
            **({"packed": True} if self.packed else {}),
        }  # fmt: skip
        return {
            "name": self.job,
            "accelerator": self.type,
            "copies": self.copies,
            "slices": self.nodes,
            "run": "python train.py",
            **({} if self.notify is None else {"notify": list(self.notify)}),
            "env": {TOLD: json.dumps(told)},
            **({} if self.sweep is None else {"sweep": self.sweep}),
            **({"sweep": self.map_document()} if self.items else {}),
        }

    def map_document(self) -> dict[str, Any]:
        """The map as `herd map` writes it."""
        found = {
            "method": "items",
            "items": items_digest(self.items),
            "trials": len(self.items),
        }
        return {**found, "keep": True} if self.keep else found

    def map_events(self, now: float) -> list[HistoryEvent]:
        """The events with which `herd map` submits items."""
        digest = items_digest(self.items)
        facts = {"items": digest, "count": len(self.items)}
        start = HistoryEvent(at=now, kind="map.started", job=self.job, facts=facts)
        return [start, *item_events(self.job, self.items, digest, now)]

    def to_stored_job(self, now: float) -> StoredJob:
        """What a command would write."""
        return StoredJob(
            job=self.job,
            goal=self.goal,
            document=self.document(),
            snapshot=self.code,
            made_at=now,
            changed_at=now,
            who="me@laptop",
            user=self.user,
        )


def submit_event_kind(known: StoredJob | None, fresh: StoredJob) -> str:
    """The event that the user's command writes."""
    if known is None:
        return "job.submitted"
    if (known.goal is Goal.GONE) is (fresh.goal is Goal.GONE):
        return "job.changed"
    return "job.stopped" if fresh.goal is Goal.GONE else "job.resumed"


def told_of(stored_job: StoredJob) -> dict[str, Any]:
    """What a test asked for."""
    told: dict[str, Any] = json.loads(stored_job.document["env"][TOLD])
    return told


def slots(stored_job: StoredJob) -> tuple[Slot, ...]:
    """The slots of a job."""
    told = told_of(stored_job)
    offers = tuple(
        Offer(
            zone=zone,
            type=told["type"],
            runtime="v2-alpha-tpuv5",
            tier="on-demand" if zone in told["firm_zones"] else told["tier"],
            kind=RequestKind(told["kind"]),
            hosts=accelerators()[told["type"]].hosts,
            price=24.0 if zone in told["firm_zones"] else 8.0,
        )
        for zone in told["zones"]
    )
    made_at, due_s = stored_job.made_at, told["deadline_s"]
    deadline = Deadline(at=made_at + due_s, since=made_at) if due_s else None
    return tuple(
        Slot(
            name=f"{stored_job.job}-{index}",
            job=stored_job.job,
            goal=stored_job.goal,
            offers=offers,
            node_digest=told["node"],
            code_digest=told["code"],
            desired_since=stored_job.made_at,
            nodes=told["nodes"],
            limits=Limits(**told["limits"]),
            outputs=told["outputs"],
            boots_ahead=told["ahead"],
            trials="sweep" in stored_job.document,
            items="items" in stored_job.document.get("sweep", {}),
            deadline=deadline,
            user=stored_job.user,
            priority=told["priority"],
        )
        for index in range(told["copies"])
    )


def desired_slots_of(jobs: Mapping[str, StoredJob], shares: LabShares = NO_SHARES) -> DesiredSlots:
    """All of them, for the planner."""
    every = {slot.name: slot for stored_job in jobs.values() for slot in slots(stored_job)}
    return DesiredSlots(slots=every, owner=OWNER, shares=shares)


def order_of(slot: Slot) -> NodeSpec:
    """Nothing special."""
    return NodeSpec()


def launch_of(slot: Slot, stored_job: StoredJob) -> LaunchSpec:
    """What the agents launch."""
    index = slot.name.rpartition("-")[2]
    told = told_of(stored_job)
    env = {
        "RUN_ID": f"{slot.name}-{stored_job.made_at:.0f}",
        "HERD_JOB": slot.job,
        "HERD_SLOT": index,
        "HERD_SLOTS": str(told["copies"]),
    }
    if "checkpoint" in told:
        env["HERD_CHECKPOINT"] = told["checkpoint"]
    step = {"name": "requirements", "shell": "pip install", "env": env, "hash": f"{told['code']}"}
    return LaunchSpec(
        shell=f"python train.py --code {told['code']}",
        env=env,
        setup=(step,) if told["setup"] else (),
        dest=f"herd/{slot.job}",
        directory=f"herd/{slot.job}",
        outputs=("out",) if told["outputs"] else (),
        grace_s=slot.limits.grace_s,
        notice_grace_s=slot.limits.notice_grace_s,
        fetches_checkpoint="HERD_CHECKPOINT" in env,
        environment=EnvironmentSpec(key="0" * 16, job=slot.job) if "packed" in told else None,
        image="python:3.12" if "packed" in told else "",
    )


def slot_name(bid: str) -> str:
    """The slot that a bid, or one of its nodes, is for."""
    found = split_bid_name(bid)
    return found.slot if found is not None else ""
