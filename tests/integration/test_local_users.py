"""Other users of this machine can use neither the page, nor its cookie, nor forwarded ports."""

import http.client
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.integration.test_page_process import lasting_port, read_address, serving
from tests.integration.test_world_strangers import STRANGER, curl, foreign_socket

pytestmark = [pytest.mark.real, pytest.mark.needs("curl")]
URL = "http://127.0.0.1:1/?token=canary-token"
OPEN = f"""
import asyncio
from tpuherd.cli.open_browser import open_browser
asyncio.run(open_browser({URL!r}))
"""
#: Stands in for a browser: notes its arguments, then has others and itself go there.
BROWSER = """\
#!/bin/sh
printf '%s\\n' "$@" > "$HOME/arguments"
go="curl --silent --max-time 10 --output /dev/null --write-out %{http_code}|%{redirect_url}\\n"
[ "$(id -u)" != 0 ] || setpriv --reuid 65534 --regid 65534 --clear-groups $go "$1" > "$HOME/other"
$go -X POST "$1" > "$HOME/answers"
$go "${1%?}" >> "$HOME/answers"
$go "$1" >> "$HOME/answers"
$go "$1" >> "$HOME/answers"
"""
FORWARD = """
import asyncio, sys
from tpuherd.commands.forward_port import PortForward

async def tell(sentence):
    print(sentence, flush=True)

async def main(port):
    forward = PortForward(
        title="x", open_tunnel=lambda: asyncio.open_connection("127.0.0.1", port), tell=tell
    )
    server = await forward.listen(0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()

asyncio.run(main(int(sys.argv[1])))
"""


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {
        "HOME": str(tmp_path), "PATH": os.environ["PATH"], "LANG": "C.UTF-8",
        "GOOGLE_CLOUD_PROJECT": "demo", "NO_GCE_CHECK": "true",
    }  # fmt: skip


def test_a_browser_gets_no_token_in_its_arguments(environ: dict[str, str], tmp_path: Path) -> None:
    browser = tmp_path / "browser"
    browser.write_text(BROWSER)
    browser.chmod(0o755)
    environ["BROWSER"] = f"{browser} %s"
    subprocess.run([sys.executable, "-c", OPEN], env=environ, check=True, timeout=60)
    assert "canary" not in (tmp_path / "arguments").read_text()
    posted, wrong, first, again = (tmp_path / "answers").read_text().splitlines()
    assert (posted, wrong, first) == ("404|", "404|", f"303|{URL}")
    assert "canary" not in again
    if os.getuid() == 0:
        assert (tmp_path / "other").read_text() == "000|\n"


def enter(port: int, token: str) -> str:
    """The cookie that a visit to the printed address leaves."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request("GET", f"/?token={token}")
        cookie = connection.getresponse().headers["set-cookie"]
    assert token not in cookie
    return str(cookie.partition(";")[0])


def use(port: int, cookie: str, uid: int) -> str:
    """The status of a call with a cookie."""
    url = f"http://127.0.0.1:{port}/api/overview"
    return curl("-o", "/dev/null", "-w", "%{http_code}", "-H", f"Cookie: {cookie}", url, uid=uid)


def test_a_cookie_ends_with_its_process(environ: dict[str, str]) -> None:
    number = str(lasting_port())
    with serving(environ, "--port", number) as process:
        port, token = read_address(process)
        cookie = enter(port, token)
        assert use(port, cookie, os.getuid()) == "200"
    with serving(environ, "--port", number) as process:
        assert read_address(process) == (port, token), "its address stays"
        assert use(port, cookie, os.getuid()) == "401"
        assert use(port, enter(port, token), os.getuid()) == "200"


@pytest.mark.root
def test_a_cookie_is_of_no_use_to_another_user(environ: dict[str, str]) -> None:
    with serving(environ) as process:
        port, token = read_address(process)
        cookie = enter(port, token)
        assert use(port, cookie, STRANGER).startswith("000"), "closed at once"
        assert use(port, cookie, 0) == "200"


@pytest.mark.root
def test_idle_connections_of_another_user_do_not_hold_the_page_up(environ: dict[str, str]) -> None:
    with serving(environ) as process:
        port, token = read_address(process)
        cookie = enter(port, token)
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (400, 400))
        with ExitStack() as idle:
            for _ in range(500):
                idle.enter_context(foreign_socket()).connect(("127.0.0.1", port))
            assert use(port, cookie, 0) == "200"


@contextmanager
def forwarded_page() -> Iterator[str]:
    """A page of a host, and the address here that leads to it."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"dashboard")

        def log_message(self, *words: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    thread = Thread(target=server.serve_forever)
    thread.start()
    words = [sys.executable, "-c", FORWARD, str(server.server_port)]
    try:
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                yield f"http://127.0.0.1:{int(process.stdout.readline())}/"
            finally:
                process.kill()
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.root
def test_a_forwarded_port_is_closed_to_other_users() -> None:
    with forwarded_page() as url:
        assert curl(url, uid=0) == "dashboard"
        assert "dashboard" not in curl(url, uid=STRANGER)
        assert curl(url, uid=0) == "dashboard"
