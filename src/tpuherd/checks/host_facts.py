"""The facts that a host's agent gathers for `herd check`: typed, bounded, or refused. Pure.

Programs of users run beside the agent and may send anything in its name.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from tpuherd.engine.host_messages import Count, Few, Short, Text, Time

ROWS_MAX = 256
Line = Annotated[str, Meta(max_length=1024)]
Pid = Annotated[int, Meta(ge=0, le=1 << 31)]
Port = Annotated[int, Meta(ge=0, le=65535)]
Names = Annotated[tuple[Line, ...], Meta(max_length=ROWS_MAX)]
Versions = Annotated[dict[Short, Short], Meta(max_length=64)]


class InvalidFacts(Exception):
    """A host's facts that make no sense; the message says where."""


class HostProcess(Struct, frozen=True, kw_only=True):
    """A process; without a pid it is hidden from the agent's user."""

    pid: Pid | None = None
    user: Short = ""
    command: Line = ""
    work: Short = ""  #: the task of ours that it belongs to
    since: Time | None = None


class ChipUser(HostProcess, frozen=True, kw_only=True):
    device: Line
    parent: Pid = 0


class TpuLock(HostProcess, frozen=True, kw_only=True):
    """A lock file of libtpu. The file alone is no lock."""

    path: Line
    owner: Short
    ours: bool  #: libtpu opens it when this login starts a program
    usable: bool
    held: bool


class PortUser(HostProcess, frozen=True, kw_only=True):
    port: Port
    address: Short


class AptHolder(HostProcess, frozen=True, kw_only=True):
    path: Line = ""
    state: Short = ""


class BigProcess(HostProcess, frozen=True, kw_only=True):
    bytes: Count = 0


class FileSystem(Struct, frozen=True, kw_only=True):
    path: Line
    total: Count
    free: Count
    files: Count  #: 0: it does not count them
    files_free: Count


class RunningTask(Struct, frozen=True, kw_only=True):
    id: Short
    kind: Short
    title: Line = ""
    slot: Short = ""


class HostLoad(Struct, frozen=True, kw_only=True):
    threads: Count = 0
    threads_max: Count = 0  #: 0: no limit
    files_max: Count = 0
    biggest: Annotated[tuple[BigProcess, ...], Meta(max_length=ROWS_MAX)] = ()


class HostVariable(Struct, frozen=True, kw_only=True):
    name: Short
    value: Line
    where: Line  #: login, or a file


class Preload(Struct, frozen=True, kw_only=True):
    file: Line
    where: Line
    state: Literal["fine", "missing", "broken"]


class HostSettings(Struct, frozen=True, kw_only=True):
    variables: Annotated[tuple[HostVariable, ...], Meta(max_length=ROWS_MAX)] = ()
    preloads: Annotated[tuple[Preload, ...], Meta(max_length=ROWS_MAX)] = ()


class WandbLogin(Struct, frozen=True, kw_only=True):
    logins: Names = ()  #: where a key is
    tasks: Names = ()  #: that have one


class HostPython(Struct, frozen=True, kw_only=True):
    name: Line
    path: Line
    version: Short = ""
    packages: Versions = {}
    pin: Short = ""  #: the libtpu that its jax wants
    why: Line = ""  #: it does not work


class HostMetadata(Struct, frozen=True, kw_only=True):
    """What the metadata server says; empty where it says nothing."""

    tpu_env: Versions = {}
    endpoints: Annotated[str, Meta(max_length=1 << 14)] = ""
    worker: Short = ""
    internal_ip: Short = ""
    external_ip: Short = ""


class HostImage(Struct, frozen=True, kw_only=True):
    system: Short = ""
    libc: Short = ""
    runtime: Short = ""


class HostIdentity(Struct, frozen=True, kw_only=True):
    user: Short = ""
    metadata: HostMetadata = HostMetadata()
    addresses: Names = ()
    image: HostImage = HostImage()


class HostMemory(Struct, frozen=True, kw_only=True):
    total: Count = 0
    available: Count = 0


class PciChip(Struct, frozen=True, kw_only=True):
    generation: Short = ""


class HostBasics(Struct, frozen=True, kw_only=True):
    """The part of the reply that `facts` has, too."""

    kernel: Short = ""
    memory: HostMemory = HostMemory()
    chips: Annotated[tuple[PciChip, ...], Meta(max_length=ROWS_MAX)] = ()
    devices: Names = ()
    hugepages: Short = ""
    cores: Few | None = None


class LogFolder(Struct, frozen=True, kw_only=True):
    usable: bool = True


class HostFacts(Struct, frozen=True, kw_only=True):
    """The reply to `check`. A section that is in `failed` has its default here."""

    host: HostBasics = HostBasics()
    disks: Annotated[tuple[FileSystem, ...], Meta(max_length=ROWS_MAX)] = ()
    locks: Annotated[tuple[TpuLock, ...], Meta(max_length=ROWS_MAX)] = ()
    leftovers: Annotated[tuple[HostProcess, ...], Meta(max_length=ROWS_MAX)] = ()
    holders: Annotated[tuple[ChipUser, ...], Meta(max_length=ROWS_MAX)] = ()
    tasks: Annotated[tuple[RunningTask, ...], Meta(max_length=ROWS_MAX)] = ()
    ports: Annotated[tuple[PortUser, ...], Meta(max_length=ROWS_MAX)] = ()
    load: HostLoad = HostLoad()
    settings: HostSettings = HostSettings()
    wandb: WandbLogin = WandbLogin()
    pythons: Annotated[tuple[HostPython, ...], Meta(max_length=ROWS_MAX)] = ()
    identity: HostIdentity = HostIdentity()
    apt: AptHolder = AptHolder()
    logs: LogFolder = LogFolder()
    failed: Annotated[dict[Short, Text], Meta(max_length=64)] = {}


class CleanReply(Struct, frozen=True, kw_only=True):
    """The reply to `clean`."""

    ended: Annotated[tuple[HostProcess, ...], Meta(max_length=ROWS_MAX)] = ()
    left: Annotated[tuple[HostProcess, ...], Meta(max_length=ROWS_MAX)] = ()
    removed: Names = ()
    mended: Names = ()


def parse_clean_reply(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what was cleaned, as plain values; InvalidFacts if it makes no sense."""
    try:
        found: Mapping[str, Any] = msgspec.to_builtins(msgspec.convert(content, CleanReply))
    except (msgspec.ValidationError, RecursionError) as error:
        raise InvalidFacts(str(error)[:300]) from error
    return found


def parse_host_facts(content: Mapping[str, Any]) -> HostFacts:
    """Return the facts; InvalidFacts if any of them has the wrong type or is out of bounds."""
    try:
        return msgspec.convert(content, HostFacts, strict=True)
    except (msgspec.ValidationError, RecursionError) as error:
        raise InvalidFacts(str(error)[:300]) from error
