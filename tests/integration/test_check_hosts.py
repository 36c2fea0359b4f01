"""`herd check TARGET` on simulated hosts: faults that are made, found, and mended."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tests.conformance.world import CLIENTS, client
from tests.integration.users import User, pod, until

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
        exec >/dev/null
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
        sudo setsid python3 -c 'import time; f = open("/dev/accel0"); time.sleep(600)' >/dev/null &
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
    case $(hostname) in *-w-3) set -- 0.9.0 '' ;; *) set -- 0.10.2 key ;; esac
    for each in jax-$1 jaxlib-$1 libtpu-0.0.41 wandb-1 requests-2; do
        mkdir $each.dist-info
        printf 'Metadata-Version: 2.1\\nName: %s\\nVersion: %s\\n' ${each%-*} ${each##*-} \
            >$each.dist-info/METADATA
    done
    echo 'Requires-Dist: libtpu==0.0.41.*; extra == "tpu"' >>jax-$1.dist-info/METADATA
    if [ "$2" = key ]; then echo 'machine api.wandb.ai login u password s3cret' >~/.netrc; fi
"""


JAX = CLIENTS / "inside"


@pytest.fixture(scope="module")
def user() -> Iterator[User]:
    with pod(*(("--offer", str(JAX)) if JAX.is_dir() else ())) as made:
        yield made


def run_on(user: User, scripts: dict[str, str]) -> None:
    """Run each script on its host, all at once."""
    arms = "".join(f"*-w-{host[-1]})\n{script}\n;;\n" for host, script in scripts.items())
    done = user.herd("exec", "pod", "-c", f"case $(hostname) in\n{arms}esac")
    assert done.returncode == 0, (done.stdout, done.stderr)


def run_everywhere(user: User, script: str) -> None:
    done = user.herd("exec", "pod", "-c", script)
    assert done.returncode == 0, (done.stdout, done.stderr)


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


def test_hosts_that_differ_are_named_and_no_key_is_told(user: User) -> None:
    run_everywhere(user, PACKAGES)
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
    [first, *_] = json.loads(user.herd("hosts", "pod", "--json").stdout)
    known = user.home / ".ssh/known_hosts"
    known.parent.mkdir(mode=0o700, exist_ok=True)
    known.write_text(f"{first['external_ip']} {key}\n")
    status, results = checked(user, "pod")
    found = findings(results)
    assert status == 1
    assert found == {
        ("pod/w0", "addresses"): "~/.ssh/known_hosts has the key of another machine for "
        + first["external_ip"],
        ("pod/w3", "wandb"): "~/venv has wandb, and there is no key on this host",
        ("pod/w3", "python"): found["pod/w3", "python"],
        ("pod/w[0-3]", "collective"): found["pod/w[0-3]", "collective"],  # it is no real jax
    }
    assert "jax 0.9.0" in found["pod/w3", "python"]
    assert "jax 0.10.2, jaxlib 0.10.2, libtpu 0.0.41 on pod/w[0-2]" in found["pod/w3", "python"]
    assert "s3cret" not in json.dumps(results)
    run_everywhere(user, "rm -r ~/venv ~/.netrc 2>/dev/null; true")
    known.unlink()
    status, results = checked(user, "pod")
    assert (status, findings(results)) == (0, {})


def collective(user: User, target: str = "pod") -> dict[str, Any]:
    [found] = [one for one in checked(user, target)[1] if one["check"] == "collective"]
    return found


def test_a_sum_over_all_hosts_is_right_and_a_host_that_fails_is_named(user: User) -> None:
    client("inside")  # or a skip
    run_everywhere(user, f"ln -s {JAX} ~/.venv")
    before = user.kept()
    found = collective(user)
    assert (found["where"], found["status"]) == ("pod/w[0-3]", "ok")
    assert "the sum over 16 devices of 4 hosts is right: 1 MiB in" in found["found"]
    assert "GB/s for each device" in found["found"]
    run_on(user, {"pod/w2": f"""
        rm ~/.venv; cp -rs {JAX} ~/.venv; cd ~/.venv/lib/python3*/site-packages/numpy
        rm __init__.py; echo 'raise RuntimeError("no numbers today")' >__init__.py
    """})  # fmt: skip
    found = collective(user)
    assert found["status"] == "problem"
    assert "fails on pod/w2: RuntimeError: no numbers today" in found["found"]
    with user.begun("exec", "pod/w1", "-c", "exec 3</dev/accel0; sleep 60") as begun:
        until(lambda: "accel0" in user.herd("chips", "pod/w1").stdout, "a user")
        found = collective(user)
        assert (found["status"], found["found"]) == ("skipped", "the chips of pod/w1 are in use")
        begun.terminate()
        begun.wait(60)
    some = collective(user, "pod/w[0-1]")
    assert (some["status"], some["found"]) == ("skipped", "TARGET names only some of the hosts")
    gone = {one["id"] for one in user.kept()} - {one["id"] for one in before}
    assert not [id for id in gone if id.startswith("check-")]
    run_everywhere(user, "! pgrep -f '[h]erd-check: '; rm -r ~/.venv")


def test_a_host_that_does_not_answer_is_its_own_result(user: User) -> None:
    user.world.herd("weather", "unreachable", "pod/w3")
    try:
        status, results = checked(user, "pod")
    finally:
        user.world.herd("weather", "reachable", "pod/w3")
    assert status == 1
    assert list(findings(results)) == [("pod/w3", "reach")]
    assert {one["where"] for one in results if one["check"] == "chips"} == {
        "pod/w0", "pod/w1", "pod/w2",
    }  # fmt: skip
    assert [one["found"] for one in results if one["check"] == "collective"] == [
        "no answer from pod/w3"
    ]
