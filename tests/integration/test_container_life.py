"""A job's command in a container of real podman on two simulated hosts; the image is our own."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.world import until
from tests.integration import tiny_registry
from tests.integration.engines import Owner, owner

pytestmark = [
    pytest.mark.needs("podman", "crun"), pytest.mark.root, pytest.mark.real,
]  # fmt: skip
PORT = 5000
IMAGE = f"127.0.0.1:{PORT}/tiny:1"
SECRET = "sesame-9f3c"
PROGRAMS = ("/usr/bin/bash", "/usr/bin/sh", "/usr/bin/sleep", "/usr/bin/env", "/usr/bin/id")
#: Podman in a host that is itself a namespace: without cgroups, with plain copies as its storage.
SETUP = f"""\
set -e
sudo -n mkdir -p /etc/containers
mountpoint -q /sys/fs/cgroup || sudo -n mount -t tmpfs none /sys/fs/cgroup
put() {{ sudo -n tee /etc/containers/$1 > /dev/null; }}
echo '{{"default": [{{"type": "insecureAcceptAnything"}}]}}' | put policy.json
put storage.conf << END
[storage]
driver = "vfs"
runroot = "/run/containers/storage"
graphroot = "/var/lib/containers/storage"
END
put containers.conf << END
[containers]
cgroups = "disabled"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "none"
END
put registries.conf << END
[[registry]]
location = "127.0.0.1:{PORT}"
insecure = true
END
env -i "PATH=$PATH" setsid -f python3 tiny_registry.py {PORT} image < /dev/null > /dev/null 2>&1
until (: < /dev/tcp/127.0.0.1/{PORT}) 2> /dev/null; do sleep 0.1; done
"""
TRAIN = """\
echo "odd=$ODD|lines=$LINES|of=$OF|worker=$HERD_WORKER/$HERD_WORKERS|attempt=$HERD_ATTEMPT"
echo "key ${#KEY} in $PWD"
[ -S "$HERD_STEPS" ] && [ -e /dev/accel3 ] && echo "socket and chips"
[ -e /etc/debian_version ] || echo "files of the image"
trap 'echo saved by $HERD_WORKER > ~/saved; exit 75' TERM
echo begun > ~/begun
while :; do sleep 0.1; done
"""
FIELDS: dict[str, Any] = {
    "image": f"docker://{IMAGE}", "setup": "bash setup.sh",
    "env": {"ODD": "a 'b' \"c\" #d ", "LINES": "1\n2"},
    "secrets": {"KEY": {"command": f"echo {SECRET}"}}, "node": {"done": "keep", "failed": "keep"},
    "retry": {"failures": 1},
}  # fmt: skip


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The job's folder, with an image and what serves it on a host."""
    folder = tmp_path_factory.mktemp("code")
    tiny_registry.write_image(folder / "image", PROGRAMS)
    shutil.copy(str(tiny_registry.__file__), folder)
    (folder / "setup.sh").write_text(SETUP)
    (folder / "train.sh").write_text(TRAIN)
    return folder


@pytest.fixture(scope="module")
def user(code: Path) -> Iterator[Owner]:
    """A user with a job that runs in containers."""
    with owner() as found:
        submit(found, code, ". ./train.sh")
        found.happened("attempt.started", seconds=300)
        yield found


def submit(user: Owner, code: Path, run: str, **fields: Any) -> None:
    user.job("gpt", run, workdir=str(code), **{**FIELDS, **fields})


def on_hosts(user: Owner, shell: str, host: str = "gpt") -> str:
    done = user.herd("exec", host, "-c", shell)
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


def containers(user: Owner) -> list[str]:
    """Those that exist on any host, whatever their state."""
    look = "sudo -n podman ps --all --format 'is {{.Names}}'"
    told = [on_hosts(user, look, f"gpt/w{worker}") for worker in range(2)]
    return [line.partition("is ")[2] for text in told for line in text.splitlines()]


def test_the_command_has_what_it_has_without_a_container(user: Owner) -> None:
    pulled = user.happened("image.pulled")
    assert (len(pulled.facts["hosts"]), pulled.facts["image"]) == (2, IMAGE)
    said = until(
        lambda: (
            [line for one in user.said().values() for line in one]
            if sum("files of the image" in one for one in user.said().values()) == 2
            else None
        ),
        "what both say",
        seconds=120,
    )
    for worker in range(2):
        assert f"2|of=image|worker={worker}/2|attempt=1" in said
    assert "odd=a 'b' \"c\" #d |lines=1" in said
    assert "socket and chips" in said
    assert any(line.startswith(f"key {len(SECRET)} in /home/") for line in said)
    shown = on_hosts(user, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    assert "/podman run " in shown
    assert SECRET not in shown
    assert SECRET not in str(user.events())


def test_kills_stops_and_ends_leave_no_container(user: Owner, code: Path) -> None:
    """Killed: what stands for the command on one host, then an agent. Then the command changes."""
    on_hosts(user, "kill -9 $(pgrep -o herd-container)", "gpt/w0")
    user.happened("attempt.started", many=2, seconds=300)
    ended = user.happened("attempt.ended")
    assert (ended.facts["verdict"], ended.facts["exit"]) == ("failure", None)
    user.herd("exec", "gpt/w1", "-c", "kill -9 $(pgrep -o herd-agent)")
    assert containers(user) == ["herd-gpt-0"] * 2
    on_hosts(user, "rm -f ~/saved")
    submit(user, code, "exit 3")
    stopped = user.happened("attempt.ended", many=2, seconds=300)
    assert stopped.facts["verdict"] == "stopped"
    failed = user.happened("attempt.ended", many=3, seconds=300)
    assert (failed.facts["verdict"], failed.facts["exit"]) == ("failure", 3)
    until(lambda: containers(user) == [], "no container", seconds=60)
    for worker in range(2):
        assert f"saved by {worker}" in on_hosts(user, "cat ~/saved")
    assert len(user.events("image.pulled")) == 1, "nothing is pulled twice"


def test_an_image_that_does_not_exist_ends_the_job_with_a_sentence(user: Owner, code: Path) -> None:
    submit(user, code, "true", image=f"docker://127.0.0.1:{PORT}/none:1")
    failed = user.happened("slot.setup_failed", seconds=300)
    assert failed.facts["unfit"] is True
    why = user.herd("why", "gpt").stdout
    assert f"127.0.0.1:{PORT}/none:1 can't be pulled: " in why
    assert "manifest unknown" in why
