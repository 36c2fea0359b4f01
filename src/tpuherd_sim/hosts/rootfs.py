"""Builds the file tree of a host: layers, disk, devices, its own names."""

import os
from contextlib import suppress
from pathlib import Path

from tpuherd_sim.hosts import devices, syscalls
from tpuherd_sim.hosts.api_address import api_environment
from tpuherd_sim.hosts.messages import Message

RUN_BYTES, SHARED_BYTES = 256 << 20, 2 << 30
LIBRARY = "/usr/lib/tpuherd/libtpu.so"  #: an empty file, which is enough for JAX to detect a TPU VM


def build_rootfs(plan: Message) -> None:
    """Build the tree and enter it, leaving nothing else of the machine within reach."""
    boot_id = Path("/proc/sys/kernel/random/uuid").read_text()
    syscalls.mount_filesystem("none", "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
    disk = Path("disk", str(plan["number"]))
    fresh = not (disk / "up").exists()
    at = Path("at")
    mount_overlay(at, "own/root", disk / "up/root", disk / "work/root")
    for name, lower in plan["lowers"].items():
        ours = f"own/{lower['own']}:" if lower["own"] else ""
        target = at / name
        if not target.is_dir():
            make_mount_point(at, Path(name))
        mount_overlay(target, f"{ours}low/{lower['low']}", disk / "up" / lower["low"],
                disk / "work" / lower["low"])  # fmt: skip
    mount_kernel_filesystems(at, plan)
    (at / "old").mkdir(mode=0o700, exist_ok=True)
    os.chdir(at)
    syscalls.pivot_root(".", "old")
    syscalls.unmount_target("/old")
    os.chdir("/")
    Path("/old").rmdir()
    prepare_boot(plan, boot_id, fresh=fresh)


def mount_overlay(target: Path, lower: str, upper: Path, work: Path) -> None:
    """Mount the host's writes over its layers; xino keeps inodes stable across reboots."""
    upper.mkdir(parents=True, exist_ok=True)
    work.mkdir(parents=True, exist_ok=True)
    options = f"lowerdir={lower},upperdir={upper},workdir={work},userxattr,xino=on"
    syscalls.mount_filesystem("host", str(target), "overlay", syscalls.MS_NODEV, options)


def make_mount_point(at: Path, name: Path) -> None:
    """Create the parent directories of a shared folder, which every login may pass through."""
    for above in reversed(name.parents):
        path = at / above
        if not path.is_dir():
            path.mkdir()
            path.chmod(0o755)
    (at / name).mkdir()


def mount_kernel_filesystems(at: Path, plan: Message) -> None:
    """Mount proc, dev, sys and a fresh /run."""
    bare = syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC
    syscalls.mount_filesystem("proc", str(at / "proc"), "proc", bare)
    devices.make_sys(at / "sys", plan)
    devices.make_dev(at / "dev", plan)
    size = f"size={SHARED_BYTES},mode=1777"
    syscalls.mount_filesystem(
        "shm", str(at / "dev/shm"), "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, size
    )
    size = f"size={RUN_BYTES},mode=755"
    syscalls.mount_filesystem(
        "run", str(at / "run"), "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, size
    )


def prepare_boot(plan: Message, boot_id: str, *, fresh: bool) -> None:
    """Write the host's own names and the traces of this boot."""
    for name, mode in (("lock", 0o1777), ("sshd", 0o755), ("user", 0o755)):
        Path("/run", name).mkdir()
        Path("/run", name).chmod(mode)
    if not fresh:
        empty_directory(Path("/tmp"))
    local = Path("/usr/local/etc")
    if fresh and local.is_dir():
        empty_directory(local)
    Path("/run/boot_id").write_text(boot_id)
    Path("/run/boot_id").chmod(0o444)
    syscalls.mount_filesystem(
        "/run/boot_id", "/proc/sys/kernel/random/boot_id", None, syscalls.MS_BIND
    )
    for name in ("sysrq-trigger", "kcore", "keys", "key-users", "sched_debug", "cmdline"):
        path = Path("/proc", name)
        if path.exists():
            syscalls.mount_filesystem("/dev/null", str(path), None, syscalls.MS_BIND)
    if fresh:
        write_etc_files(plan)


def empty_directory(folder: Path) -> None:
    """Empty a directory except for shared folders below it and the way there."""
    for path in folder.iterdir():
        if not path.is_dir() or path.is_symlink():
            path.unlink(missing_ok=True)
        elif path.stat().st_dev == folder.stat().st_dev:
            empty_directory(path)
            with suppress(OSError):  # it contains a shared folder
                path.rmdir()


def write_etc_files(plan: Message) -> None:
    """Write /etc of a host that starts for the first time."""
    etc = Path("/etc")
    (etc / "hostname").write_text(f"{plan['name']}\n")
    (etc / "machine-id").write_text(f"{plan['machine_id']}\n")
    hosts = "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n"
    hosts += "169.254.169.254 metadata.google.internal metadata\n"
    for name, address in plan["peers"]:
        hosts += f"{address} {name}\n"
    (etc / "hosts").write_text(hosts)
    settings = {
        "TPU_LIBRARY_PATH": LIBRARY,
        **api_environment("169.254.169.254"),
        **plan["settings"],
    }
    (etc / "environment").write_text("".join(f"{key}={settings[key]}\n" for key in settings))
