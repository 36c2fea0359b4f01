"""Tokens of every kind of login: how each is obtained and renewed, and the message without one."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from time import time
from typing import Any, TypeVar
from urllib.parse import parse_qs

import httpx2
import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tpuherd.cloud import auth
from tpuherd.cloud.auth import GoogleAuth
from tpuherd.cloud.rest import RestClient
from tpuherd.errors import HerdError, NoLogin, NotReached
from tpuherd.settings.endpoints import CredentialSource, ServiceUrls

T = TypeVar("T")
USER = {
    "type": "authorized_user",
    "client_id": "me.apps",
    "client_secret": "s",
    "refresh_token": "r",
}
IMPERSONATED = {
    "type": "impersonated_service_account",
    "service_account_impersonation_url": (
        "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/robot@p:generateAccessToken"
    ),
    "source_credentials": USER,
    "delegates": [],
}
WORKFORCE = {
    "type": "external_account_authorized_user",
    "audience": "//iam.googleapis.com/locations/global/workforcePools/p/providers/q",
    "client_id": "i",
    "client_secret": "s",
    "refresh_token": "r",
    "token_url": "https://sts.googleapis.com/v1/oauthtoken",
    "token_info_url": "https://sts.googleapis.com/v1/introspect",
}
Answer = Callable[[httpx2.Request], httpx2.Response]


class Watch:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.at = 1_800_000_000.0

    def now(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nobody sleeps here")


class Google(httpx2.AsyncBaseTransport):
    """The issuers of tokens, and the cloud behind them."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.asked: list[httpx2.Request] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.asked.append(request)
        await request.aread()
        answer = self.answer(request)
        answer.request = request
        return answer

    @property
    def hosts(self) -> list[str]:
        return [request.url.host for request in self.asked]


