"""`herd open`: servers are started on hosts, found again and followed; programs of this machine."""

import json
import shutil
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conformance.world import HERD, until
from tests.integration.engines import Owner, owner
from tests.integration.users import Terminal

pytestmark = [pytest.mark.real, pytest.mark.needs("ssh")]

#: Stands in for both servers: tells how it was started.
SERVER = """\
#!/usr/bin/env python3
import http.server, json, os, sys

class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        said = {"words": sys.argv[1:], "token": os.environ.get("JUPYTER_TOKEN"),
                "folder": os.getcwd(), "pid": os.getpid(),
                "host": open(os.path.expanduser("~/where")).read()}
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(said).encode())

    def log_message(self, *words):
        pass

words = " ".join(sys.argv[1:]).replace("=", " ").split()
port = int(words[words.index("--port") + 1])
http.server.ThreadingHTTPServer(("127.0.0.1", port), Answer).serve_forever()
"""
SETUP = f"""\
mkdir -p ~/.local/bin ~/runs
rm -f ~/.local/bin/jupyter-lab
cat > ~/.local/bin/jupyter-lab <<'END'
{SERVER}END
cat /proc/sys/kernel/random/uuid > ~/where
chmod +x ~/.local/bin/jupyter-lab
"""


@contextmanager
def dev(*options: str) -> Iterator[Owner]:
    """A user with a node of one host, on which the stand-in is installed."""
    with owner("--time-scale", "600", *options) as user:
        job = {"name": "dev", "accelerator": "v4-8", "tier": "spot", "setup": [SETUP]}
        (user.home / "dev.yaml").write_text(json.dumps(job))
        done = user.herd("up", user.home / "dev.yaml", "--yes")
        assert done.returncode == 0, done.stderr
        look = ("exec", "dev", "-n", "--", "test", "-e", "where")
        until(lambda: user.herd(*look).returncode == 0, "the node to be set up", seconds=90)
        yield user


@pytest.fixture(scope="module")
def me() -> Iterator[Owner]:
    real = shutil.which("jupyter-lab")
    with dev(*(("--offer", str(Path(real).parents[1])) if real else ())) as user:
        yield user


