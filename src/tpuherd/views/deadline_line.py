"""What a job's deadline may cost, as a line of `--dry-run`."""

from collections.abc import Sequence

from tpuherd.jobfile.read_job import JobSpec
from tpuherd.model.slots_and_plan import CHEAP_TIERS, Offer
from tpuherd.views.format_text import format_money


def deadline_lines(job: JobSpec, offers: Sequence[Offer]) -> list[str]:
    if not job.deadline:
        return []
    firm = [offer for offer in offers if offer.tier not in CHEAP_TIERS]
    if not firm:
        return [
            f"deadline {job.deadline}: no on-demand node is allowed at this price or by the"
            " grants, so only spot can meet it"
        ]
    prices = [offer.price * job.copies for offer in firm if offer.price is not None]
    cost = f", from {format_money(min(prices))} an hour" if prices else ""
    rest = "" if job.work is not None else "; state work, if the script reports no steps"
    return [f"deadline {job.deadline}: on-demand as far as that demands it{cost}{rest}"]
