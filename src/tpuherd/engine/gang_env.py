"""The environment variables that tell each host its place in the gang; pure."""

import re
from collections.abc import Mapping, Sequence

from tpuherd.model.node_spec import LaunchSpec
from tpuherd.model.slots_and_plan import Launch
from tpuherd.ports import Host

#: Open in networks with Google's default rules; JAX's newer default, 8482, is not.
COORDINATOR_PORT = 8476
MEGASCALE_PORT = 8081
TORCH_PORT = 29500  #: torch's own choice; JAX's coordinator listens at the same time
RAY_PORT = 6379  #: Ray's own choice
WANDB_ID = re.compile(r"[\w.-]{1,100}")  #: an id that W&B takes, with room for a suffix


def gang_environment(
    hosts: Sequence[Host], index: int, launch: Launch, cluster: str = ""
) -> Mapping[str, str]:
    """The variables of the host at `index`; the agent removes those that the login sets."""
    return {
        "HERD_ATTEMPT": str(launch.number),
        "HERD_RESUME": str(int(launch.resume)),
        **place_environment(hosts, index),
        **(ray_environment(hosts, index) if cluster else {}),
    }


def default_environment(hosts: Sequence[Host], index: int, order: LaunchSpec) -> dict[str, str]:
    """What programs of others expect to find on the host at `index`; the job's `env` wins."""
    if order.cluster:
        return {}  # one program on one host, whose cluster gives its tasks their places
    return {
        "MASTER_ADDR": hosts[0].internal_ip,
        "MASTER_PORT": str(TORCH_PORT),
        "NODE_RANK": str(index),
        "NNODES": str(len(hosts)),
        **(wandb_environment(len(hosts), index, order) if order.wandb else {}),
    }


def wandb_environment(hosts: int, index: int, order: LaunchSpec) -> dict[str, str]:
    """One run of W&B over all attempts: the job's on process 0, and its own on each other one."""
    run = order.trial.get("RUN_ID") or order.env.get("RUN_ID", "")
    if not WANDB_ID.fullmatch(run):
        return {}
    found = {"WANDB_RUN_ID": f"{run}-w{index}" if index else run, "WANDB_RESUME": "allow"}
    return {**found, "WANDB_RUN_GROUP": run} if hosts > 1 else found


def ray_environment(hosts: Sequence[Host], index: int) -> Mapping[str, str]:
    """Where Ray's head is, and the address by which other hosts reach this one."""
    head = f"{hosts[0].internal_ip}:{RAY_PORT}"
    return {"RAY_ADDRESS": head, "HERD_ADDRESS": hosts[index].internal_ip}


def place_environment(hosts: Sequence[Host], index: int) -> Mapping[str, str]:
    """The variables by which the hosts of a gang find each other, for the host at `index`."""
    mine, first = hosts[index], hosts[0]
    variables = {
        "HERD_WORKER": str(index),
        "HERD_WORKERS": str(len(hosts)),
        "HERD_ADDRESSES": ",".join(one.internal_ip for one in hosts if one.node == mine.node),
        "HERD_COORDINATOR": f"{first.internal_ip}:{COORDINATOR_PORT}",
        "JAX_COORDINATOR_PORT": str(COORDINATOR_PORT),
        # Bound to one address, so that it cannot meet an orphan of another run.
        "JAX_COORDINATOR_BIND_ADDRESS": f"{mine.internal_ip}:{COORDINATOR_PORT}",
    }
    nodes = list(dict.fromkeys(host.node for host in hosts))
    if len(nodes) > 1:
        variables |= {
            "MEGASCALE_COORDINATOR_ADDRESS": first.internal_ip,
            "MEGASCALE_NUM_SLICES": str(len(nodes)),
            "MEGASCALE_SLICE_ID": str(nodes.index(mine.node)),
            "MEGASCALE_PORT": str(MEGASCALE_PORT),
        }
    return variables
