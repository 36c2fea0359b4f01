"""The devices of a host: the common ones, and chips as plain files."""

from pathlib import Path

from tpuherd_sim.hosts import syscalls
from tpuherd_sim.hosts.messages import Message

NODES = ("null", "zero", "full", "random", "urandom", "tty")
LINKS = {
    "ptmx": "pts/ptmx",
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
}
VENDOR, CLASS = "0x1ae0", "0x120000"


def make_dev(dev: Path, plan: Message) -> None:
    """Create /dev: the machine's harmless nodes, own terminals, and the chips as plain files."""
    syscalls.mount_filesystem("dev", str(dev), "tmpfs", syscalls.MS_NOSUID, "size=1m,mode=755")
    for name in NODES:
        (dev / name).touch()
        syscalls.mount_filesystem(f"/dev/{name}", str(dev / name), None, syscalls.MS_BIND)
    for name, target in LINKS.items():
        (dev / name).symlink_to(target)
    (dev / "pts").mkdir()
    (dev / "shm").mkdir()
    options = "newinstance,ptmxmode=0666,mode=620"
    syscalls.mount_filesystem(
        "devpts", str(dev / "pts"), "devpts", syscalls.MS_NOSUID | syscalls.MS_NOEXEC, options
    )
    for name in chip_files(plan):
        path = dev / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
        path.chmod(0o666)


def chip_files(plan: Message) -> list[str]:
    """Return the names of the chips below /dev."""
    if plan["device"] == "accel":
        return [f"accel{chip}" for chip in range(plan["chips"])]
    return ["vfio/vfio", *(f"vfio/{chip}" for chip in range(plan["chips"]))]


def make_sys(target: Path, plan: Message) -> None:
    """Create /sys: the machine's, read-only, with only the chips on the PCI bus."""
    bare = syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC
    try:
        syscalls.mount_filesystem("sysfs", str(target), "sysfs", syscalls.MS_RDONLY | bare)
    except PermissionError:
        # If the machine's own /sys is partly masked, the kernel refuses a fresh one.
        syscalls.mount_filesystem("sys", str(target), "tmpfs", bare, "size=4m,mode=755")
        for name in ("bus/pci/devices", "kernel/iommu_groups", "class/net", "fs/cgroup"):
            (target / name).mkdir(parents=True)
    groups = target / "kernel/iommu_groups"
    places = [target / "bus/pci/devices", *([groups] if groups.is_dir() else [])]
    for place in places:
        if place.is_dir():
            syscalls.mount_filesystem("pci", str(place), "tmpfs", bare, "size=1m,mode=755")
    for chip in range(plan["chips"]):
        add_chip(places[0], groups, chip, plan)
    product = target / "class/dmi/id/product_name"
    if product.exists():
        shown = target / "bus/pci/devices/.product"
        shown.write_text("Google Compute Engine\n")
        syscalls.mount_filesystem(str(shown), str(product), None, syscalls.MS_BIND)
        shown.unlink()


def add_chip(bus: Path, groups: Path, chip: int, plan: Message) -> None:
    """Add one PCI device, in its own IOMMU group if the driver is vfio."""
    if not bus.is_dir():
        return
    address = f"0000:00:{chip + 4:02x}.0"
    place = bus / address
    place.mkdir()
    facts = {"vendor": VENDOR, "class": CLASS, "subsystem_vendor": VENDOR,
             "device": plan["pci"], "subsystem_device": plan["subsystem"],
             "numa_node": "0"}  # fmt: skip
    for name, value in facts.items():
        (place / name).write_text(f"{value}\n")
    if plan["device"] == "vfio":
        (place / "iommu_group").symlink_to(f"/sys/kernel/iommu_groups/{chip}")
        if groups.is_dir():
            (groups / str(chip) / "devices").mkdir(parents=True)
            (groups / str(chip) / "devices" / address).symlink_to(f"/sys/bus/pci/devices/{address}")


def is_chip(path: str) -> bool:
    """Whether a file is a chip (not the common /dev/vfio/vfio)."""
    for start in ("/dev/accel", "/dev/vfio/"):
        if path.startswith(start) and path[len(start) :].isdigit():
            return True
    return False
