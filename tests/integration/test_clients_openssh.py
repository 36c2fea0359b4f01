"""OpenSSH's own programs and rsync against running hosts."""

import filecmp
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.login import Login, logged_in
from tests.conformance.world import run, started, until

ZONE = "us-central1-a"

pytestmark = [pytest.mark.real, pytest.mark.needs("ssh", "ssh-agent")]


@pytest.fixture(scope="module")
def login() -> Iterator[Login]:
    with started("--no-internet", "--time-scale", "600") as world, logged_in(world) as login:
        world.node(ZONE, "n1", acceleratorType="v5litepod-16", metadata={"ssh-keys": login.line})
        yield login


@pytest.fixture(scope="module")
def ip(login: Login) -> str:
    return login.addresses(ZONE, "n1")[0]


def test_a_command_with_its_streams_and_exit_status(login: Login, ip: str) -> None:
    done = run([*login.ssh(ip), "cat; echo oops >&2; exit 7"], login.env, input="in\n")
    assert (done.stdout, done.stderr, done.returncode) == ("in\n", "oops\n", 7)
    killed = run([*login.ssh(ip), "kill -9 $$"], login.env)
    assert killed.returncode == 255


def test_each_host_has_its_own_files(login: Login) -> None:
    ask = "hostname; cat /proc/sys/kernel/random/boot_id; pgrep -c .; whoami; sudo id -u"
    said = [
        run([*login.ssh(ip), ask], login.env).stdout.split() for ip in login.addresses(ZONE, "n1")
    ]
    names, boots, processes, users, roots = zip(*said, strict=True)
    assert [name[-4:] for name in names] == ["-w-0", "-w-1", "-w-2", "-w-3"]
    assert len(set(boots)) == 4
    assert max(int(number) for number in processes) < 30
    assert set(users) == {"vlialin"}
    assert set(roots) == {"0"}


def test_who_may_log_in(login: Login, ip: str, tmp_path: Path) -> None:
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "k"], check=True
    )
    stranger = [word.replace(str(login.key), str(tmp_path / "k")) for word in login.ssh(ip)]
    bare = {name: value for name, value in login.env.items() if name != "SSH_AUTH_SOCK"}
    done = run([*stranger, "true"], bare)
    assert done.returncode == 255
    assert "Permission denied (publickey)" in done.stderr
    other = run([*login.ssh(ip, user="nobodyknows"), "true"], login.env)
    assert "Permission denied (publickey)" in other.stderr


def test_a_terminal_has_a_size(login: Login, ip: str) -> None:
    done = run(
        ["script", "-qec", " ".join([*login.ssh(ip, "-tt"), "'tty; stty size'"]), "/dev/null"],
        login.env,
    )
    assert "/dev/pts/" in done.stdout


@pytest.mark.needs("scp", "sftp")
@pytest.mark.parametrize(
    "way", ["scp", "scp -O", "sftp", pytest.param("rsync", marks=pytest.mark.needs("rsync"))]
)
def test_a_tree_is_copied_there_and_back(login: Login, ip: str, tmp_path: Path, way: str) -> None:
    tree = tmp_path / "tree"
    (tree / "inner").mkdir(parents=True)
    (tree / "inner" / "blob").write_bytes(os.urandom(3_000_000))
    (tree / "a name with spaces").write_text("text\n")
    far, user = f"at-{way[-3:].strip('- ')}", login.env["USER"]
    run([*login.ssh(ip), f"mkdir -p {far}"], login.env)
    if way == "sftp":
        batch = f"put -r {tree} {far}/tree\nget -r {far}/tree {tmp_path}/back\n"
        steps = [["sftp", *login.options(), "-b", "-", f"{user}@{ip}"]]
        done = [run(steps[0], login.env, input=batch)]
    elif way == "rsync":
        shell = " ".join(["ssh", *login.options()])
        done = [
            run(["rsync", "-a", "-e", shell, tree, f"{user}@{ip}:{far}/"], login.env),
            run(
                ["rsync", "-a", "-e", shell, f"{user}@{ip}:{far}/tree/", tmp_path / "back"],
                login.env,
            ),
        ]
    else:
        words = [*way.split(), "-r", *login.options()]
        done = [
            run([*words, tree, f"{user}@{ip}:{far}/"], login.env),
            run([*words, f"{user}@{ip}:{far}/tree", tmp_path / "back"], login.env),
        ]
    assert [one.returncode for one in done] == [0] * len(done), done[-1].stderr
    same = filecmp.dircmp(tree, tmp_path / "back")
    assert sorted(same.same_files) == ["a name with spaces"]
    assert filecmp.cmp(tree / "inner/blob", tmp_path / "back/inner/blob", shallow=False)


