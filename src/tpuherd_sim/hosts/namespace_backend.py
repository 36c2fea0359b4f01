"""Runs hosts in namespaces: layers, disks and networks of their own."""

import os
import shutil
import signal
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tpuherd_sim.hosts import init, netlink, rootfs_layers, syscalls
from tpuherd_sim.hosts.isolation_modes import HOSTS_UID
from tpuherd_sim.hosts.messages import Message

FIRST_ID, IDS = HOSTS_UID, 65536  #: the hosts' user ids on this machine
NO_SUCH_DEVICE = 19
BRIDGE_HOSTS_MAX = 1000  #: a bridge of Linux has 1,023 ports; other bridges take some of them


class NamespaceBackend:
    """Namespaces of our own, with a tmpfs as current directory; paths are relative to it.

    low/ has the machine's directories that hosts see, with the hosts' owners; own/ has what only
    hosts have; disk/ has one tmpfs per host with everything it wrote. A disk is attached there only
    while its host is started: a new host's namespace begins with a copy of each mount of ours.
    """

    def __init__(self, order: Message) -> None:
        files = rootfs_layers.read_rootfs_files()
        self.single_id = order["mode"] != "namespaces-root"
        private = [] if self.single_id else rootfs_layers.find_private_files(Path("/usr"))
        self.disk_bytes: int = order["disk_bytes"]
        self.lowers = {
            "usr": "/usr",
            **{name: f"/{name}" for name in rootfs_layers.top_directories()},
        }
        if Path("/var/lib/dpkg/info").is_dir():
            self.lowers["var/lib/dpkg"] = "/var/lib/dpkg"
        self.offers: list[str] = order["offers"]
        for number, path in enumerate(self.offers):
            self.lowers[f"offer{number}"] = path
        self.enter_namespaces(order["folder"])
        self.build_layers(files, private)
        self.line = netlink.Netlink()
        self.bridges: dict[str, dict[str, set[int]]] = {}  #: by segment: their names and hosts
        self.disks: dict[int, int] = {}  #: open mounts, nowhere attached

    def enter_namespaces(self, folder: str) -> None:
        """Leave the machine's mounts and network for a private tmpfs."""
        if self.single_id and os.getuid() == 0:
            # The user that we become may not be able to enter root's folder, so change to it first.
            enter_tmpfs(folder, syscalls.NEWNS, f"mode=755,uid={FIRST_ID},gid={FIRST_ID}")
            give_up_root()
            enter_user_namespace()
            syscalls.unshare_namespaces(syscalls.NEWNET)
        else:
            if self.single_id:
                enter_user_namespace()
            enter_tmpfs(folder, syscalls.NEWNS | syscalls.NEWNET, "mode=755")
        for name in ("low", "own", "disk", "at"):
            Path(name).mkdir()
        if not self.single_id:
            for name in ("own", "at"):
                os.chown(name, FIRST_ID, FIRST_ID)
        quiet = Path("/proc/sys/net/ipv6/conf/default/disable_ipv6")
        if quiet.exists():
            quiet.write_text("1")

    def build_layers(self, files: rootfs_layers.RootfsFiles, private: Sequence[Path]) -> None:
        """Build our layer in a child that has only the hosts' root rights; mount the machine's
        below it.
        """
        ready, ready_write = os.pipe()
        flags = 0 if self.single_id else syscalls.NEWUSER
        child = syscalls.clone_process(flags)
        if child == 0:
            os.close(ready_write)
            os._exit(build_in_child(ready, files, private, single_id=self.single_id))
        os.close(ready)
        try:
            if self.single_id:
                self.link_lowers()
            else:
                syscalls.map_ids(child, FIRST_ID, IDS)
                self.map_lowers(child)
            os.write(ready_write, b"x")
        finally:
            os.close(ready_write)
            status = os.waitpid(child, 0)[1]
        if status or not Path("own/usr").is_dir():
            why = Path("own/failed")
            raise OSError(5, why.read_text() if why.exists() else f"no layers: status {status}")

    def link_lowers(self) -> None:
        """Use the machine's directories as they are, because there is only one user id."""
        for name, path in self.lowers.items():
            low = Path("low", flat_name(name))
            low.symlink_to(path)

    def map_lowers(self, child: int) -> None:
        """Mount the machine's directories with its root as the hosts' root."""
        namespace = os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
        try:
            for name, path in self.lowers.items():
                low = Path("low", flat_name(name))
                low.mkdir()
                syscalls.mount_id_mapped(path, str(low), namespace)
        finally:
            os.close(namespace)

    def layer_map(self) -> Message:
        """Return the layers of each path inside: names in own/ and low/."""
        own = {"usr": "usr", "var/lib/dpkg": "dpkg"}
        view = {}
        for name, path in self.lowers.items():
            inside = path.lstrip("/") if name.startswith("offer") else name
            view[inside] = {"own": own.get(name, ""), "low": flat_name(name)}
        return view

    @contextmanager
    def attached_disk(self, number: int) -> Iterator[str]:
        """Attach a host's disk for a moment, and yield where; a new one is made."""
        path = f"disk/{number}"
        mount = self.disks.pop(number, None)
        if mount is not None:
            syscalls.attach_mount(mount, path)
            os.close(mount)
        else:
            Path(path).mkdir()
            owner = 0 if self.single_id else FIRST_ID
            options = f"size={self.disk_bytes},mode=755,uid={owner},gid={owner}"
            syscalls.mount_filesystem("disk", path, "tmpfs", syscalls.MS_NODEV, options)
        try:
            yield path
        finally:
            self.disks[number] = syscalls.copy_mount(path)
            syscalls.unmount_target(path)

    def set_disk_full(self, number: int, *, full: bool) -> None:
        """Shrink a disk to its content, or restore its size."""
        with self.attached_disk(number) as path:
            size = self.disk_bytes
            if full:
                found = os.statvfs(path)
                size = (found.f_blocks - found.f_bfree) * found.f_frsize
            resize_disk(path, max(size, 4096))

    def delete_disk(self, number: int) -> None:
        mount = self.disks.pop(number, None)
        if mount is not None:
            os.close(mount)
            Path("disk", str(number)).rmdir()

    def start_host(self, number: int, plan: Message, link: int) -> int:
        """Start a host: a process in new namespaces, which is its init. Its disk survives reboots,
        and gets its size back until the host is up.
        """
        plan |= {"number": number, "single_id": self.single_id, "lowers": self.layer_map()}
        ready, ready_write = os.pipe()
        kinds = syscalls.NEWUSER | syscalls.NEWNS | syscalls.NEWPID
        with self.attached_disk(number) as path:
            resize_disk(path, self.disk_bytes)
            pid = syscalls.clone_process(
                kinds | syscalls.NEWUTS | syscalls.NEWIPC | syscalls.NEWNET
            )
            if pid == 0:
                become_host(link, ready, plan)
        os.close(ready)
        try:
            if self.single_id:
                syscalls.map_ids(pid, 0, 1)
            else:
                syscalls.map_ids(pid, FIRST_ID, IDS)
            self.connect_network(number, pid, plan["segment"], plan["address"])
            os.write(ready_write, b"x")
        except OSError:
            os.kill(pid, signal.SIGKILL)
            raise
        finally:
            os.close(ready_write)
        return pid

    def kill_host(self, pid: int) -> None:
        """Kill the init, which ends all processes of the host."""
        os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        """Do nothing: everything ends with this process."""

    def connect_network(self, number: int, pid: int, segment: str, address: str) -> None:
        """Connect a starting host to a bridge of its segment; it can't reach other segments."""
        name = self.find_free_bridge(segment, number)
        self.bridges[segment][name].add(number)
        packed = bytes(int(part) for part in address.split("."))
        namespace = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.line.add_cable(f"h{number}", name, namespace, b"\x42\x01" + packed)
            with netlink.open_in_namespace(namespace) as line:
                quiet = Path("/proc/sys/net/ipv6/conf/eth0/disable_ipv6")
                if quiet.exists():
                    quiet.write_text("1")
                line.switch_link("lo", up=True)
                line.add_address("lo", "169.254.169.254")
                line.add_address("eth0", address)
                line.switch_link("eth0", up=True)
                line.add_default_route("eth0")
        finally:
            os.close(namespace)

    def find_free_bridge(self, segment: str, number: int) -> str:
        """Return a bridge with a free port; if all are full, add one, connected to the first."""
        bridges = self.bridges.setdefault(segment, {})
        for name, members in bridges.items():
            if len(members) < BRIDGE_HOSTS_MAX:
                return name
        name = f"b{number}"
        self.line.add_bridge(name)
        if bridges:
            self.line.connect_bridges(cable_name(name), name, next(iter(bridges)))
        bridges[name] = set()
        return name

    def clean_up_host(self, number: int, _: set[int]) -> None:
        """Remove a dead host's cable before the kernel does, and an empty segment's bridges."""
        try:
            self.line.remove_link(f"h{number}")
        except OSError as error:
            if error.errno != NO_SUCH_DEVICE:
                raise
        for segment, bridges in list(self.bridges.items()):
            for members in bridges.values():
                members.discard(number)
            if not any(bridges.values()):
                del self.bridges[segment]
                for place, name in enumerate(bridges):
                    if place:
                        self.line.remove_link(cable_name(name))
                    self.line.remove_link(name)

    def set_network(self, number: int, pid: int, network: str) -> None:
        """Set a host's network: up, down or slow (in both directions)."""
        name = f"h{number}"
        self.line.switch_link(name, up=network != "down")
        shape_traffic(self.line, name, network)
        namespace = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            with netlink.open_in_namespace(namespace) as line:
                shape_traffic(line, "eth0", network)
        finally:
            os.close(namespace)


