"""What each host of the world should be like now: all that running hosts know of the model."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class HostView:
    """One worker VM as wished. The rack compares it with what runs and does the difference."""

    key: str  #: <node uid>-<worker>: unique for ever, a recreated node has new ones
    zone: str
    node: str  #: the node's id in its zone
    worker: int
    name: str  #: t1v-n-0f996b37-w-0
    uid: int  #: the instance's number
    image: str  #: the runtime version
    accelerator: str  #: the accelerator type, e.g. v5litepod-16
    chips: int  #: on this host
    device: str  #: accel or vfio: which device files the chips have
    pci: str  #: PCI device id of a chip, e.g. 0x0063
    internal_ip: str
    external_ip: str | None
    #: Hosts of one segment reach each other, of different ones never: a node, or all slices.
    segment: str
    #: (name, internal address) of every host of the segment, itself too
    peers: tuple[tuple[str, str], ...]
    on: bool  #: powered
    boot: int  #: raised by every reboot
    #: Raised each time the power button is pressed: shutdown script, then TERM to all.
    soft_off: int = 0
    hung: bool = False  #: nothing in it runs, nothing answers
    network: str = "up"  #: up, down or slow
    ssh: bool = True  #: answers on its external address
    disk_full: bool = False
    #: Shown by its metadata and to our agent; the kernel's clock can't be shifted.
    clock_skew_s: float = 0.0
    startup_script: str | None = None
    shutdown_script: str | None = None
