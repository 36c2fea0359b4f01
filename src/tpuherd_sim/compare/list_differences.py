"""Compares lists with the model's: their order, and how their pages follow from each other."""

from tpuherd_sim.compare.differences import Findings
from tpuherd_sim.compare.exchange_differences import items_of
from tpuherd_sim.compare.transcript_file import Exchange
from tpuherd_sim.handle import world_router

ORDER = "zone and name"  #: of the model's lists: tpu/listing.py
LISTS = frozenset({"nodes", "queuedResources", "operations"})


def compare_lists(exchanges: tuple[Exchange, ...], findings: Findings) -> None:
    """Add the differences of all lists."""
    before: dict[tuple[str, str], set[str]] = {}  # names on the pages that led to a token
    for one in exchanges:
        found = world_router().find(one.method, f"/{one.path}")
        if found is None or not found.name.endswith(".list") or one.status != 200:
            continue
        reply, token = one.reply or {}, str(one.query.get("pageToken", ""))
        names = set[str]()
        if token and (one.path, token) not in before:
            sentence = f"{found.name} was asked for a page to which no earlier page led"
            findings.add("page", found.name, sentence, one.line)
        for field in LISTS & reply.keys():
            order = one.order.get(field, ORDER)
            if order != ORDER:
                sentence = f"{found.name} is sorted by {order}; the model's by {ORDER}"
                findings.add("order", found.name, sentence, one.line)
            names |= {str(item.get("name")) for item in items_of(reply, field)}
        earlier = before.get((one.path, token), set()) if token else set()
        if names & earlier:
            sentence = f"{found.name} lists the same resource on two pages"
            findings.add("page", found.name, sentence, one.line)
        following = reply.get("nextPageToken")
        if isinstance(following, str):
            before[one.path, following] = names | earlier
