"""Real OpenSSH servers as hosts: each in a process namespace, with its own home."""

import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.conformance.world import until
from tpuherd.errors import NotReached
from tpuherd.ports import Host
from tpuherd.remote.connection_pool import HostDirectory

PORT = 22
SERVE = """
set -e
mount --bind "$1/home" /root
mkdir -p /run/sshd
mount -t tmpfs -o mode=755 none /run/sshd
exec /usr/sbin/sshd -D -e -f "$1/config"
"""
CONFIG = """
ListenAddress {ip}
Port {port}
HostKey {folder}/key
AuthorizedKeysFile {keys}
PermitRootLogin yes
PasswordAuthentication no
KbdInteractiveAuthentication no
StrictModes no
UsePAM no
PidFile none
LogLevel ERROR
"""


def ip(*words: str, program: str = "ip") -> None:
    subprocess.run([program, *words], check=True, capture_output=True, text=True)


@dataclass(kw_only=True)
class Machine:
    """One sshd, and what it stands on."""

    folder: Path
    address: str
    process: "subprocess.Popen[bytes] | None" = None
    silent: bool = False

    @property
    def key(self) -> str:
        return " ".join((self.folder / "key.pub").read_text().split()[:2])


@dataclass(kw_only=True)
class Node:
    """What the register says of a node."""

    name: str
    born: int
    state: str = "READY"
    machines: list[Machine] = field(default_factory=list)
    publishes_keys: bool = True

    @property
    def incarnation(self) -> str:
        return f"{self.name}@{self.born}"


HEAD = 14 + 20 + 32  #: bytes of Ethernet, IP and TCP before each packet's own


