"""Opens a secret address in the user's browser, and puts it into no argument, which all may read.

The browser is given the address of a door on this machine, which answers once, and this user only,
with where to go.
"""

import asyncio
import secrets
import sys
import webbrowser
from collections.abc import Mapping
from contextlib import closing, suppress
from hmac import compare_digest

from tpuherd.peer_uid import is_stranger

LOOPBACK = "127.0.0.1"
BROWSER_S = 60.0  #: for the browser to come
LINE_S = 10.0
AWAY = """HTTP/1.1 404 Not Found\r
Content-Length: 0\r
Connection: close\r
\r
"""
ONWARD = """HTTP/1.1 303 See Other\r
Location: {url}\r
Cache-Control: no-store\r
Referrer-Policy: no-referrer\r
Content-Length: 0\r
Connection: close\r
\r
"""


def has_browser(environ: Mapping[str, str]) -> bool:
    """Whether there is a screen for a browser, which must not take over this terminal."""
    if sys.platform == "darwin" or environ.get("BROWSER"):
        return True
    return bool(environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY"))


async def open_browser(url: str) -> None:
    """Open the user's browser, if there is one; return when it has come, or after a minute."""
    path = f"/{secrets.token_urlsafe(32)}"
    came = asyncio.Event()

    async def answer_browser(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer), suppress(OSError, ValueError, TimeoutError):
            if is_stranger(writer.get_extra_info("peername"), writer.get_extra_info("sockname")):
                return
            async with asyncio.timeout(LINE_S):
                words = (await reader.readline()).split()
            known = words[:1] == [b"GET"] and compare_digest(words[1], path.encode())
            text = ONWARD.format(url=url) if known and not came.is_set() else AWAY
            writer.write(text.encode())
            await writer.drain()
            if known:
                came.set()

    async with await asyncio.start_server(answer_browser, LOOPBACK, 0) as door:
        port = door.sockets[0].getsockname()[1]
        await asyncio.to_thread(webbrowser.open, f"http://{LOOPBACK}:{port}{path}")
        with suppress(TimeoutError):
            async with asyncio.timeout(BROWSER_S):
                await came.wait()
