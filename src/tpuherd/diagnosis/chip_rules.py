"""Rules for chips that are held, absent or broken."""

from tpuherd.diagnosis.rule import Rule, RuleClass

BUSY, ABSENT, HARDWARE = RuleClass.BUSY, RuleClass.ABSENT, RuleClass.HARDWARE
FREE = "`herd clean NODE` ends leftover processes and frees the chips; then run it again"
NEW_NODE = "delete the node and request another one (`herd` does so by itself for its jobs)"

CHIP_RULES = (
    Rule(
        id="tpu-busy-pid",
        kind=BUSY,
        pattern=r"The TPU is already in use by process with pid (?P<pid>\d+)",
        words=("already in use by process",),
        chips=True,
        cause="process {pid} on this host holds the chips; often it is left over from a run before",
        fix=f"{FREE}. Removing the lock file alone lets two programs fight over the chips",
        source="libtpu 0.0.51; openxla/xla tpu_initialize_util.cc",
        evidence="measured, source",
    ),
    Rule(
        id="tpu-busy-other-user",
        kind=BUSY,
        pattern=r"The TPU is already in use by another process probably owned by another user",
        words=("The TPU is already in use by another",),
        chips=True,
        cause="the lock file belongs to another user, or a process that this user can't see holds"
        " the chips; the file alone is no lock",
        fix="`herd smi NODE --processes` shows who holds them. If nobody does:"
        " `sudo rm /tmp/libtpu_lockfile` on this host. Start all runs as the same user",
        source="libtpu 0.0.51; jax#10192",
        evidence="measured, source",
    ),
    Rule(
        id="tpu-busy-lock-internal",
        kind=BUSY,
        pattern=r"libtpu multi-process lockfile",
        words=("libtpu multi-process lockfile",),
        chips=True,
        cause="the lock is held, but no visible process has the chips open: its holder is just"
        " starting or ending, or it runs in a container",
        fix=f"wait ten seconds and try again; look for containers (`docker ps`); else {FREE}",
        source="libtpu 0.0.51",
        evidence="measured",
    ),
    Rule(
        id="tpu-busy-stale-file",
        kind=BUSY,
        pattern=r"The TPU is already in use or the lock file is stale",
        words=("already in use or the lock file",),
        chips=True,
        cause="the lock file belongs to another user or a process holds the chips, in the words of"
        " newer versions",
        fix="`herd smi NODE --processes` shows who holds them. If nobody does, remove"
        " /tmp/libtpu_lockfile, /tmp/libtpu_lock_UID and ~/.libtpu_lockfile",
        source="openxla/xla tpu_initialize_util.cc",
        evidence="source",
    ),
    Rule(
        id="tpu-busy-old",
        kind=BUSY,
        pattern=r"libtpu\.so already in used? by another process",
        words=("libtpu.so already in use",),
        chips=True,
        cause="another process holds the chips, in the words of versions of 2021 and 2022; such a"
        " program goes on slowly on the CPU",
        fix=FREE,
        source="jax#10192, jax#9220; pytorch/xla#3214",
        evidence="report",
    ),
    Rule(
        id="tpu-busy-generic",
        kind=BUSY,
        pattern=r"The TPU is already in use",
        words=("The TPU is already in use",),
        chips=True,
        cause="another process holds the chips",
        fix=FREE,
        source="openxla/xla tpu_initialize_util.cc",
        evidence="source",
    ),
    Rule(
        id="vfio-busy",
        kind=BUSY,
        pattern=r"/dev/(?:vfio/\d+|accel\d+)\S* ?:? ?Device or resource busy"
        r"|Couldn't open iommu group",
        words=("Device or resource busy", "Couldn't open iommu group"),
        chips=True,
        cause="another process has a chip open (a leftover run, a container), or the node is bad",
        fix=f"{FREE}. If it comes back after a minute or two: {NEW_NODE}",
        source="marin-community/marin, lib/iris",
        evidence="report",
    ),
    Rule(
        id="accel-perm",
        kind=BUSY,
        pattern=r"Couldn't open device: /dev/accel\d+|PERMISSION_DENIED: open\(/dev/accel\d+\)"
        r"|open\(/dev/accel\d+\).{0,80}(?:not permitted|[Pp]ermission denied|PERMISSION_DENIED)",
        words=("/dev/accel",),
        chips=True,
        cause="a chip can't be opened: an interrupted process holds it, or a container runs without"
        " --privileged",
        fix=f"{FREE}. In a container: `docker run --privileged --net=host`. Last, reboot the host",
        source="pytorch/xla#3947, pytorch/xla#3078",
        evidence="report",
    ),
    Rule(
        id="port-in-use",
        kind=BUSY,
        pattern=r"[Aa]ddress already in use|EADDRINUSE",
        words=("ddress already in use", "EADDRINUSE"),
        cause="another process listens on the port, such as the coordinator of a run before",
        fix="`herd clean NODE` ends leftover processes; or choose another port"
        " (JAX_COORDINATOR_PORT, on all hosts the same)",
        source="jax/_src/distributed.py: ports 8482 (8476 until 0.8.0)",
        evidence="source, assumed",
    ),
    Rule(
        id="cpu-fallback",
        kind=ABSENT,
        pattern=r"No GPU/TPU found, falling back to CPU|An NVIDIA GPU may be present"
        r"|Falling back to cpu",
        words=("falling back to CPU", "An NVIDIA GPU may be present", "Falling back to cpu"),
        lasting=True,
        generic=True,
        cause="JAX found no chips and runs on the CPU, a hundred times slower: they are held by"
        " another process or are not there",
        fix="set JAX_PLATFORMS=tpu,cpu so that it fails instead; `herd smi NODE --processes` shows"
        " who holds the chips",
        source="jax#10192, jax#12416",
        evidence="report",
    ),
    Rule(
        id="iommu-type",
        kind=ABSENT,
        pattern=r"Couldn't set iommu to type",
        words=("Couldn't set iommu to type",),
        chips=True,
        cause="the kernel module vfio_iommu_type1 does not allow unsafe interrupts, as in an image"
        " or container of your own",
        fix="use the TPU image of the generation, or, as root: echo 1 >"
        " /sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts",
        source="public notes on v6e",
        evidence="report",
    ),
    Rule(
        id="no-tpu-device",
        kind=ABSENT,
        pattern=r"No (?!CUDA|GPU|audio)\S+ device found|No hardware is found|No accelerator found",
        words=(" device found", "No hardware is found", "No accelerator found"),
        cause="this host has no chips: it is no TPU VM, they were not bound again after"
        " maintenance, or the image is that of another generation",
        fix=f"check `ls /dev/accel* /dev/vfio` on the host; {NEW_NODE}, with the runtime of its"
        " generation",
        source="libtpu 0.0.51; jax#12416, jax#13260",
        evidence="measured, report",
    ),
    Rule(
        id="vbar",
        kind=ABSENT,
        pattern=r"Failed to connect to vbar control service",
        words=("vbar control service",),
        chips=True,
        cause="the control agent of the chips (port 8353, v6e and later) does not run: the image is"
        " a general one",
        fix="recreate the node with the runtime of its generation, such as v2-alpha-tpuv6e",
        source="public notes on v6e",
        evidence="report",
    ),
    Rule(
        id="chips-unlike",
        kind=ABSENT,
        pattern=r"herd: error: the hosts are not alike: the number of chips",
        words=("the hosts are not alike",),
        chips=True,
        cause="a host shows fewer chips than the others",
        fix=f"compare `herd exec NODE -- ls /dev/accel* /dev/vfio`; {NEW_NODE}",
        source="tpuherd_host.train",
        evidence="measured",
    ),
    Rule(
        id="tpu-init",
        kind=ABSENT,
        pattern=r"TPU initialization failed|Unable to initialize backend 'tpu'",
        words=("TPU initialization failed", "Unable to initialize backend 'tpu'"),
        chips=True,
        generic=True,
        cause="the chips of this host did not come up, and no known reason stands beside it",
        fix=f"read the rest of the line; `herd smi NODE --processes` shows who holds the chips;"
        f" else {NEW_NODE}",
        source="libtpu 0.0.51; jax/_src/xla_bridge.py",
        evidence="measured",
    ),
    Rule(
        id="hw-error",
        kind=HARDWARE,
        pattern=r"observed errors are: \[(?P<part>Hardware|Network|Power)\]",
        words=("observed errors are: [",),
        chips=True,
        cause="a fault of the machine: {part}",
        fix=f"try once more; if it is the same host again, {NEW_NODE}",
        source="openxla/xla docs/errors/error_0200.md",
        evidence="source",
    ),
    Rule(
        id="xla-user-halt",
        kind=HARDWARE,
        pattern=r"observed errors are: \[User\]",
        words=("observed errors are: [User]",),
        cause="the compiled program did something illegal; rarely the fault of user code",
        fix="try another version of libtpu and jaxlib; check Pallas kernels of your own",
        source="openxla/xla docs/errors/error_0200.md",
        evidence="source",
    ),
    Rule(
        id="core-halt",
        kind=HARDWARE,
        pattern=r"Core halted unexpectedly|Accelerator device halted prematurely",
        words=("Core halted unexpectedly", "device halted prematurely"),
        generic=True,
        cause="a check on the chip failed; BoundsCheck or semaphore point to a Pallas kernel,"
        " scheckne to hosts that run different programs",
        fix="look in the same message for scheck, BoundsCheck and `observed errors`",
        source="openxla/xla docs/errors/error_0200.md",
        evidence="source, report",
    ),
)