class SshdHosts:
    """A network namespace full of sshd's, and the register of who lives there."""

    login = "root"

    def __init__(self, folder: Path, tag: str) -> None:
        self.folder = folder
        self.space = f"herd-{tag}"
        self.within = ["ip", "netns", "exec", self.space]
        self.wire = f"hd{tag}"
        self.number = os.getpid() % 200 + 20
        self.nodes: dict[str, Node] = {}
        self.keys = folder / "authorized_keys"
        self.keys.touch(0o600)
        self.admitted: list[str] = []
        self.names = False  #: whether hosts publish the names of their instances
        self.births = 0
        self.addresses = 1

    def open(self) -> None:
        ip("netns", "add", self.space)
        ip("link", "add", self.wire, "type", "veth", "peer", "name", "eth0", "netns", self.space)
        ip("addr", "add", f"10.{self.number}.0.1/16", "dev", self.wire)
        ip("link", "set", self.wire, "up")
        ip("-n", self.space, "link", "set", "eth0", "up")
        ip("-n", self.space, "link", "set", "lo", "up")

    def close(self) -> None:
        for node in self.nodes.values():
            for machine in node.machines:
                self.off(machine)
        subprocess.run(["ip", "netns", "del", self.space], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", self.wire], capture_output=True, check=False)

    # ---- what tests do to it ---------------------------------------------------------------------

    @contextmanager
    def thin(self, mbit: int) -> Iterator[Callable[[], int]]:
        """The way here carries no more, as from a home; gives the bytes that came by it, but for
        the heads of packets: how many those are is chance.
        """
        limit = ("tbf", "rate", f"{mbit}mbit", "burst", "32k", "latency", "400ms")
        ip("qdisc", "add", "dev", self.wire, "root", *limit, program="tc")
        counted = Path(f"/sys/class/net/{self.wire}/statistics")

        def carried() -> int:
            packets = int((counted / "tx_packets").read_text())
            return int((counted / "tx_bytes").read_text()) - packets * HEAD

        try:
            yield carried
        finally:
            ip("qdisc", "del", "dev", self.wire, "root", program="tc")

    def node(self, name: str, workers: int = 1) -> list[Host]:
        """Have a node, waited for."""
        self.births += 1
        node = self.nodes[name] = Node(name=name, born=self.births)
        node.machines = [self.build(name, worker) for worker in range(workers)]
        for machine in node.machines:
            self.on(machine)
        for machine in node.machines:
            self.listens(machine)
        return self.hosts(name)

    def hosts(self, name: str) -> list[Host]:
        node = self.nodes[name]
        return [
            Host(
                node=name,
                zone="us-central2-b",
                worker=worker,
                incarnation=node.incarnation,
                internal_ip=machine.address,
                external_ip=machine.address,
                ssh_port=PORT,
            )
            for worker, machine in enumerate(node.machines)
        ]

    def recreate(self, name: str) -> list[Host]:
        """The same name and address, another machine."""
        old = self.nodes[name]
        for machine in old.machines:
            self.off(machine)
            self.new_key(machine)
        self.births += 1
        node = self.nodes[name] = replace(old, born=self.births)
        for machine in node.machines:
            self.on(machine)
            self.listens(machine)
        return self.hosts(name)

    def refuse(self, host: Host) -> None:
        """Nothing listens there any more."""
        self.off(self.machine(host))

    def silence(self, host: Host) -> None:
        """Packets to it vanish."""
        machine = self.machine(host)
        machine.silent = True
        ip("-n", self.space, "rule", "add", "from", machine.address, "blackhole")

    def hang(self, host: Host) -> None:
        """It takes connections and says nothing."""
        process = self.machine(host).process
        assert process is not None
        for pid in family(process.pid):
            os.kill(pid, signal.SIGSTOP)

    def reboot(self, host: Host) -> None:
        """Everything in it dies, and it comes back."""
        machine = self.machine(host)
        self.off(machine)
        self.on(machine)
        self.listens(machine)

    def cut(self, host: Host) -> None:
        """Cut its connections; the host keeps running."""
        process = self.machine(host).process
        assert process is not None
        listener = family(process.pid)[1]
        for pid in family(listener)[1:]:
            with suppress(OSError):  # another of them has ended meanwhile
                if Path(f"/proc/{pid}/comm").read_text().startswith("sshd"):
                    os.kill(pid, signal.SIGKILL)

    def move(self, host: Host) -> None:
        """It gets another address, as after maintenance, and somebody else its old one."""
        machine = self.machine(host)
        self.off(machine)
        other = self.build("squatter", 0, address=machine.address)
        self.births += 1
        self.nodes["squatter"] = Node(name="squatter", born=self.births, machines=[other])
        self.on(other)
        machine.address = self.new_address()
        self.on(machine)
        self.listens(other)
        self.listens(machine)

    # ---- how -------------------------------------------------------------------------------------

    def machine(self, host: Host) -> Machine:
        return self.nodes[host.node].machines[host.worker]

    def new_address(self) -> str:
        self.addresses += 1
        address = f"10.{self.number}.{self.addresses >> 8}.{self.addresses & 255}"
        ip("-n", self.space, "addr", "add", f"{address}/16", "dev", "eth0")
        return address

    def build(self, name: str, worker: int, address: str = "") -> Machine:
        folder = self.folder / f"{name}-{worker}-{self.births}"
        (folder / "home").mkdir(parents=True)
        machine = Machine(folder=folder, address=address or self.new_address())
        self.new_key(machine)
        return machine

    def new_key(self, machine: Machine) -> None:
        for file in (machine.folder / "key", machine.folder / "key.pub"):
            file.unlink(missing_ok=True)
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{machine.folder}/key"]
        subprocess.run(words, check=True)

    def on(self, machine: Machine) -> None:
        text = CONFIG.format(ip=machine.address, port=PORT, folder=machine.folder, keys=self.keys)
        (machine.folder / "config").write_text(text)
        inside = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        with (machine.folder / "log").open("ab") as log:
            machine.process = subprocess.Popen(
                [
                    "ip",
                    "netns",
                    "exec",
                    self.space,
                    *inside,
                    "sh",
                    "-c",
                    SERVE,
                    "sh",
                    machine.folder,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"},
            )

    def off(self, machine: Machine) -> None:
        if machine.silent:
            ip("-n", self.space, "rule", "del", "from", machine.address, "blackhole")
            machine.silent = False
        if machine.process is not None:
            pids = family(machine.process.pid)
            machine.process.kill()
            machine.process.wait()
            machine.process = None
            # The kernel ends what was in its namespace a moment later; till then sshd listens.
            until(lambda: not any(map(is_running, pids)), "its programs to end")

    def listens(self, machine: Machine) -> None:
        wanted = f"{machine.address}:{PORT}"
        look = [*self.within, "ss", "-Hltn"]

        def there() -> bool:
            said = subprocess.run(look, capture_output=True, text=True, check=True).stdout
            assert machine.process is not None
            assert machine.process.poll() is None, (machine.folder / "log").read_text()
            return wanted in said.split()

        until(there, f"sshd on {wanted}")

    # ---- the register ----------------------------------------------------------------------------

    @asynccontextmanager
    async def register(self) -> AsyncIterator[HostDirectory]:
        """Itself."""
        yield self

    def unreachable_reason(self, host: Host) -> str | None:
        return None

    async def look_up_host(self, host: Host) -> tuple[Host, str]:
        node = self.nodes.get(host.node)
        if (
            node is None
            or not node.publishes_keys
            or f"{node.name}@{node.born}" != host.incarnation
        ):
            return host, ""
        instance = f"t1v-{host.name}" if self.names else ""
        return replace(host, host_keys=(self.machine(host).key,)), instance

    async def find_current(self, host: Host) -> Host | None:
        node = self.nodes.get(host.node)
        if node is None:
            return None
        if node.state != "READY":
            raise NotReached(f"its node is {node.state}")
        return (await self.look_up_host(self.hosts(host.node)[host.worker]))[0]

    async def install_key(self, host: Host, login: str, public: str) -> None:
        self.admitted.append(host.name)
        with self.keys.open("a") as stream:
            stream.write(f"{public} {login}\n")


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def family(pid: int) -> list[int]:
    """A process and everything that came of it, parents first."""
    found = [pid]
    for one in found:
        children = Path(f"/proc/{one}/task/{one}/children")
        found += [int(word) for word in re.findall(r"\d+", children.read_text())]
    return found


@contextmanager
def sshd_hosts() -> Iterator[SshdHosts]:
    """One, gone at the end with everything in it."""
    folder = Path(tempfile.mkdtemp(prefix="town-"))
    folder.chmod(0o755)
    place = SshdHosts(folder, folder.name[-6:].lower().replace("_", "x"))
    try:
        place.open()
        yield place
    finally:
        place.close()
        shutil.rmtree(folder, ignore_errors=True)


def missing_programs(programs: Sequence[str] = ("ip", "ss", "unshare", "ssh-keygen")) -> str:
    """Why there can be no such hosts on this machine; empty where there can."""
    if os.geteuid() != 0:
        return "needs root"
    absent = [name for name in programs if shutil.which(name) is None]
    if not Path("/usr/sbin/sshd").exists():
        absent.append("sshd")
    if absent:
        return f"needs {', '.join(absent)}"
    try:
        with sshd_hosts():
            return ""
    except subprocess.CalledProcessError as error:
        return f"has no network namespaces ({error.stderr.strip()})"