def resize_disk(path: str, size: int) -> None:
    flags = syscalls.MS_REMOUNT | syscalls.MS_NODEV
    syscalls.mount_filesystem("disk", path, None, flags, f"size={size}")


def cable_name(bridge: str) -> str:
    """Return the name of the cable between a bridge and the first of its segment."""
    return f"{bridge}c"


def shape_traffic(line: netlink.Netlink, name: str, network: str) -> None:
    """Limit or unlimit the traffic on this end of a cable."""
    if network == "slow":
        line.slow_down(name)
    else:
        line.speed_up(name)


def enter_tmpfs(folder: str, namespaces: int, options: str) -> None:
    """Leave these namespaces and enter a private tmpfs over the folder."""
    syscalls.unshare_namespaces(namespaces)
    syscalls.mount_filesystem("none", "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
    syscalls.mount_filesystem("tpuherd", folder, "tmpfs", syscalls.MS_NODEV, options)
    os.chdir(folder)


def give_up_root() -> None:
    """Become a user that no one else uses."""
    os.setgroups([])
    os.setresgid(FIRST_ID, FIRST_ID, FIRST_ID)
    os.setresuid(FIRST_ID, FIRST_ID, FIRST_ID)
    syscalls.be_dumpable()
    syscalls.die_with_parent()


def enter_user_namespace() -> None:
    """Become root of a user namespace with one user, who is not root outside."""
    user, group = os.getuid(), os.getgid()
    syscalls.unshare_namespaces(syscalls.NEWUSER | syscalls.NEWNS)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {user} 1")
    Path("/proc/self/gid_map").write_text(f"0 {group} 1")


def build_in_child(
    ready: int, files: rootfs_layers.RootfsFiles, private: Sequence[Path], *, single_id: bool
) -> int:
    """Build the layers in the child."""
    try:
        syscalls.die_with_parent()
        if not os.read(ready, 1):
            return 1
        if not single_id:
            os.setgroups([])
            os.setresgid(0, 0, 0)
            os.setresuid(0, 0, 0)
            syscalls.die_with_parent()
        rootfs_layers.build_layers(Path("own"), files, private, single_id=single_id)
    except (OSError, shutil.Error, ValueError) as error:
        Path("own/failed").write_text(str(error))
        return 1
    return 0


def become_host(link: int, ready: int, plan: Message) -> None:
    """Start a host in the child; close everything of ours."""
    try:
        first, second = sorted((link, ready))
        for low, high in ((3, first), (first + 1, second), (second + 1, init.FILES_MAX)):
            os.closerange(low, high)
        init.run(socket.socket(fileno=link), ready, plan)
    finally:
        os._exit(1)


def flat_name(name: str) -> str:
    """Return a name without slashes, for a directory in low/."""
    return name.replace("/", "-")
