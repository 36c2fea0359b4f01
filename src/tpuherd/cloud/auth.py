"""Who we are to Google: its application default credentials, or where there are none, gcloud."""

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
MARGIN_S = 120.0  #: before its end a token is renewed
GCLOUD_S = 60.0  #: it takes seconds on a busy machine; some of its plug-ins never return
GCLOUD_LIFE_S = 300.0  #: of a token of gcloud's that does not say when it ends
GCLOUD = ("config", "config-helper", "--format=json", "--min-expiry=5m")


class AnonymousAuth:
    """For a simulated world, which asks nobody's name."""

    async def auth_headers(self) -> Mapping[str, str]:
        return {}

    def invalidate_headers(self, headers: Mapping[str, str]) -> bool:
        return False


class GoogleAuth:
    """For Google: has a token, and renews it."""

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
        """The token as a header, and who pays for the request, where somebody says so."""
        async with self._lock:
            if self._until - MARGIN_S < self.clock.now():
                try:
                    await self._renew_token()
                except NotReached:
                    if self._until <= self.clock.now():
                        raise
            return self._headers

    def invalidate_headers(self, headers: Mapping[str, str]) -> bool:
        """The cloud does not take these any more: the next are new ones."""
        if headers == self._headers:
            self._until = 0.0
        return True

    async def _renew_token(self) -> None:
        token = await self._get_token()
        self._headers, self._until = token.headers, self.clock.now() + token.life_s

    async def _get_token(self) -> AuthToken:
        """From whoever is meant: no identity gives way to another."""
        chosen = self.credentials
        if chosen.file is not None:
            # It takes 0.2 s to load, and asks as long as it likes: beside the loop.
            google_login = await asyncio.to_thread(import_module, "tpuherd.cloud.google_login")
            token: AuthToken = await google_login.get_token(
                self.client, chosen.file, chosen.quota_project
            )
            return token
        if chosen.metadata_url is not None:
            return await ask_metadata_server(chosen.metadata_url, self.client, chosen.quota_project)
        if chosen.gcloud is not None:
            return await ask_gcloud(chosen.gcloud, chosen)
        raise NoLogin("there are no credentials for Google Cloud", hint=HINT)


async def ask_metadata_server(
    url: str, client: LazyHttpClient | httpx2.AsyncClient, quota_project: str | None
) -> AuthToken:
    """What the metadata server says; google-auth needs one more HTTP library for it."""
    try:
        answer = await client.request("GET", url + METADATA_PATH, headers=FLAVOR)
        content = answer.json()
        text, life_s = str(content["access_token"]), float(content["expires_in"])
    except httpx2.HTTPError as error:
        raise NotReached(f"the metadata server gave no token ({error})", hint=HINT) from error
    except (ValueError, KeyError, TypeError) as error:
        why = f"the metadata server gave no token (HTTP status {answer.status_code})"
        if answer.status_code in (403, 404):
            raise NoLogin(f"{why}: this machine has no service account", hint=HINT) from error
        raise NotReached(why, hint="try again later") from error
    payer = {"x-goog-user-project": quota_project} if quota_project else {}
    return AuthToken(headers={"authorization": f"Bearer {text}", **payer}, life_s=life_s)


async def ask_gcloud(program: str, chosen: CredentialSource) -> AuthToken:
    """What gcloud says for its active configuration, impersonation included."""
    process = await asyncio.create_subprocess_exec(
        program,
        *GCLOUD,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=dict(chosen.settings),
        start_new_session=True,  # it is several processes, and all of them end
    )
    try:
        async with asyncio.timeout(GCLOUD_S):
            out, said = await process.communicate()
    except BaseException as error:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.communicate()
        if not isinstance(error, TimeoutError):
            raise
        hint = f"try: gcloud {' '.join(GCLOUD)}"
        raise NotReached(f"gcloud gave no token in {GCLOUD_S:g} s", hint=hint) from error
    if process.returncode:
        words = said.decode("utf-8", "replace").strip().splitlines()
        why = words[0] if words else f"status {process.returncode}"
        raise NoLogin(f"gcloud gave no token ({why})", hint=HINT)
    try:
        credential = json.loads(out)["credential"]
        text, expiry = str(credential["access_token"]), credential["token_expiry"]
    except (ValueError, KeyError, TypeError) as error:
        raise NoLogin("gcloud's token makes no sense", hint="is it too old?") from error
    end = parse_timestamp(str(expiry))
    life_s = end - WallClock().now() if end else GCLOUD_LIFE_S
    return AuthToken(headers={"authorization": f"Bearer {text}"}, life_s=life_s)
