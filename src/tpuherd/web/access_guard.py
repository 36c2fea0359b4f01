"""Decides who may use the page: whoever has the token, from a page of this server only.

A browser gets the token once, in the address that `herd ui` prints, and then has a cookie: the
session of this process, which ends with it. Browsers send cookies to all ports of a machine, so
connections of its other users are closed at once, as far as the kernel tells who connects.
A name that leads here by a foreign DNS entry, a script of another page and a frame are refused.
"""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from hmac import compare_digest
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tpuherd.web.json_answers import json_answer

LOOPBACK = frozenset(("127.0.0.1", "localhost", "::1"))
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
        " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
CACHING = "no-cache"  #: unless an answer says otherwise
COMMAND = "herd ui"
LOCKED = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>tpuherd</title>
<h1>This page needs a new address</h1>
<p>The browser has no valid token for it. Run <code>herd ui</code> in a terminal, and open the
address that it prints.</p>
</html>
"""
ENTERING = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>tpuherd</title>
<meta http-equiv="refresh" content="0; url=/"><p><a href="/">Continue</a></p>
</html>
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class AccessRules:
    """Who may use the page."""

    token: str
    session: str  #: of this process; the value of its cookie
    port: int
    names: frozenset[str] = LOOPBACK  #: by which a browser may call this server
    any_address: bool = False  #: also by any IP address: it listens on more than loopback

    @property
    def cookie(self) -> str:
        """The name of its cookie; browsers send cookies to all ports of a machine."""
        return f"herd_ui_{self.port}"


class AccessGuard:
    """Refuses strangers, and adds the headers that keep foreign content out."""

    def __init__(self, app: ASGIApp, rules: AccessRules) -> None:
        self._app = app
        self._rules = rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = read_headers(scope)
        answer = (
            foreign_request(headers, self._rules)
            or self._enter(scope, headers)
            or refuse_without_token(scope, headers, self._rules)
        )

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                sent = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    sent[name] = value
                sent.setdefault("Cache-Control", CACHING)
            await send(message)

        await (answer or self._app)(scope, receive, send_guarded)

    def _enter(self, scope: Scope, headers: Mapping[str, str]) -> Response | None:
        """Answer a visit to the printed address: the token moves into a cookie."""
        if scope["path"] != "/" or scope["method"] != "GET":
            return None
        said = parse_qs(scope["query_string"].decode("latin-1")).get("token", [])
        if not said:
            return None
        if not is_equal(said[0], self._rules.token):
            return HTMLResponse(LOCKED, status_code=401)
        # From another site's link, only a visit that begins here carries a strict cookie.
        foreign = headers.get("sec-fetch-site") == "cross-site"
        answer = HTMLResponse(ENTERING) if foreign else RedirectResponse("/", status_code=303)
        answer.set_cookie(
            self._rules.cookie, self._rules.session, httponly=True, samesite="strict", path="/"
        )
        return answer


def read_headers(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


def foreign_request(headers: Mapping[str, str], rules: AccessRules) -> Response | None:
    """Refuse a call by a foreign name or from a foreign page; None if it is neither."""
    host = headers.get("host", "")
    if not is_own_host(host, rules):
        return refuse(403, f"this page is not called {host[:100] or 'by an empty name'}")
    origin = headers.get("origin")
    if origin is not None and origin != f"http://{host}":
        return refuse(403, "another page may not use this one")
    if headers.get("sec-fetch-site") in ("cross-site", "same-site") and (
        headers.get("sec-fetch-mode") != "navigate"
    ):
        return refuse(403, "another page may not use this one")
    return None


def is_own_host(host: str, rules: AccessRules) -> bool:
    """Whether a Host header, with any port (a tunnel has another), is a name of this server."""
    try:
        name = (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return False
    if name in rules.names:
        return True
    return rules.any_address and is_address(name)


def is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def refuse_without_token(
    scope: Scope, headers: Mapping[str, str], rules: AccessRules
) -> Response | None:
    """Refuse a request without the token, in the form that its sender reads."""
    bearer = headers.get("authorization", "")
    kind, _, said = bearer.partition(" ")
    if kind.lower() == "bearer" and is_equal(said.strip(), rules.token):
        return None
    session = cookie_value(headers.get("cookie", ""), rules.cookie)
    if is_equal(session, rules.session):
        return None
    if scope["path"] == "/":
        return HTMLResponse(LOCKED, status_code=401)
    return refuse(401, "the token is missing or no longer valid", hint=f"run `{COMMAND}` again")


def cookie_value(header: str, name: str) -> str:
    """A cookie's value; one that another server of this machine set wrongly hides no other."""
    return cookie_parser(header).get(name, "")


def is_equal(said: str, secret: str) -> bool:
    return compare_digest(said.encode("utf-8", "replace"), secret.encode())


def refuse(status: int, sentence: str, *, hint: str = "") -> Response:
    return json_answer({"error": sentence, "hint": hint}, status)
