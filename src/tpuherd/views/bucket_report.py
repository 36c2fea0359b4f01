"""The text of `herd bucket check`, from the JSON that it prints."""

from collections.abc import Iterator, Mapping
from typing import Any


def bucket_lines(content: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is known of the bucket, of those who may use it, and of zones and hosts."""
    access = "uniform access" if content["uniform"] else "access by object, not uniform"
    yield f"gs://{content['bucket']} is in {content['location']}; {access}"
    rights = ", ".join(content["you"])
    yield f"you may {rights} objects" if rights else "you may not use its objects"
    if content["accounts"] is None:
        yield "service accounts: unknown, because you may not read its policy"
    for account, roles in (content["accounts"] or {}).items():
        yield f"{account} has {', '.join(roles)}"
    near = content["near"]
    yield f"near zones with TPUs: {', '.join(near) if near else 'none'}"
    for one in content["zones"]:
        yield zone_line(one)
    for one in content["hosts"]:
        yield f"{one['host']}: {one['says'] or 'no answer'}"


def zone_line(one: Mapping[str, Any]) -> str:
    if one["per_gib"] == 0:
        return f"{one['zone']}: in the same region, reading is free"
    price = "an unknown price" if one["per_gib"] is None else f"${one['per_gib']:g} per GiB"
    where = "on the same continent" if one["near"] else "in another region"
    return f"{one['zone']}: {where}, reading costs {price}"