def given(text: str, life_s: int = 3600) -> httpx2.Response:
    """As the endpoints of OAuth, of the security token service and of IAM answer: all in one."""
    end = datetime.fromtimestamp(time() + life_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    content = {"access_token": text, "expires_in": life_s, "token_type": "Bearer"}
    issued = {"issued_token_type": "urn:ietf:params:oauth:token-type:access_token"}
    return httpx2.Response(200, json={**content, **issued, "accessToken": text, "expireTime": end})


def logged_in(
    google: Google, credentials: CredentialSource, work: Callable[[GoogleAuth, Watch], Awaitable[T]]
) -> T:
    """Somebody with these credentials does something."""

    async def main() -> T:
        watch = Watch()
        async with httpx2.AsyncClient(transport=google) as http:
            return await work(GoogleAuth(credentials, http, watch), watch)

    return asyncio.run(main())


def one_header(google: Google, credentials: CredentialSource) -> dict[str, str]:
    async def work(account: GoogleAuth, watch: Watch) -> dict[str, str]:
        return dict(await account.auth_headers())

    return logged_in(google, credentials, work)


@pytest.fixture
def save(tmp_path: Path) -> Callable[[Any], CredentialSource]:
    """Credentials in a file."""

    def save(content: Any) -> CredentialSource:
        file = tmp_path / "adc.json"
        file.write_text(content if isinstance(content, str) else json.dumps(content))
        return CredentialSource(file=file)

    return save


Save = Callable[[Any], CredentialSource]


def test_a_users_token_is_kept_and_renewed_in_time(save: Save) -> None:
    google = Google(lambda request: given(f"t{len(google.asked)}"))

    async def work(account: GoogleAuth, watch: Watch) -> list[str]:
        both = await asyncio.gather(account.auth_headers(), account.auth_headers())
        seen = [one["authorization"] for one in both]
        for seconds in (3000.0, 500.0):
            watch.at += seconds
            seen.append((await account.auth_headers())["authorization"])
        return seen

    expected = ["Bearer t1", "Bearer t1", "Bearer t1", "Bearer t2"]
    assert logged_in(google, save(USER), work) == expected
    body = parse_qs(google.asked[0].content.decode())
    assert (body["grant_type"], body["refresh_token"]) == (["refresh_token"], ["r"])


def test_the_billed_project_is_sent(save: Save) -> None:
    google = Google(lambda request: given("t"))
    named = save({**USER, "quota_project_id": "payer"})
    assert one_header(google, named)["x-goog-user-project"] == "payer"
    other = CredentialSource(file=named.file, quota_project="other")
    assert one_header(google, other)["x-goog-user-project"] == "other"
    assert "x-goog-user-project" not in one_header(google, save(USER))


def test_a_service_account_signs(save: Save) -> None:
    key = generate_private_key(public_exponent=65537, key_size=2048)
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    said = {"client_email": "me@p", "private_key": text, "private_key_id": "1"}
    google = Google(lambda request: given("t"))
    file = save({"type": "service_account", "token_uri": "http://t/token", **said})
    assert one_header(google, file)["authorization"] == "Bearer t"
    (assertion,) = parse_qs(google.asked[0].content.decode())["assertion"]
    assert assertion.count(".") == 2
    assert str(google.asked[0].url) == "http://t/token"


def test_an_impersonated_account_asks_twice(save: Save) -> None:
    google = Google(lambda request: given(f"of {request.url.host}"))
    headers = one_header(google, save(IMPERSONATED))
    assert headers["authorization"] == "Bearer of iamcredentials.googleapis.com"
    assert google.hosts == ["oauth2.googleapis.com", "iamcredentials.googleapis.com"]
    assert google.asked[1].headers["authorization"] == "Bearer of oauth2.googleapis.com"


def test_a_federated_identity_presents_its_own_token(save: Save, tmp_path: Path) -> None:
    (tmp_path / "subject").write_text("what my own provider says")
    google = Google(lambda request: given("t"))
    federated = save(
        {
            "type": "external_account",
            "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p",
            "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
            "token_url": "https://sts.googleapis.com/v1/token",
            "credential_source": {"file": str(tmp_path / "subject")},
        }
    )
    assert one_header(google, federated)["authorization"] == "Bearer t"
    asked = [one for one in google.asked if one.url.host == "sts.googleapis.com"]
    body = parse_qs(asked[0].content.decode())
    assert body["subject_token"] == ["what my own provider says"]


def test_a_workforce_user(save: Save) -> None:
    google = Google(lambda request: given("t"))
    assert one_header(google, save(WORKFORCE))["authorization"] == "Bearer t"
    assert google.hosts == ["sts.googleapis.com"]


def test_a_machine_of_googles_asks_its_metadata_server() -> None:
    google = Google(lambda request: given("t", 300))
    found = one_header(google, CredentialSource(metadata_url="http://md:8080"))
    assert found["authorization"] == "Bearer t"
    (asked,) = google.asked
    assert (asked.url.host, asked.url.port) == ("md", 8080)
    assert asked.headers["metadata-flavor"] == "Google"


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (lambda request: httpx2.Response(404, text="not found"), NoLogin),
        (lambda request: httpx2.Response(503), NotReached),
        (lambda request: httpx2.Response(200, html="<html>"), NotReached),
        (lambda request: httpx2.Response(200, json=[]), NotReached),
        (lambda request: httpx2.Response(200, json={"access_token": "t"}), NotReached),
    ],
    ids=["no account", "503", "page", "list", "half"],
)
def test_a_machine_without_a_service_account(answer: Answer, kind: type[HerdError]) -> None:
    with pytest.raises(kind, match="metadata server returned no token") as caught:
        one_header(Google(answer), CredentialSource(metadata_url="http://md"))
    assert type(caught.value) is kind


