"""What `herd open` starts, here and on hosts."""

import json
import os
import shlex
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest

from tpuherd.cli.open_browser import has_browser
from tpuherd.commands.open_program import (
    code_program,
    mosh_program,
    read_folder,
    ssh_host_name,
)
from tpuherd.errors import OperationFailed
from tpuherd.ports import Host
from tpuherd.ssh_config.config_text import SshFiles
from tpuherd_host import open_server


def host(node: str, worker: int = 0, bid: str = "") -> Host:
    return Host(
        node=node, zone="z", worker=worker, incarnation="1", internal_ip="10.0.0.1",
        external_ip="34.1.2.3", ssh_port=2222, bid=bid,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("of", "name"),
    [
        (host("gpt-0-g3-abc", 3), "gpt-0-w3"),
        (host("gpt-0-g3-abc-1", 3), "gpt-0.1-w3"),
        (host("my-tpu"), "my-tpu-w0"),
        (host("exact", 1, bid="gpt-0-g3-abc"), "gpt-0-w1"),
    ],
)
def test_hosts_have_the_names_of_their_slots(of: Host, name: str) -> None:
    assert ssh_host_name(of) == name


@pytest.mark.parametrize(
    "said",
    [
        '--gpu-launcher=sh -c "touch /tmp/x" #\n',
        "--install-extension=evil.evil\n",
        "-x\n",
        "relative\n",
        "\n",
        "",
        "/home/me\n--gpu-launcher=x\n",
        "/home/\x1b]0;x\x07me\n",
    ],
)
def test_what_a_host_says_becomes_no_option_of_a_program_here(said: str) -> None:
    with pytest.raises(OperationFailed, match="gpt-0/w0 names no folder"):
        read_folder(said, "gpt-0/w0")


@pytest.mark.parametrize("folder", ["/home/me/my code", "/data/ä#1?", "/home/--x"])
def test_code_gets_one_address_of_a_folder(folder: str) -> None:
    assert read_folder(f"{folder}\n", "gpt-0/w0") == folder
    program, option, address = code_program("gpt-0-w0", folder).argv
    assert (program, option) == ("code", "--folder-uri")
    start = "vscode-remote://ssh-remote+gpt-0-w0"
    assert address.startswith(f"{start}/") and " " not in address and "#" not in address
    assert unquote(address.removeprefix(start)) == folder


def test_mosh_gets_an_ssh_that_checks_the_hosts_key_at_its_address() -> None:
    files = SshFiles(folder=Path("/my home/ssh"), key=Path("/my home/id"))
    program, option, end, name = mosh_program(host("my-tpu"), "my-tpu-w0", "me", files).argv
    assert (program, end, name) == ("mosh", "--", "my-tpu-w0")
    words = shlex.split(option.removeprefix("--ssh="))
    done = subprocess.run([*words, "-G", name], capture_output=True, text=True, check=True)
    said = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert (said["hostname"], said["port"], said["user"]) == ("34.1.2.3", "2222", "me")
    assert said["hostkeyalias"] == "my-tpu-w0"
    assert said["userknownhostsfile"] == "/my home/ssh/open.mosh.known_hosts"
    assert said["stricthostkeychecking"] in ("true", "yes")


def test_a_server_uses_the_jobs_environment_and_a_free_port(tmp_path: Path) -> None:
    plain = open_server.activate_environment(str(tmp_path), {"PATH": "/bin", "PYTHONHOME": "x"})
    assert plain == {"PATH": f"{tmp_path}/.local/bin:/bin", "PYTHONHOME": "x"}
    folder = tmp_path / "herd/.environments/key"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/python").touch()
    (folder.parent / "current").symlink_to("key")
    active = open_server.activate_environment(str(tmp_path), {"PATH": "/bin", "PYTHONHOME": "x"})
    assert active["VIRTUAL_ENV"] == str(folder)
    assert active["PATH"].startswith(f"{folder}/bin:")
    assert "PYTHONHOME" not in active
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert open_server.choose_port(port) not in (0, port)
    assert open_server.choose_port(port) == port


def test_a_record_without_its_server_is_not_shown(tmp_path: Path) -> None:
    file = tmp_path / ".tpuherd/open/jupyter.json"
    script = Path(open_server.__file__)

    def look() -> int:
        env = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
        words = [sys.executable, str(script), "look", "jupyter"]
        return subprocess.run(words, env=env, capture_output=True).returncode

    assert look() == 1
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        open_server.write_record(str(file), {"pid": os.getpid(), "port": port})
        assert file.stat().st_mode & 0o777 == 0o600
        assert look() == 0
    assert look() == 1
    for odd in ("", "[]", json.dumps({"pid": 2**30, "port": port}), '{"pid": "x", "port": 1}'):
        file.write_text(odd)
        assert look() == 1


def test_no_browser_takes_over_the_terminal() -> None:
    assert not has_browser({}) or sys.platform == "darwin"
    assert has_browser({"DISPLAY": ":0"})
    assert has_browser({"BROWSER": "firefox"})
