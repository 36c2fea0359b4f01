"""Who may do what in a project: reads its IAM policy, adds a role and takes it away."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from tpuherd.cloud.parse import parse_shape
from tpuherd.cloud.rest import CloudConflict, Json, RestClient
from tpuherd.lazy_modules import import_lazily

if TYPE_CHECKING:
    from tpuherd.cloud import reply_shapes
else:
    reply_shapes = import_lazily("tpuherd.cloud.reply_shapes")

TRIES = 5  #: to write a policy that others write at the same time
CONDITIONS = 3  #: the version of policies that shows conditions


async def held_project_permissions(
    rest: RestClient, project: str, asked: Collection[str]
) -> frozenset[str]:
    """Return those of the asked permissions that the caller has. Needs no permission itself."""
    body: Json = {"permissions": sorted(asked)}
    content = await rest.call_projects("POST", f"projects/{project}:testIamPermissions", body)
    return frozenset(parse_shape(content, reply_shapes.ApiPermissions).permissions)


async def get_policy(rest: RestClient, project: str) -> Json:
    """Return the policy as it came, so that it can be sent back."""
    body: Json = {"options": {"requestedPolicyVersion": CONDITIONS}}
    content = await rest.call_projects("POST", f"projects/{project}:getIamPolicy", body)
    parse_shape(content, reply_shapes.ApiPolicy)
    return content


async def project_roles(rest: RestClient, project: str) -> Mapping[str, frozenset[str]]:
    """Return the roles on the project of each member that has them without a condition."""
    found: dict[str, set[str]] = {}
    policy = parse_shape(await get_policy(rest, project), reply_shapes.ApiPolicy)
    for binding in policy.bindings:
        for member in binding.members if binding.condition is None else ():
            found.setdefault(member, set()).add(binding.role)
    return {member: frozenset(roles) for member, roles in found.items()}


async def add_project_role(rest: RestClient, project: str, member: str, role: str) -> bool:
    """Give a member a role and leave the rest of the policy as it is; whether it is new."""

    def add_member(bindings: list[Json]) -> list[Json] | None:
        if any(is_binding(one, member, role) for one in bindings):
            return None
        return [*bindings, {"role": role, "members": [member]}]

    return await change_policy(rest, project, add_member)


async def remove_project_role(rest: RestClient, project: str, member: str, role: str) -> bool:
    """Take a role away from a member; whether it had it. Bindings with conditions stay."""

    def remove_member(bindings: list[Json]) -> list[Json] | None:
        if not any(is_binding(one, member, role) for one in bindings):
            return None
        changed = [
            {**one, "members": [who for who in one["members"] if who != member]}
            if is_binding(one, member, role)
            else one
            for one in bindings
        ]
        return [one for one in changed if one.get("members", True)]

    return await change_policy(rest, project, remove_member)


def is_binding(binding: Json, member: str, role: str) -> bool:
    """Whether it gives that role to the member without a condition."""
    same = binding.get("role") == role and not binding.get("condition")
    return same and member in binding.get("members", [])


async def change_policy(
    rest: RestClient, project: str, change: Callable[[list[Json]], list[Json] | None]
) -> bool:
    """Write changed bindings, or nothing if `change` returns None; read again after a conflict."""
    for _ in range(TRIES - 1):
        try:
            return await try_change_policy(rest, project, change)
        except CloudConflict:
            continue  # another client wrote between our read and our write
    return await try_change_policy(rest, project, change)


async def try_change_policy(
    rest: RestClient, project: str, change: Callable[[list[Json]], list[Json] | None]
) -> bool:
    policy = await get_policy(rest, project)
    wanted = change(list(policy.get("bindings", [])))
    if wanted is None:
        return False
    body: Json = {"policy": {**policy, "bindings": wanted}}
    await rest.call_projects("POST", f"projects/{project}:setIamPolicy", body)
    return True