@pytest.mark.parametrize("program", ["ssh", "scp"])
def test_a_gcloud_tunnel_is_refused_with_a_sentence(
    login: Login, ip: str, tmp_path: Path, program: str
) -> None:
    """The words that `gcloud alpha compute tpus tpu-vm ssh --tunnel-through-iap` runs."""
    tunnel = "python3 gcloud.py compute start-iap-tunnel t1v-n-0-w-0 %p --listen-on-stdin"
    options = [program, *login.options(), "-o", f"ProxyCommand {tunnel}"]
    target = f"{login.env['USER']}@{ip}"
    words = {
        "ssh": [*options, target, "--", "hostname"],
        "scp": [*options, str(tmp_path), f"{target}:there"],
    }
    done = run(words[program], login.env)
    assert done.returncode == 1
    assert done.stderr == (
        "The simulated world has no Identity-Aware Proxy; omit --tunnel-through-iap, its "
        "hosts can be reached directly.\n"
    )


def test_forwarding_both_ways(login: Login, ip: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as ours, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        local = free.getsockname()[1]
        free.close()
        back = ours.getsockname()[1]
        serve = "exec python3 -m http.server --bind 127.0.0.1 8899"
        more = ["-L", f"{local}:127.0.0.1:8899", "-R", f"9900:127.0.0.1:{back}"]
        tunnel = subprocess.Popen(
            [*login.ssh(ip, "-tt", *more), serve],
            env=login.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:

            def page() -> bytes:
                try:
                    with socket.create_connection(("127.0.0.1", local), 5) as wire:
                        wire.sendall(b"GET / HTTP/1.0\r\n\r\n")
                        return wire.recv(15)
                except OSError:
                    return b""

            assert until(page, "the page of the host").startswith(b"HTTP/1.0 200")
            knock = "import socket; socket.create_connection(('127.0.0.1', 9900)).sendall(b'hi')"
            done = run([*login.ssh(ip), f'python3 -c "{knock}"'], login.env)
            assert done.returncode == 0, done.stderr
            ours.settimeout(10)
            with ours.accept()[0] as wire:
                assert wire.recv(2) == b"hi"
        finally:
            tunnel.terminate()
            tunnel.wait()


def test_preemption_cuts_the_connection(login: Login) -> None:
    world = login.world
    keys = {"ssh-keys": login.line}
    world.node(
        ZONE, "s1", acceleratorType="v5litepod-4", metadata=keys, schedulingConfig={"spot": True}
    )
    (ip,) = login.addresses(ZONE, "s1")
    words = [*login.ssh(ip), "echo in; sleep 900"]
    with subprocess.Popen(
        words, env=login.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as line:
        assert line.stdout is not None
        assert line.stdout.readline() == b"in\n"
        before = time.monotonic()
        world.herd("preempt", "s1", "--no-notice")
        assert line.wait(60) == 255
        assert time.monotonic() - before < 5
    assert run([*login.ssh(ip, "-o", "ConnectTimeout=2"), "true"], login.env).returncode == 255


@pytest.mark.root
def test_port_22_for_root(tmp_path: Path) -> None:
    """Programs that know no other port, and nothing of the wrappers that `herd sim env` brings."""
    with socket.socket() as listener:
        try:
            listener.bind(("127.0.0.1", 22))
        except OSError:
            pytest.skip("this machine's own sshd has port 22")
    options = ("--no-internet", "--time-scale", "600")
    with started(*options, ssh_port=22) as world, logged_in(world) as login:
        keys = {"ssh-keys": login.line}
        world.node(ZONE, "n1", acceleratorType="v5litepod-4", metadata=keys)
        (ip,) = login.addresses(ZONE, "n1")
        plain = ["ssh", "-F", "none", "-o", "StrictHostKeyChecking=no", "-i", str(login.key)]
        known = f"UserKnownHostsFile={tmp_path / 'known'}"
        words = [*plain, "-o", known, f"{login.env['USER']}@{ip}", "hostname"]
        done = run(words, {"PATH": os.defpath, "HOME": str(tmp_path)})
        assert done.returncode == 0, done.stderr
        assert done.stdout.endswith("-w-0\n")
