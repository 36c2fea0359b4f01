"""Checkpoints that go to another region: booked once, at list price, within max_cost."""

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.toy_cloud import Toy, offer, slot
from tpuherd.accounting.accounts import build_accounts
from tpuherd.jobfile.expand_slots import expand_slots
from tpuherd.jobfile.grants import Allowance
from tpuherd.jobfile.read_job import JobSpec, job_document, read_fields
from tpuherd.model.observed import HostStatus, NodeState
from tpuherd.model.slot_history import AttemptRecord
from tpuherd.model.slots_and_plan import Goal, Limits, Slot
from tpuherd.model.stored_job import StoredJob

GIB = 1 << 30


class SavingToy(Toy):
    """A command that has written so many checkpoints of 10 GiB, and resumes from the last one."""

    def __init__(self, per_gib: float | None, *, size: int = 10 * GIB, cost: float = 1e9) -> None:
        found = tuple(offer(zone, price=0.0, per_gib=per_gib) for zone in ("a", "b"))
        super().__init__(slot(offers=found, limits=Limits(cost=cost, stall_s=1e9)))
        self.lasts, self.size, self.saves = 1e9, size, 0

    def host(self, name: str, toy_node: Any, worker: int) -> HostStatus:
        status = super().host(name, toy_node, worker)
        if not status.works or worker or toy_node.node is not NodeState.READY:
            return status
        saving = {"saves": float(self.saves), "save_bytes": float(self.size)}
        attempt: AttemptRecord | None = self.slot_history().attempt
        again = 5 if attempt is not None and attempt.number > 1 else 0
        works = tuple(
            replace(one, step=again + 1 + self.saves, saved=again + self.saves, saving=saving,
                    resumed=again) for one in status.works
        )  # fmt: skip
        return replace(status, works=works)

    def pass_minutes(self, minutes: int) -> None:
        for _ in range(minutes * 4):
            self.tick(15.0)

    def save(self, many: int) -> None:
        self.saves += many
        self.pass_minutes(3)

    def moved(self) -> list[tuple[str, float]]:
        events = self.kinds("slot.data_moved")
        return [(event.facts["what"], round(event.facts["dollars"], 4)) for event in events]


def test_saves_and_restores_are_booked_once() -> None:
    toy = SavingToy(0.02)
    toy.pass_minutes(3)
    assert not toy.moved()
    toy.save(3)
    assert toy.moved() == [("saved", 0.6)]
    toy.pass_minutes(10)
    toy.save(1)
    assert toy.moved() == [("saved", 0.6), ("saved", 0.2)]
    toy.preempt()
    toy.saves = 0
    toy.pass_minutes(6)
    assert toy.moved()[2:] == [("read", 0.2)]
    account = build_accounts(toy.events, toy.now)["gpt-0"]
    assert account.cost == pytest.approx(1.0) and account.moved == pytest.approx(1.0)


@pytest.mark.parametrize(("per_gib", "size"), [(0.0, 10 * GIB), (None, 10 * GIB), (0.02, 0)])
def test_nothing_is_guessed(per_gib: float | None, size: int) -> None:
    toy = SavingToy(per_gib, size=size)
    toy.pass_minutes(3)
    toy.save(5)
    assert not toy.moved()
    assert toy.slot_history().spent == 0


def test_moved_checkpoints_count_towards_max_cost() -> None:
    toy = SavingToy(0.08, cost=5.0)
    toy.pass_minutes(3)
    toy.save(7)
    toy.pass_minutes(5)
    assert "it has cost 5.60 dollars, the limit is 5.00" in toy.slot_history().gave_up_why


def slots_of(**fields: object) -> tuple[Slot, ...]:
    found = read_fields({"name": "gpt", "accelerator": "v4-8", **fields})
    assert isinstance(found, JobSpec), found
    stored = StoredJob(
        job="gpt", goal=Goal.RUN, document=job_document(found), snapshot="", made_at=1.0,
        changed_at=1.0,
    )  # fmt: skip
    return expand_slots(found, stored, Allowance(everything=True))


def test_offers_know_the_price_to_the_bucket_of_checkpoints() -> None:
    far: dict[str, Any] = {"checkpoint": "gs://mine/x", "egress_budget": "unlimited"}
    assert slots_of(**far, buckets={"mine": "EUROPE-WEST4"})[0].offers[0].per_gib == 0.05
    assert slots_of(**far, buckets={"mine": "US-CENTRAL2"})[0].offers[0].per_gib == 0.0
    assert slots_of(**far)[0].offers[0].per_gib == 0.0
    other: dict[str, Any] = {"buckets": {"data": "EUROPE-WEST4"}, "egress_budget": "unlimited"}
    assert slots_of(**other)[0].offers[0].per_gib == 0.0
