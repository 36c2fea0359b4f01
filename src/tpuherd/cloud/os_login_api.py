"""The SSH keys in a user's OS Login profile, which count where it is enforced."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from tpuherd.cloud.parse import parse_shape
from tpuherd.cloud.rest import Json, RestClient
from tpuherd.errors import NotFound
from tpuherd.lazy_modules import import_lazily

if TYPE_CHECKING:
    from tpuherd.cloud import reply_shapes
else:
    reply_shapes = import_lazily("tpuherd.cloud.reply_shapes")


@dataclass(frozen=True, kw_only=True, slots=True)
class LoginProfile:
    """How a user logs in to hosts with OS Login."""

    username: str  #: on hosts
    keys: dict[str, str]  #: by fingerprint: ssh-ed25519 AAAA…

    def fingerprint(self, public: str) -> str:
        """The fingerprint of that key; "" if the profile does not have it."""
        found = (name for name, key in self.keys.items() if key == public)
        return next(found, "")


async def get_login_profile(rest: RestClient, email: str) -> LoginProfile:
    return parse_profile(await rest.call_os_login("GET", f"users/{quote(email)}/loginProfile"))


async def import_login_key(rest: RestClient, email: str, public: str) -> LoginProfile:
    """Add a key to the user's profile; one that is there already is fine."""
    path = f"users/{quote(email)}:importSshPublicKey"
    content = await rest.call_os_login("POST", path, {"key": public})
    profile = content.get("loginProfile")
    return parse_profile(profile if isinstance(profile, dict) else {})


async def delete_login_key(rest: RestClient, email: str, fingerprint: str) -> None:
    """Delete a key; fine if it does not exist."""
    try:
        path = f"users/{quote(email)}/sshPublicKeys/{quote(fingerprint)}"
        await rest.call_os_login("DELETE", path)
    except NotFound:
        pass


def parse_profile(content: Json) -> LoginProfile:
    found = parse_shape(content, reply_shapes.ApiLoginProfile)
    accounts = sorted(found.posix_accounts, key=lambda one: not one.primary)
    return LoginProfile(
        username=accounts[0].username if accounts else "",
        keys={name: " ".join(one.key.split()[:2]) for name, one in found.ssh_public_keys.items()},
    )
