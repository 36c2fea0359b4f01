"""Creates buckets and service accounts, and says who may use a bucket."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tpuherd.cloud.parse import parse_bucket_location, parse_shape
from tpuherd.cloud.rest import CloudConflict, Json, RestClient
from tpuherd.errors import NotFound
from tpuherd.lazy_modules import import_lazily

if TYPE_CHECKING:
    from tpuherd.cloud import reply_shapes
else:
    reply_shapes = import_lazily("tpuherd.cloud.reply_shapes")

TRIES = 5  #: to write a policy that others write at the same time
CONDITIONS = 3  #: the version of policies that shows conditions


@dataclass(frozen=True, kw_only=True, slots=True)
class BucketInfo:
    """A bucket as Cloud Storage describes it."""

    name: str
    location: str  #: US-CENTRAL2, EU, US-EAST1+US-EAST4
    uniform: bool  #: access is decided by its policy alone


def parse_bucket_info(content: Json) -> BucketInfo:
    bucket = parse_shape(content, reply_shapes.ApiBucket)
    return BucketInfo(
        name=bucket.name,
        location=parse_bucket_location(content),
        uniform=bucket.iam_configuration.uniform_bucket_level_access.enabled,
    )


async def get_bucket(rest: RestClient, name: str) -> BucketInfo | None:
    """Return the bucket; None if it does not exist. Raises NotAllowed."""
    try:
        return parse_bucket_info(await rest.call_storage("GET", f"b/{name}"))
    except NotFound:
        return None


async def create_bucket(rest: RestClient, project: str, name: str, location: str) -> BucketInfo:
    """Create a bucket with uniform access that is never public.

    Raises CloudConflict if somebody has a bucket of this name.
    """
    first, _, second = location.partition("+")
    body: Json = {
        "name": name,
        "location": first,
        "iamConfiguration": {
            "uniformBucketLevelAccess": {"enabled": True},
            "publicAccessPrevention": "enforced",
        },
    }
    if second:
        continent = {"EUROPE": "EU", "ASIA": "ASIA"}.get(first.partition("-")[0], "US")
        body |= {
            "location": continent,
            "customPlacementConfig": {"dataLocations": [first, second]},
        }
    return parse_bucket_info(await rest.call_storage("POST", "b", body, project=project))


async def held_permissions(rest: RestClient, name: str, asked: Iterable[str]) -> frozenset[str]:
    """Return those of the asked permissions that the user has."""
    content = await rest.call_storage(
        "GET", f"b/{name}/iam/testPermissions", permissions=list(asked)
    )
    return frozenset(parse_shape(content, reply_shapes.ApiPermissions).permissions)


async def account_roles(rest: RestClient, name: str) -> Mapping[str, frozenset[str]]:
    """Return the roles of each member that has them without a condition."""
    content = await rest.call_storage(
        "GET", f"b/{name}/iam", optionsRequestedPolicyVersion=CONDITIONS
    )
    found: dict[str, set[str]] = {}
    for binding in parse_shape(content, reply_shapes.ApiPolicy).bindings:
        for member in binding.members if binding.condition is None else ():
            found.setdefault(member, set()).add(binding.role)
    return {member: frozenset(roles) for member, roles in found.items()}


async def add_roles(rest: RestClient, name: str, member: str, roles: Iterable[str]) -> None:
    """Give a member these roles, and leave the rest of the policy as it is."""
    for _ in range(TRIES - 1):
        try:
            await try_add_roles(rest, name, member, roles)
            return
        except CloudConflict:
            continue  # another client wrote between our read and our write
    await try_add_roles(rest, name, member, roles)


async def try_add_roles(rest: RestClient, name: str, member: str, roles: Iterable[str]) -> None:
    content = await rest.call_storage(
        "GET", f"b/{name}/iam", optionsRequestedPolicyVersion=CONDITIONS
    )
    parse_shape(content, reply_shapes.ApiPolicy)
    added = [{"role": role, "members": [member]} for role in roles]
    wanted = {**content, "bindings": [*content.get("bindings", []), *added]}
    await rest.call_storage("PUT", f"b/{name}/iam", wanted)


async def has_account(rest: RestClient, project: str, email: str) -> bool:
    """Whether the service account exists."""
    try:
        content = await rest.call_iam("GET", f"projects/{project}/serviceAccounts/{email}")
    except NotFound:
        return False
    return parse_shape(content, reply_shapes.ApiServiceAccount).email == email


async def create_account(rest: RestClient, project: str, id: str, title: str) -> None:
    """Create a service account; one that exists already is fine."""
    body: Json = {"accountId": id, "serviceAccount": {"displayName": title}}
    try:
        await rest.call_iam("POST", f"projects/{project}/serviceAccounts", body)
    except CloudConflict:
        return
