"""Access tokens for Google Cloud: from application default credentials, or from gcloud."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module

from tpuherd.clock import Clock, WallClock
from tpuherd.cloud.lazy_http import LazyHttpClient, httpx2
from tpuherd.cloud.parse import parse_timestamp
from tpuherd.errors import NoLogin, NotReached
from tpuherd.settings.endpoints import HINT, AuthToken, CredentialSource

METADATA_PATH = "/computeMetadata/v1/instance/service-accounts/default/token"
FLAVOR = {"Metadata-Flavor": "Google"}
MARGIN_S = 120.0  #: a token is renewed this long before it expires
GCLOUD_S = 60.0  #: gcloud takes seconds on a busy machine; some of its plug-ins never return
GCLOUD_LIFE_S = 300.0  #: assumed for a token from gcloud without an expiry time
GCLOUD = ("config", "config-helper", "--format=json", "--min-expiry=5m")


class AnonymousAuth:
    """For a simulated world, which does not authenticate anyone."""

    async def auth_headers(self) -> Mapping[str, str]:
        return {}

    def invalidate_headers(self, headers: Mapping[str, str]) -> bool:
        return False


class GoogleAuth:
    """For Google: keeps a token and renews it before it expires."""

    def __init__(
        self,
        credentials: CredentialSource,
        client: LazyHttpClient | httpx2.AsyncClient,
        clock: Clock,
    ) -> None:
        self.credentials = credentials
        self.client = client
        self.clock = clock
        self._headers: Mapping[str, str] = {}
        self._until = 0.0
        self._lock = asyncio.Lock()

    async def auth_headers(self) -> Mapping[str, str]:
        """The headers with the token, and with the quota project if one is configured."""
        async with self._lock:
            if self._until - MARGIN_S < self.clock.now():
                try:
                    await self._renew_token()
                except NotReached:
                    if self._until <= self.clock.now():
                        raise
            return self._headers

    def invalidate_headers(self, headers: Mapping[str, str]) -> bool:
        """The cloud rejected these headers: get a new token for the next request."""
        if headers == self._headers:
            self._until = 0.0
        return True

    async def _renew_token(self) -> None:
        token = await self._get_token()
        self._headers, self._until = token.headers, self.clock.now() + token.life_s

    async def _get_token(self) -> AuthToken:
        """From the configured source only: never falls back to another identity."""
        chosen = self.credentials
        if chosen.file is not None:
            # It takes 0.2 s to import and may block: run it outside the event loop.
            google_login = await asyncio.to_thread(import_module, "tpuherd.cloud.google_login")
            token: AuthToken = await google_login.get_token(
                self.client, chosen.file, chosen.quota_project
            )
            return token
        if chosen.metadata_url is not None:
            return await ask_metadata_server(chosen.metadata_url, self.client, chosen.quota_project)
        if chosen.gcloud is not None:
            return await ask_gcloud(chosen.gcloud, chosen)
        raise NoLogin("no credentials for Google Cloud found", hint=HINT)


async def ask_metadata_server(
    url: str, client: LazyHttpClient | httpx2.AsyncClient, quota_project: str | None
) -> AuthToken:
    """A token from the metadata server. We ask it ourselves: google-auth would need `requests`."""
    try:
        answer = await client.request("GET", url + METADATA_PATH, headers=FLAVOR)
        content = answer.json()
        text, life_s = str(content["access_token"]), float(content["expires_in"])
    except httpx2.HTTPError as error:
        raise NotReached(f"the metadata server returned no token ({error})", hint=HINT) from error
    except (ValueError, KeyError, TypeError) as error:
        why = f"the metadata server returned no token (HTTP status {answer.status_code})"
        if answer.status_code in (403, 404):
            raise NoLogin(f"{why}: this machine has no service account", hint=HINT) from error
        raise NotReached(why, hint="try again later") from error
    payer = {"x-goog-user-project": quota_project} if quota_project else {}
    return AuthToken(headers={"authorization": f"Bearer {text}", **payer}, life_s=life_s)


async def ask_gcloud(program: str, chosen: CredentialSource) -> AuthToken:
    """A token for gcloud's active configuration, impersonation included."""
    process = await asyncio.create_subprocess_exec(
        program,
        *GCLOUD,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=dict(chosen.settings),
        start_new_session=True,  # gcloud runs several processes: we kill the whole group
    )
    try:
        async with asyncio.timeout(GCLOUD_S):
            out, stderr = await process.communicate()
    except BaseException as error:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.communicate()
        if not isinstance(error, TimeoutError):
            raise
        hint = f"try: gcloud {' '.join(GCLOUD)}"
        raise NotReached(f"gcloud returned no token in {GCLOUD_S:g} s", hint=hint) from error
    if process.returncode:
        words = stderr.decode("utf-8", "replace").strip().splitlines()
        why = words[0] if words else f"status {process.returncode}"
        raise NoLogin(f"gcloud returned no token ({why})", hint=HINT)
    try:
        credential = json.loads(out)["credential"]
        text, expiry = str(credential["access_token"]), credential["token_expiry"]
    except (ValueError, KeyError, TypeError) as error:
        raise NoLogin(
            "gcloud returned a token that herd can't read",
            hint="update it: gcloud components update",
        ) from error
    end = parse_timestamp(str(expiry))
    life_s = end - WallClock().now() if end else GCLOUD_LIFE_S
    return AuthToken(headers={"authorization": f"Bearer {text}"}, life_s=life_s)
