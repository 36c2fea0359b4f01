"""`herd check TARGET` on simulated hosts: faults that are made, found, and mended."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tests.integration.users import User, pod

pytestmark = [pytest.mark.real, pytest.mark.needs("ssh")]

#: Each makes one fault on one host, as its user or by sudo.
FAULTS = {
    "pod/w0": """
        sudo sh -c 'touch /tmp/libtpu_lockfile; chmod 600 /tmp/libtpu_lockfile'
        sudo mkdir -m 755 /tmp/tpu_logs
        echo MEGASCALE_NUM_SLICES=2 | sudo tee -a /etc/environment
        echo 'export LD_PRELOAD=/usr/lib/libnowhere.so' | sudo tee /etc/profile.d/preload.sh
        sudo setsid python3 -m http.server 8476 --bind 0.0.0.0 >/dev/null 2>&1 &
    """,
    "pod/w1": """
        python3 -c 'import os, time; f = open("/dev/accel0"); os.fork(); time.sleep(600)' &
        echo 'export TPU_VISIBLE_CHIPS=0' >>~/.bashrc
    """,
    "pod/w2": """
        sudo mount -t tmpfs -o size=64k,nr_inodes=2 small /tmp
        sudo setsid python3 -c 'if True:
            import fcntl, os, signal
            f = open("/var/lib/dpkg/lock-frontend", "w")
            fcntl.lockf(f, fcntl.LOCK_EX)
            os.kill(os.getpid(), signal.SIGSTOP)' >/dev/null 2>&1 &
    """,
    "pod/w3": """
        sudo rm /dev/accel3
        sudo setsid python3 -c 'import time; f = open("/dev/accel0"); time.sleep(600)' &
    """,
}
MENDING = {
    "pod/w0": """
        sudo sed -i /MEGASCALE/d /etc/environment; sudo rm /etc/profile.d/preload.sh
        sudo pkill -f '[h]ttp.server'
    """,
    "pod/w1": "sed -i /TPU_VISIBLE/d ~/.bashrc",
    "pod/w2": "sudo umount /tmp; sudo pkill -KILL -f '[l]ock-frontend'",
    "pod/w3": "sudo touch /dev/accel3; sudo chmod 666 /dev/accel3; sudo pkill -f '[a]ccel0'",
}
#: A Python with packages that differ on one host, and wandb without a key there.
PACKAGES = """
    python3 -m venv --without-pip ~/venv
    cd ~/venv/lib/python3*/site-packages
    for each in jax-$1 jaxlib-$1 libtpu-0.0.41 wandb-1 requests-2; do
        mkdir $each.dist-info
        printf 'Metadata-Version: 2.1\\nName: %s\\nVersion: %s\\n' ${each%-*} ${each##*-} \
            >$each.dist-info/METADATA
    done
    echo 'Requires-Dist: libtpu==0.0.41.*; extra == "tpu"' >>jax-$1.dist-info/METADATA
    if [ "$2" = key ]; then echo 'machine api.wandb.ai login u password s3cret' >~/.netrc; fi
"""


@pytest.fixture(scope="module")
def user() -> Iterator[User]:
    with pod() as made:
        yield made


def run_on(user: User, scripts: dict[str, str]) -> None:
    for host, script in scripts.items():
        done = user.herd("exec", host, "-c", script)
        assert done.returncode == 0, (host, done.stdout, done.stderr)


def checked(user: User, *words: str) -> tuple[int, list[dict[str, Any]]]:
    """The exit status, and the results on hosts."""
    done = user.herd("check", *words, "--json")
    assert done.stdout, done.stderr
    return done.returncode, [one for one in json.loads(done.stdout) if one["where"][:3] == "pod"]


def findings(results: Sequence[dict[str, Any]]) -> dict[tuple[str, str], str]:
    """What is wrong, by host and check."""
    wrong = [one for one in results if one["status"] in ("warning", "problem")]
    assert all(one["found"] and one["matters"] and one["remedy"] for one in wrong), wrong
    return {(one["where"], one["check"]): one["found"] for one in wrong}


def test_faults_are_found_fixed_where_that_is_safe_and_gone_when_mended(user: User) -> None:
    user.herd("exec", "pod", "--", "true")
    status, results = checked(user, "pod")
    assert (status, findings(results)) == (0, {})
    run_on(user, FAULTS)
    status, results = checked(user, "pod")
    assert status == 1
    found = findings(results)
    expected = {
        ("pod/w0", "tpu-lock"): "/tmp/libtpu_lockfile is left over from root",
        ("pod/w0", "tpu-logs"): "/tmp/tpu_logs belongs to another user",
        ("pod/w0", "multislice"): "/etc/environment sets MEGASCALE_NUM_SLICES",
        ("pod/w0", "preload"): "/usr/lib/libnowhere.so, which does not exist",
        ("pod/w0", "ports"): "http.server",
        ("pod/w1", "leftovers"): "python3",
        ("pod/w1", "chip-users"): "left by a task that is over",
        ("pod/w1", "fork"): "forked with the chips open",
        ("pod/w1", "variables"): "TPU_VISIBLE_CHIPS=0, which hides chips",
        ("pod/w2", "host-disk"): "/tmp is full",
        ("pod/w2", "apt-lock"): "holds apt's lock and is stopped",
        ("pod/w3", "chips"): "3 of the 4 chips are in /dev",
        ("pod/w3", "chip-users"): "of root",
    }
    assert found.keys() == expected.keys()
    for place, words in expected.items():
        assert words in found[place], (place, found[place])
    fixed = user.herd("check", "pod", "--fix")
    assert fixed.returncode == 1
    assert "pod/w0: removed the stale lock /tmp/libtpu_lockfile" in fixed.stdout + fixed.stderr
    status, results = checked(user, "pod")
    mended = {("pod/w0", "tpu-lock"), ("pod/w0", "tpu-logs"), ("pod/w1", "leftovers")}
    mended |= {("pod/w1", "chip-users"), ("pod/w1", "fork")}
    assert findings(results).keys() == expected.keys() - mended
    run_on(user, MENDING)
    status, results = checked(user, "pod")
    assert (status, findings(results)) == (0, {})