# ---- where there is none -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "adc.json"),
        ("[]", "adc.json"),
        ({"type": "levitation"}, "Type is levitation"),
        ({"type": "external_account"}, "adc.json"),
        ({"type": "authorized_user"}, "adc.json"),
        ({"type": "service_account", "private_key": "x"}, "adc.json"),
        ({**USER, "refresh_token": None}, "refresh"),
    ],
    ids=str,
)
def test_unusable_credentials_are_refused_and_no_others_are_tried(
    save: Save, tmp_path: Path, content: Any, says: str
) -> None:
    (tmp_path / "gcloud").write_text("#!/bin/sh\necho somebody else\n")
    (tmp_path / "gcloud").chmod(0o755)
    google = Google(lambda request: given("t"))
    found = CredentialSource(file=save(content).file, gcloud=str(tmp_path / "gcloud"))
    with pytest.raises(NoLogin, match=says) as caught:
        one_header(google, found)
    assert "gcloud auth application-default login" in caught.value.hint
    assert google.asked == []


def raising(kind: type[httpx2.TransportError]) -> Answer:
    def answer(request: httpx2.Request) -> httpx2.Response:
        raise kind("no")

    return answer


REVOKED = {"error": "invalid_grant", "error_description": "Token has been expired or revoked."}


@pytest.mark.parametrize(
    ("answer", "kind", "says"),
    [
        (lambda request: httpx2.Response(400, json=REVOKED), NoLogin, "expired or revoked"),
        (lambda request: httpx2.Response(403, text="no"), NoLogin, "no token"),
        (lambda request: httpx2.Response(503), NotReached, "no token"),
        (lambda request: httpx2.Response(429), NotReached, "no token"),
        (lambda request: httpx2.Response(200, html="<html>"), NotReached, "a page"),
        (lambda request: httpx2.Response(302, headers={"location": "/"}), NotReached, "redirect"),
        (lambda request: httpx2.Response(200), NotReached, "no token"),
        (lambda request: httpx2.Response(200, json=[]), NotReached, "no token"),
        (lambda request: httpx2.Response(200, json={}), NotReached, "no token"),
        (raising(httpx2.ConnectError), NotReached, "ConnectError"),
        (raising(httpx2.ReadTimeout), NotReached, "ReadTimeout"),
    ],
    ids=["revoked", "403", "503", "429", "page", "redirect", "empty", "list", "{}", "dns", "late"],
)
@pytest.mark.parametrize("who", [USER, IMPERSONATED, WORKFORCE], ids=lambda one: str(one["type"]))
def test_only_a_refusal_by_google_is_a_refusal(
    save: Save, answer: Answer, kind: type[HerdError], says: str, who: Any
) -> None:
    google = Google(answer)
    with pytest.raises(kind, match=says) as caught:
        one_header(google, save(who))
    assert type(caught.value) is kind


def test_a_token_is_used_to_its_end_if_no_new_one_is_available(save: Save) -> None:
    google = Google(lambda request: given("t"))

    async def work(account: GoogleAuth, watch: Watch) -> None:
        await account.auth_headers()
        google.answer = raising(httpx2.ConnectError)
        watch.at += 3550
        assert (await account.auth_headers())["authorization"] == "Bearer t"
        watch.at += 60
        with pytest.raises(NotReached):
            await account.auth_headers()

    logged_in(google, save(USER), work)


def test_a_new_login_is_used_at_once(save: Save) -> None:
    google = Google(lambda request: httpx2.Response(400, json=REVOKED))
    found = save(USER)

    async def work(account: GoogleAuth, watch: Watch) -> str:
        with pytest.raises(NoLogin):
            await account.auth_headers()
        save({**USER, "refresh_token": "new"})
        google.answer = lambda request: given("t")
        return (await account.auth_headers())["authorization"]

    assert logged_in(google, found, work) == "Bearer t"
    assert b"refresh_token=new" in google.asked[-1].content


def test_pending_requests_end_with_their_callers(save: Save) -> None:
    async def main() -> None:
        asked = asyncio.Event()

        class Silent(httpx2.AsyncBaseTransport):
            async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
                asked.set()
                await asyncio.Event().wait()
                raise AssertionError

        async with httpx2.AsyncClient(transport=Silent()) as http:
            asking = asyncio.ensure_future(GoogleAuth(save(USER), http, Watch()).auth_headers())
            async with asyncio.timeout(20):
                await asked.wait()
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)

    begun = time()
    asyncio.run(main())
    assert time() - begun < 5


