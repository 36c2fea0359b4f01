"""What to create for a bid, and what to run on its hosts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

CARD = "tpuherd"  #: the key of a node's metadata that says what it is for


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeSpec:
    """What a node is created with, besides its offer."""

    card: Mapping[str, Any] = field(default_factory=dict)  #: without secrets; the engine fills it
    labels: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    network: str = ""
    subnetwork: str = ""
    external_ips: bool = True
    service_account: str = ""
    disks: tuple[str, ...] = ()  #: full names; read-only if the node has several hosts
    reservation: str = ""
    node_name: str = ""  #: if the job insists on one; else it is the bid's
    description: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvironmentSpec:
    """The Python environment that a job's commands use."""

    key: str  #: of everything that is installed; "" while the job's code is not on this machine
    python: str = ""  #: 3.11; "": the image's own
    requirements: str = ""  #: a file of the code, or uv.lock
    bucket: str = ""  #: gs://…, where hosts keep a copy
    job: str = ""  #: whose it is: another one if the job is removed and submitted again


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvironmentNote:
    """What a job's own host installed on a platform; only a copy with these contents is used."""

    platform: str
    digest: str  #: of all its files: the id of its snapshot
    kept: str = ""  #: the object in the job's bucket that has the copy; "": this machine has it


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchSpec:
    """What the agents run: the same on every host of a gang."""

    shell: str = ""
    argv: tuple[str, ...] = ()  #: instead of a shell command
    cluster: str = ""  #: ray: what is started around the command
    image: str = ""  #: of the container that the command runs in, without docker://
    mounts: tuple[str, ...] = ()  #: folders that the container has besides the usual ones
    env: Mapping[str, str] = field(
        default_factory=dict
    )  #: RUN_ID and the user's variables, without secrets
    secrets: tuple[str, ...] = ()  #: names; values come from the store's folder of secrets
    setup: tuple[Mapping[str, Any], ...] = ()  #: STEPs of the agent's verb `setup`, hashes set
    environment: EnvironmentSpec | None = None
    nfs: Mapping[str, str] = field(default_factory=dict)  #: folders with their servers
    dest: str = ""  #: the snapshot's folder, relative to the login's home: herd/gpt
    directory: str = ""  #: where the command runs
    outputs: tuple[str, ...] = ()  #: paths to fetch, relative to `directory`
    grace_s: float = 30.0
    notice_grace_s: float = 25.0
    fetches_checkpoint: bool = False  #: hosts copy the checkpoint to their disks before the attempt
    wandb: bool = False  #: each process's attempts are one run of W&B
    trial: Mapping[str, str] = field(default_factory=dict)  #: variables that override all others
