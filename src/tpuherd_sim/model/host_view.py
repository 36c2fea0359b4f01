"""The wanted state of each host: all that running hosts know about the model."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class HostView:
    """The wanted state of one worker VM. The host pool compares it with what runs and applies the
    difference.
    """

    key: str  #: <node uid>-<worker>: unique forever, a recreated node has new ones
    zone: str
    node: str  #: the node's id in its zone
    worker: int
    name: str  #: t1v-n-0f996b37-w-0
    uid: int  #: the instance's number
    image: str  #: the runtime version
    accelerator: str  #: the accelerator type, e.g. v5litepod-16
    chips: int  #: on this host
    device: str  #: accel or vfio: the kind of device files
    pci: str  #: PCI device id of a chip, e.g. 0x0063
    internal_ip: str
    external_ip: str | None
    #: Hosts reach each other only within a segment: a node, or all slices of a multislice.
    segment: str
    #: (name, internal address) of every host of the segment, including this one
    peers: tuple[tuple[str, str], ...]
    on: bool  #: powered
    boot: int  #: incremented by every reboot
    #: Incremented when the power button is pressed: shutdown script, then SIGTERM to all.
    soft_off: int = 0
    restarting: bool = False  #: the latest press was for an orderly reboot
    hung: bool = False  #: nothing in it runs or responds
    network: str = "up"  #: up, down or slow
    ssh: bool = True  #: responds on its external address
    disk_full: bool = False
    #: Applied by its metadata and to our agent; the kernel's clock can't be shifted.
    clock_skew_s: float = 0.0
    startup_script: str | None = None
    shutdown_script: str | None = None