@contextmanager
def opened(me: Owner, *words: str) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """`herd open … --no-browser` and the address that it prints."""
    with subprocess.Popen(
        [HERD, "open", *words, "--no-browser"],
        env=me.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None and process.stderr is not None
        try:
            url = process.stdout.readline().split(" ")[0]
            assert url, process.stderr.read()
            yield url, process
        finally:
            process.kill()


def end(process: "subprocess.Popen[str]", number: int) -> tuple[int, str]:
    """Send a signal; the exit status, and what it wrote to stderr."""
    process.send_signal(number)
    said = process.communicate(timeout=30)[1]
    return process.returncode, said


def ask(url: str) -> dict[str, str]:
    """What the stand-in says; empty if nobody answers."""
    try:
        with urllib.request.urlopen(url, timeout=60) as reply:
            found: dict[str, str] = json.loads(reply.read())
            return found
    except OSError:
        return {}


def running(me: Owner) -> list[str]:
    done = me.herd("exec", "dev", "--list", "--json")
    return [one["id"] for one in json.loads(done.stdout) if one["phase"] == "running"]


def test_a_server_is_there_once_with_a_token_until_who_started_it_ends_it(me: Owner) -> None:
    with opened(me, "jupyter", "dev", "runs") as (url, process):
        first = ask(url)
        assert url.endswith(f"/lab?token={first['token']}")
        assert first["token"]
        assert first["folder"].endswith("/runs")
        assert "--ip=127.0.0.1" in first["words"]
        assert first["token"] not in " ".join(first["words"])
        with opened(me, "jupyter", "dev") as (again, second):
            assert ask(again)["pid"] == first["pid"]
            assert again.partition("?")[2] == url.partition("?")[2]
            status, said = end(second, signal.SIGINT)
            assert status == 0
            assert "a server for" in said and "runs already" in said
        assert ask(url)["pid"] == first["pid"]
        assert running(me) == ["open-jupyter"]
        status, said = end(process, signal.SIGINT)
        assert (status, "stopped the jupyter server on dev-0/w0" in said) == (0, True)
    assert running(me) == []


def test_a_closed_window_leaves_it_running_and_stop_ends_it(me: Owner) -> None:
    with opened(me, "jupyter", "dev") as (url, process):
        pid = ask(url)["pid"]
        assert end(process, signal.SIGTERM)[0] == 143
    with opened(me, "jupyter", "dev") as (url, process):
        assert ask(url)["pid"] == pid
        assert me.herd("open", "jupyter", "dev", "--stop").stdout == (
            "Stopped the jupyter server on dev-0/w0\n"
        )
        assert running(me) == []
        revived = until(lambda: ask(url), "a new server at the same address", seconds=30)
        assert revived["pid"] != pid
        assert url.endswith(revived["token"])
    assert me.herd("open", "jupyter", "dev", "--stop").returncode == 0
    done = me.herd("open", "jupyter", "dev", "--stop")
    assert done.stdout == "the jupyter server does not run on dev-0/w0\n"


def test_what_is_missing_or_taken_is_one_sentence(me: Owner) -> None:
    taken = str(me.world.facts["port"])
    for words, status, said in (
        (("tensorboard", "dev"), 1, "dev-0/w0: tensorboard is not installed; get it with: pip"),
        (("jupyter", "dev", "nothing"), 4, "there is no folder nothing on dev-0/w0"),
        (("jupyter", "dev", "--port", taken), 2, f"port {taken} of this machine can't be used"),
        (("jupyter", "no"), 4, "there is no no"),
        (("tmux", "dev"), 2, "tmux needs a terminal"),
        (("code", "dev"), 2, "ssh does not know dev-0-w0"),
    ):
        if words[0] == "tensorboard" and shutil.which("tensorboard"):
            continue
        done = me.herd("open", *words, env={"PATH": f"{stand_in(me)}:{me.env['PATH']}"})
        assert (done.returncode, done.stdout) == (status, ""), done.stderr
        assert said in done.stderr and done.stderr.count("\n") == 1, done.stderr
    me.herd("open", "jupyter", "dev", "--stop")
    for word, needed in (("mosh", "apt-get install mosh"), ("code", "Remote - SSH")):
        done = me.herd("open", word, "dev", env={"PATH": str(me.home)})
        assert (done.returncode, needed in done.stderr) == (2, True), done.stderr


def stand_in(me: Owner) -> Path:
    """A folder with a `code` that notes its arguments, as VS Code's own understands them."""
    folder = me.home / "bin"
    folder.mkdir(exist_ok=True)
    (folder / "code").write_text('#!/bin/sh\nprintf "%s\\n" "$@" > ~/code.txt\nexit 5\n')
    (folder / "code").chmod(0o755)
    return folder


def test_code_is_called_with_a_name_that_ssh_knows(me: Owner) -> None:
    assert me.herd("ssh", "--config").returncode == 0
    env = {"PATH": f"{stand_in(me)}:{me.env['PATH']}"}
    assert me.herd("open", "code", "dev", "runs", env=env).returncode == 5
    option, address = (me.home / "code.txt").read_text().splitlines()
    assert option == "--folder-uri"
    kind, _, place = address.partition("+")
    assert kind == "vscode-remote://ssh-remote"
    name, _, folder = place.replace("/", " /", 1).partition(" ")
    words = ["ssh", "-F", str(me.home / ".ssh/config"), name, f"cd '{folder}' && basename $PWD"]
    assert subprocess.run(words, env=me.env, capture_output=True, text=True).stdout == "runs\n"


@pytest.mark.needs("tmux")
def test_a_tmux_session_is_there_again(me: Owner) -> None:
    for keys, seen in ((b"one=4; echo $((one + 38))\r", b"42"), (b"echo $one$one\r", b"44")):
        window = Terminal(me, "open", "tmux", "dev", "--session", "a b")
        window.expect(rb"\[a b\]")
        window.type(keys)
        window.expect(seen)
        window.type(b"tmux detach\r")  # keys right after each other count as pasted text
        assert window.end() == 0
    me.herd("exec", "dev", "-n", "--", "tmux", "kill-server")


@pytest.mark.needs("mosh", "mosh-server")
def test_real_mosh_connects() -> None:
    with dev("--hosts", "processes") as me:  # other hosts receive no UDP from outside
        window = Terminal(me, "open", "mosh", "dev")
        window.expect(rb"[$#] ")
        window.type(b"echo $((40 + 2)); exit\r")
        window.expect(rb"42")
        assert window.end() == 0


@pytest.mark.needs("jupyter-lab", "tensorboard")
def test_real_servers_answer(me: Owner) -> None:
    for name in ("jupyter-lab", "tensorboard"):
        there = shutil.which(name)
        assert there is not None
        assert me.herd("exec", "dev", "-n", "--", "ln", "-sf", there, f".local/bin/{name}")
    with opened(me, "jupyter", "dev") as (url, process):
        page, _, token = url.rpartition("?token=")
        place = page.removesuffix("/lab")
        assert status_of(url) == 200
        assert status_of(f"{place}/api/kernels") == 403
        assert status_of(f"{place}/api/kernels?token={token}") == 200
        assert end(process, signal.SIGINT)[0] == 0
    with opened(me, "tensorboard", "dev", "runs") as (url, process):
        with urllib.request.urlopen(f"{url}data/environment", timeout=60) as reply:
            assert json.loads(reply.read())["data_location"].endswith("/runs")
        assert end(process, signal.SIGINT)[0] == 0
    me.herd("exec", "dev", "-c", SETUP)


def status_of(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=60) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_the_address_leads_to_a_server_on_the_next_node(me: Owner) -> None:
    with opened(me, "jupyter", "dev") as (url, process):
        first = ask(url)
        me.cut("dev-0-*")
        assert until(lambda: ask(url), "the same server", seconds=30) == first
        assert me.herd("sim", "weather", "preempt", "dev-0-*", "0s").returncode == 0
        second = until(
            lambda: (said := ask(url)) and said["host"] != first["host"] and said,
            "a server on the next node", seconds=120,
        )  # fmt: skip
        assert isinstance(second, dict)
        assert second["token"] == first["token"]
        status, said = end(process, signal.SIGINT)
        assert status == 0
        assert "each new connection tries again" in said