# ---- a token that is not taken -------------------------------------------------------------------


@pytest.mark.parametrize("good", ["Bearer t2", "Bearer t9"])
def test_a_401_drops_the_token_and_asks_once_more(save: Save, good: str) -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        if request.url.host != "cloud":
            return given(f"t{google.hosts.count(request.url.host)}")
        if request.headers["authorization"] == good:
            return httpx2.Response(200, json={"location": "EU"})
        return httpx2.Response(401, json={"error": {"message": "Invalid credentials."}})

    google = Google(answer)

    async def work(account: GoogleAuth, watch: Watch) -> Any:
        rest = RestClient(
            account.client, ServiceUrls(tpu="", compute="", storage="http://cloud"), account
        )
        return await rest.call_storage("GET", "b/mine")

    if good == "Bearer t2":
        assert logged_in(google, save(USER), work) == {"location": "EU"}
    else:
        with pytest.raises(NoLogin, match="Invalid credentials"):
            logged_in(google, save(USER), work)
    assert google.hosts.count("cloud") == 2


# ---- gcloud --------------------------------------------------------------------------------------


def gcloud(tmp_path: Path, script: str, **settings: str) -> CredentialSource:
    program = tmp_path / "gcloud"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    known = {"PATH": "/usr/bin:/bin", **settings}
    return CredentialSource(gcloud=str(program), settings=tuple(known.items()))


def test_gclouds_token_has_its_own_expiry_and_active_configuration(tmp_path: Path) -> None:
    end = datetime.fromtimestamp(time() + 300, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    said = json.dumps({"credential": {"access_token": "$WHO", "token_expiry": end}})
    script = f"""echo "$@" >>{tmp_path}/asked
WHO=$CLOUDSDK_ACTIVE_CONFIG_NAME-$CLOUDSDK_AUTH_IMPERSONATE_SERVICE_ACCOUNT
cat <<EOF
{said}
EOF"""
    settings = {
        "CLOUDSDK_ACTIVE_CONFIG_NAME": "work",
        "CLOUDSDK_AUTH_IMPERSONATE_SERVICE_ACCOUNT": "robot@p",
    }

    async def work(account: GoogleAuth, watch: Watch) -> list[str]:
        seen = []
        for seconds in (0.0, 100.0, 100.0):
            watch.at += seconds
            seen.append((await account.auth_headers())["authorization"])
        return seen

    google = Google(lambda request: given("t"))
    found = logged_in(google, gcloud(tmp_path, script, **settings), work)
    assert found == ["Bearer work-robot@p"] * 3
    asked = (tmp_path / "asked").read_text().splitlines()
    assert (
        asked == ["config config-helper --format=json --min-expiry=5m"] * 2
    )  # at 0 s and at 200 s


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("echo 'ERROR: (gcloud) You have no active account.' >&2; exit 1", "no active account"),
        ("exit 3", "status 3"),
        ("echo a-token", "can't read"),
        ("echo {}", "can't read"),
        ("echo '[]'", "can't read"),
    ],
)
def test_gcloud_without_a_login_is_no_login(tmp_path: Path, script: str, says: str) -> None:
    with pytest.raises(NoLogin, match=says):
        one_header(Google(lambda request: given("t")), gcloud(tmp_path, script))


def test_a_hanging_gcloud_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "GCLOUD_S", 0.5)
    script = f"sleep 300 & echo $! >{tmp_path}/pid; wait"
    with pytest.raises(NotReached, match=r"gcloud returned no token in 0\.5 s"):
        one_header(Google(lambda request: given("t")), gcloud(tmp_path, script))
    pid = int((tmp_path / "pid").read_text())
    state = Path(f"/proc/{pid}/stat")
    assert not state.exists() or state.read_text().split()[2] in "ZX"
