"""Who may use a bucket, an object or a managed folder: IAM policies, and access lists.

An access list is a view of the legacy roles of a policy, where access is not uniform.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote

from tpuherd_sim.google_apis.bucket_access import (
    PUBLIC,
    UNIFORM_MORE,
    UNMET,
    Bindings,
    bucket_bindings,
    bytes_etag,
    caller_permissions,
    check_member,
    check_public,
    find_bucket,
    find_folder,
    object_bindings,
    read_bindings,
    storage_error,
)
from tpuherd_sim.google_apis.links import is_own_project
from tpuherd_sim.google_apis.objects import (
    find_object,
    object_json,
    object_place,
    read_params,
    replace_generation,
)
from tpuherd_sim.model.compute_state import Bucket
from tpuherd_sim.model.http_types import ApiCall, Json, Request, Response
from tpuherd_sim.model.storage_state import StoredObject
from tpuherd_sim.model.world import World
from tpuherd_sim.tpu.router import Route

START = "roles/storage.legacy"
OBJECT_ROLES = {"OWNER": f"{START}ObjectOwner", "READER": f"{START}ObjectReader"}
BUCKET_ROLES = {role: f"{START}Bucket{role.title()}" for role in ("OWNER", "WRITER", "READER")}
#: What Google says of reads and of writes where access is uniform.
UNIFORM = {
    ("get", False): "get legacy ACL for a bucket that has uniform bucket-level access.",
    ("set", False): "use ACL API to update bucket policy when {}",
    ("get", True): "get legacy ACL for an object when {}",
    ("set", True): "update access control for an object when {}",
}
WHEN = "uniform bucket-level access is enabled."
TEAMS = {"projectOwner": "owners", "projectEditor": "editors", "projectViewer": "viewers"}
TEAM = re.compile(r"project-(owner|editor|viewer)s-(.+)")
FIELDS = {"acl": "bindings", "defaultObjectAcl": "object_bindings"}
KINDS = ("user", "serviceAccount", "group", "domain", *PUBLIC)


class Holder(NamedTuple):
    """What has a policy."""

    kind: str  #: buckets, objects, managedFolders; default: what a bucket gives new objects
    bucket: Bucket
    bindings: Bindings
    version: int
    name: str = ""  #: of the object or the folder
    found: StoredObject | None = None

    @property
    def access_roles(self) -> Mapping[str, str]:
        """The roles of its access list, the strongest first."""
        return BUCKET_ROLES if self.kind == "buckets" else OBJECT_ROLES


def make_holder(
    bucket: Bucket, one: StoredObject | None = None, *, default: bool = False
) -> Holder:
    bindings = object_bindings(bucket, one)
    if one is not None:
        return Holder("objects", bucket, bindings, one.metageneration, one.name, one)
    if default:
        return Holder("default", bucket, bindings, bucket.metageneration)
    return Holder("buckets", bucket, bucket_bindings(bucket), bucket.policy_version)


def find_holder(world: World, call: ApiCall, verb: str, *, default: bool = False) -> Holder:
    """Return what the path names, if the caller has the permission, such as getIamPolicy."""
    if "object" in call.path:
        query = read_params(call, "generation")
        found = find_object(world, call.request, object_place(call), query, verb)
        return make_holder(world.services.buckets[found.bucket], found)
    if "folder" in call.path:
        bucket, name = find_folder(world, call, verb)
        folder = bucket.folders[name]
        return Holder("managedFolders", bucket, folder.bindings, folder.policy_version, name)
    bucket = find_bucket(world, call, verb and f"storage.buckets.{verb}")
    return make_holder(bucket, default=default)


def store_bindings(world: World, holder: Holder, bindings: Bindings, now: float) -> Holder:
    bucket, found = holder.bucket, holder.found
    check_public(bucket, bindings)
    version = holder.version + 1
    if found is not None:
        new = replace(found, bindings=bindings, metageneration=version, updated=now)
        replace_generation(world, found, new)
        return holder._replace(bindings=bindings, version=version, found=new)
    if holder.kind == "managedFolders":
        folder = replace(bucket.folders[holder.name], bindings=bindings, policy_version=version)
        bucket = replace(bucket, folders={**bucket.folders, holder.name: folder})
    elif holder.kind == "default":
        bucket = replace(bucket, object_bindings=bindings, metageneration=version)
    else:
        bucket = replace(bucket, bindings=bindings, policy_version=version)
    world.services.buckets[bucket.name] = bucket
    return holder._replace(bucket=bucket, bindings=bindings, version=version)


# -- policies -------------------------------------------------------------------------------------


def find_policy(world: World, call: ApiCall, verb: str) -> Holder:
    holder = find_holder(world, call, verb)
    if holder.found is not None and holder.bucket.uniform:
        raise storage_error(400, "Object policies are disabled for bucket.")
    return holder


def policy_json(holder: Holder) -> Json:
    below = f"/{holder.kind}/{holder.name}" if holder.name else ""
    bindings = [{"role": role, "members": who} for role, who in sorted(holder.bindings.items())]
    return {
        "kind": "storage#policy",
        "resourceId": f"projects/_/buckets/{holder.bucket.name}{below}",
        "version": 1,
        "etag": bytes_etag(holder.version),
        **({"bindings": bindings} if bindings else {}),
    }


def get_policy(world: World, call: ApiCall, now: float) -> Json:
    return policy_json(find_policy(world, call, "getIamPolicy"))


def set_policy(world: World, call: ApiCall, now: float) -> Json:
    """Replace the policy if the sent etag is the current one, or missing."""
    holder = find_policy(world, call, "setIamPolicy")
    etag = bytes_etag(holder.version)
    if call.body.get("etag", etag) != etag:
        raise storage_error(412, UNMET)
    bindings = read_bindings(world, call.body.get("bindings") or [])
    for role in bindings if holder.found is not None else ():
        if role not in OBJECT_ROLES.values():
            raise storage_error(400, f"Role {role} is not supported for this resource.")
    return policy_json(store_bindings(world, holder, bindings, now))


def test_permissions(world: World, call: ApiCall, now: float) -> Json:
    """Return those of the asked permissions that the caller has."""
    holder = find_holder(world, call, "")
    asked = [value for name, value in parse_qsl(call.request.query) if name == "permissions"]
    if not asked:
        raise storage_error(400, "Required parameter: permissions")
    allowed = caller_permissions(world, holder.bucket, call.request, holder.name, holder.found)
    found = [one for one in asked if one in allowed]
    answer: Json = {"kind": "storage#testIamPermissionsResponse"}
    return {**answer, "permissions": found} if found else answer


# -- access lists ---------------------------------------------------------------------------------


def find_list(
    world: World, call: ApiCall, verb: str, field: str = ""
) -> tuple[Holder, dict[str, str]]:
    """Return what has the list of the path, or of a field, and its roles by member."""
    default = (field or call.request.path.split("/")[5]) == "defaultObjectAcl"
    holder = find_holder(world, call, f"{verb}IamPolicy", default=default)
    if holder.bucket.uniform:
        text = UNIFORM[verb, holder.kind == "objects"].format(WHEN)
        raise storage_error(400, f"Cannot {text}{UNIFORM_MORE}")
    return holder, access_roles(holder)


def access_roles(holder: Holder) -> dict[str, str]:
    found: dict[str, str] = {}
    for role, name in holder.access_roles.items():
        for member in holder.bindings.get(name, ()):
            found.setdefault(member, role)
    return found


def entity_member(world: World, entity: str) -> str:
    """Return the member of policies that an access list calls an entity."""
    team = TEAM.fullmatch(entity)
    if team is not None:
        project = world.settings.project if is_own_project(world, team[2]) else team[2]
        return f"project{team[1].title()}:{project}"
    kind, _, name = entity.partition("-")
    kind = "serviceAccount" if name.endswith("gserviceaccount.com") else kind
    member = f"{kind}:{name}" if name else kind
    check_member(world, member, KINDS)
    return member


def entry_json(world: World, holder: Holder, member: str, role: str) -> Json:
    kind, _, name = member.partition(":")
    noun = "bucket" if holder.kind == "buckets" else "object"
    answer: Json = {"kind": f"storage#{noun}AccessControl", "role": role}
    if kind in TEAMS:
        number = str(world.settings.project_number) if is_own_project(world, name) else name
        answer["projectTeam"] = {"projectNumber": number, "team": TEAMS[kind]}
        kind, name = "project", f"{TEAMS[kind]}-{number}"
    elif name:
        kind = "user" if kind == "serviceAccount" else kind
        answer["domain" if kind == "domain" else "email"] = name
    entity = f"{kind}-{name}" if name else kind
    answer |= {"entity": entity, "etag": bytes_etag(holder.version)}
    if holder.kind == "default":
        return answer
    id, path = holder.bucket.name, holder.bucket.name
    if holder.found is not None:
        answer |= {"object": holder.name, "generation": str(holder.found.generation)}
        id += f"/{holder.name}/{holder.found.generation}"
        path += f"/o/{quote(holder.name, safe='')}"
    link = f"https://www.googleapis.com/storage/v1/b/{path}/acl/{entity}"
    return {**answer, "bucket": holder.bucket.name, "id": f"{id}/{entity}", "selfLink": link}


def list_json(world: World, holder: Holder) -> list[Json]:
    return [entry_json(world, holder, who, role) for who, role in access_roles(holder).items()]


def list_entries(world: World, call: ApiCall, now: float) -> Json:
    """List who has which role."""
    holder, _ = find_list(world, call, "get")
    noun = "bucket" if holder.kind == "buckets" else "object"
    return {"kind": f"storage#{noun}AccessControls", "items": list_json(world, holder)}


def named_member(world: World, call: ApiCall, roles: Mapping[str, str]) -> str:
    """Return the member that the path names, who must be in the list."""
    member = entity_member(world, call.path["entity"])
    if member not in roles:
        raise storage_error(404, "Not Found")
    return member


def get_entry(world: World, call: ApiCall, now: float) -> Json:
    holder, roles = find_list(world, call, "get")
    member = named_member(world, call, roles)
    return entry_json(world, holder, member, roles[member])


def write_entry(world: World, call: ApiCall, now: float) -> Json:
    """Give an entity a role instead of the one that it has."""
    holder, roles = find_list(world, call, "set")
    sent = call.body
    if "entity" in call.path:
        role = roles[named_member(world, call, roles)]
        sent = {"role": role, **call.body, "entity": call.path["entity"]}
    member, role = read_entry(world, holder, sent)
    holder = store_bindings(world, holder, role_bindings(holder, {**roles, member: role}), now)
    return entry_json(world, holder, member, role)


def delete_entry(world: World, call: ApiCall, now: float) -> Response:
    holder, roles = find_list(world, call, "set")
    del roles[named_member(world, call, roles)]
    store_bindings(world, holder, role_bindings(holder, roles), now)
    return Response(status=204)


def read_entry(world: World, holder: Holder, sent: Any) -> tuple[str, str]:
    entity, role = (sent.get("entity"), sent.get("role")) if isinstance(sent, dict) else ("", "")
    if not isinstance(entity, str) or not entity or not role:
        raise storage_error(400, "Required")
    if role not in list(holder.access_roles):
        raise storage_error(400, f"Invalid argument: no role is called {role}.")
    return entity_member(world, entity), str(role)


def role_bindings(holder: Holder, roles: Mapping[str, str]) -> Bindings:
    """Return the policy that has this list; what no list shows of it stays."""
    listed = holder.access_roles.values()
    bindings = {name: who for name, who in holder.bindings.items() if name not in listed}
    for member, role in roles.items():
        name = holder.access_roles[role]
        bindings[name] = (*bindings.get(name, ()), member)
    return bindings


# -- as fields of a bucket or an object -----------------------------------------------------------


def sent_lists(world: World, call: ApiCall) -> dict[str, Bindings]:
    """Return the policies of the lists in a body, by the attributes that keep them."""
    found: dict[str, Bindings] = {}
    for field, attribute in FIELDS.items():
        sent = call.body.get(field)
        if sent is None:
            continue
        holder, _ = find_list(world, call, "set", field)
        if not isinstance(sent, list):
            raise storage_error(400, f"Invalid argument: {field} must be a list.")
        roles = dict(read_entry(world, holder, each) for each in sent)
        found[attribute] = role_bindings(holder, roles)
        check_public(holder.bucket, found[attribute])
    return found


def shown_lists(
    world: World, request: Request, bucket: Bucket, one: StoredObject | None = None
) -> Json:
    """Return the lists as fields if the client asks for them, and may see them."""
    if bucket.uniform or "projection=full" not in request.query.split("&"):
        return {}
    holder = make_holder(bucket, one)
    allowed = caller_permissions(world, bucket, request, holder.name, one)
    if f"storage.{holder.kind}.getIamPolicy" not in allowed:
        return {}
    default = {} if one else {"defaultObjectAcl": make_holder(bucket, default=True)}
    return {field: list_json(world, held) for field, held in {"acl": holder, **default}.items()}


def shown_object(world: World, request: Request, one: StoredObject) -> Json:
    bucket = world.services.buckets[one.bucket]
    return object_json(request, one, bucket) | shown_lists(world, request, bucket, one)


STORAGE = "/storage/v1/b/{bucket}"
POLICIES = ("", "/o/{object}", "/managedFolders/{folder}")
LISTS = ("/acl", "/defaultObjectAcl", "/o/{object}/acl")
ROUTES = (
    *(Route(method, f"{STORAGE}{place}/iam{more}", answer)
      for place in POLICIES
      for method, more, answer in (
          ("GET", "", get_policy), ("PUT", "", set_policy),
          ("GET", "/testPermissions", test_permissions),
      )),
    *(Route(method, f"{STORAGE}{place}{more}", answer)
      for place in LISTS
      for method, more, answer in (
          ("GET", "", list_entries), ("POST", "", write_entry), ("GET", "/{entity}", get_entry),
          ("PATCH", "/{entity}", write_entry), ("PUT", "/{entity}", write_entry),
          ("DELETE", "/{entity}", delete_entry),
      )),
)  # fmt: skip
