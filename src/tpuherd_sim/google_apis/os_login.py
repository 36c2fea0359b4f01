"""OS Login's profiles: the SSH keys and POSIX account of a user. Hosts here do not ask for them."""

import hashlib
import re

from tpuherd_sim.model.http_types import ApiCall, ApiError, Json
from tpuherd_sim.model.world import World
from tpuherd_sim.tpu.router import Route

USER = re.compile(r"[^\s@/]+@[^\s@/]+")
KEY = re.compile(r"(ssh|ecdsa|sk)-[\w@.-]+ [A-Za-z0-9+/]+=*( .*)?")
USER_ID = 1_000_000_000  #: the first of POSIX accounts


def profile_user(call: ApiCall) -> str:
    user = call.path["user"]
    if not USER.fullmatch(user):
        raise ApiError(400, "INVALID_ARGUMENT", "Request contains an invalid argument.")
    return user


def profile_json(world: World, user: str) -> Json:
    seed = hashlib.blake2b(user.encode(), digest_size=8).hexdigest()
    number, name = int(seed, 16), re.sub(r"[^a-z0-9]", "_", user.lower())[:32]
    account: Json = {
        "primary": True,
        "username": name,
        "uid": str(USER_ID + number % 10**9),
        "gid": str(USER_ID + number % 10**9),
        "homeDirectory": f"/home/{name}",
        "operatingSystemType": "LINUX",
        "accountId": world.settings.project,
        "name": f"users/{user}/projects/{world.settings.project}",
    }
    profile: Json = {"name": str(number), "posixAccounts": [account]}
    keys = world.services.login_keys.get(user, ())
    if keys:
        profile["sshPublicKeys"] = {key_fingerprint(key): key_json(user, key) for key in keys}
    return profile


def key_fingerprint(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def key_json(user: str, key: str) -> Json:
    digest = key_fingerprint(key)
    return {"key": key, "fingerprint": digest, "name": f"users/{user}/sshPublicKeys/{digest}"}


def get_profile(world: World, call: ApiCall, now: float) -> Json:
    return profile_json(world, profile_user(call))


def import_key(world: World, call: ApiCall, now: float) -> Json:
    """Add a key to a user's profile; one that is there already stays."""
    user, key = profile_user(call), call.body.get("key")
    if not isinstance(key, str) or not KEY.fullmatch(key):
        raise ApiError(400, "INVALID_ARGUMENT", "The SSH public key is malformed.")
    known = world.services.login_keys.get(user, ())
    world.services.login_keys[user] = tuple(dict.fromkeys((*known, key)))
    return {"loginProfile": profile_json(world, user)}


def delete_key(world: World, call: ApiCall, now: float) -> Json:
    user = profile_user(call)
    known = world.services.login_keys.get(user, ())
    kept = tuple(key for key in known if key_fingerprint(key) != call.path["fingerprint"])
    if kept == known:
        raise ApiError(404, "NOT_FOUND", "Requested entity was not found.")
    world.services.login_keys[user] = kept
    return {}


ROUTES = (
    Route("GET", "/v1/users/{user}/loginProfile", get_profile),
    Route("POST", "/v1/users/{user}:importSshPublicKey", import_key),
    Route("DELETE", "/v1/users/{user}/sshPublicKeys/{fingerprint}", delete_key),
)
