"""What the zygote and the init need to know about a host, read off its view. Pure."""

import hashlib

from tpuherd_sim.hosts.messages import Message
from tpuherd_sim.model.host_view import HostView

SUBSYSTEM = {"v2": "0x004e", "v3": "0x004f"}  #: of a chip's PCI device; otherwise 0x0000
EIGHT = ("v2", "v3")  #: generations with two devices per chip


def make_boot_config(view: HostView) -> Message:
    """Return what the zygote and the init need to know about a host."""
    generation = view.accelerator[:2]
    devices = 8 if generation in EIGHT else view.chips
    return {
        "name": view.name,
        "machine_id": hashlib.blake2b(str(view.uid).encode(), digest_size=16).hexdigest(),
        "address": view.internal_ip,
        "external": view.external_ip,
        "segment": view.segment,
        "chips": view.chips,
        "device": view.device,
        "pci": view.pci,
        "subsystem": SUBSYSTEM.get(generation, "0x0000"),
        "settings": {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": str(devices)},
    }
