"""Who we are to Google: a service account, the user's own login, this machine, or gcloud."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from tpuherd.clock import Clock
from tpuherd.cloud.later import Later, httpx2
from tpuherd.cloud.whence import HINT, Credentials
from tpuherd.ports import NotAllowed, NotReached

SCOPE = "https://www.googleapis.com/auth/cloud-platform"
TOKEN_URL = "https://oauth2.googleapis.com/token"
METADATA_PATH = "/computeMetadata/v1/instance/service-accounts/default/token"
MARGIN_S = 120.0  #: before its end a token is renewed
GCLOUD_LIFE_S = 600.0  #: gcloud does not say how long its tokens last: at least so long
JWT_LIFE_S = 3600


@dataclass(frozen=True, kw_only=True, slots=True)
class Token:
    """May be shown until `until`."""

    text: str
    until: float


class Nobody:
    """For a simulated world, which asks nobody's name."""

    async def headers(self) -> Mapping[str, str]:
        return {}


class Account:
    """For Google: has a token, and renews it."""

    def __init__(
        self, credentials: Credentials, client: Later | httpx2.AsyncClient, clock: Clock
    ) -> None:
        self.credentials = credentials
        self.client = client
        self.clock = clock
        self._token: Token | None = None
        self._lock = asyncio.Lock()

    async def headers(self) -> Mapping[str, str]:
        """The token as a header."""
        async with self._lock:
            now = self.clock.now()
            if self._token is None or self._token.until - MARGIN_S < now:
                self._token = await self._new(now)
            return {"Authorization": f"Bearer {self._token.text}"}

    async def _new(self, now: float) -> Token:
        """Ask whoever can give one."""
        chosen = self.credentials
        if chosen.file is not None:
            return await self._of_file(chosen.file, now)
        if chosen.metadata_url is not None:
            return await self._of_machine(chosen.metadata_url, now)
        if chosen.gcloud is not None:
            return await self._of_gcloud(chosen.gcloud, now)
        raise NotAllowed("there are no credentials for Google Cloud", hint=HINT)

    async def _of_file(self, file: Path, now: float) -> Token:
        try:
            content = json.loads(file.read_bytes())
            grant = assertion(content, now) or refresh(content)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise NotAllowed(f"{file} can't be used ({error})", hint=HINT) from error
        if grant is None:
            if self.credentials.gcloud is not None:
                return await self._of_gcloud(self.credentials.gcloud, now)
            kind = content.get("type")
            raise NotAllowed(f"{file} is of a kind unknown to us ({kind})", hint=HINT)
        return await self._asked("POST", content.get("token_uri") or TOKEN_URL, now, data=grant)

    async def _of_machine(self, url: str, now: float) -> Token:
        return await self._asked(
            "GET", f"{url}{METADATA_PATH}", now, headers={"Metadata-Flavor": "Google"}
        )

    async def _asked(
        self,
        method: str,
        url: str,
        now: float,
        *,
        data: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
    ) -> Token:
        """A token from an HTTP server."""
        try:
            answer = await self.client.request(method, url, data=data, headers=headers)
            content = answer.json()
        except httpx2.HTTPError as error:
            raise NotReached(f"Google gave no token ({error})", hint=HINT) from error
        except ValueError:
            content = {}
        if not isinstance(content, dict) or "access_token" not in content:
            why = content.get("error_description") if isinstance(content, dict) else None
            raise NotAllowed(
                f"Google gave no token ({why or f'HTTP status {answer.status_code}'})", hint=HINT
            )
        return Token(text=content["access_token"], until=now + float(content["expires_in"]))

    async def _of_gcloud(self, program: str, now: float) -> Token:
        """What the user's gcloud says."""
        process = await asyncio.create_subprocess_exec(
            program,
            "auth",
            "print-access-token",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, said = await process.communicate()
        if process.returncode or not out.strip():
            words = said.decode("utf-8", "replace").strip().splitlines()
            why = words[0] if words else f"status {process.returncode}"
            raise NotAllowed(f"gcloud gave no token ({why})", hint=HINT)
        return Token(text=out.decode().strip(), until=now + GCLOUD_LIFE_S)


def refresh(content: Mapping[str, str]) -> dict[str, str] | None:
    """How a user's own login asks for a token."""
    if content.get("type") != "authorized_user":
        return None
    names = ("client_id", "client_secret", "refresh_token")
    return {"grant_type": "refresh_token", **{name: content[name] for name in names}}


def assertion(content: Mapping[str, str], now: float) -> dict[str, str] | None:
    """How a service account asks for one: by a signed statement (RFC 7523)."""
    if content.get("type") != "service_account":
        return None
    head = {"alg": "RS256", "typ": "JWT", "kid": content["private_key_id"]}
    claims = {
        "iss": content["client_email"],
        "scope": SCOPE,
        "aud": content.get("token_uri") or TOKEN_URL,
        "iat": int(now),
        "exp": int(now) + JWT_LIFE_S,
    }
    key = load_pem_private_key(content["private_key"].encode(), password=None)
    if not isinstance(key, RSAPrivateKey):
        raise TypeError("the private key is not RSA")
    text = b".".join(coded(json.dumps(part).encode()) for part in (head, claims))
    signature = coded(key.sign(text, PKCS1v15(), SHA256()))
    return {
        "grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer",
        "assertion": (text + b"." + signature).decode(),
    }


def coded(content: bytes) -> bytes:
    """base64 as JWTs have it."""
    return base64.urlsafe_b64encode(content).rstrip(b"=")
