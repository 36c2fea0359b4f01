"""SkyPilot's own TPU provisioner: a node and a queued resource from create to terminate."""

import json
import sys

from sky.provision.common import ProvisionerError
from sky.provision.gcp.instance_utils import GCPTPUVMInstance as Tpu

PROJECT, ZONE = "demo", "us-central2-b"
NODE = {
    "acceleratorType": "v4-8",
    "runtimeVersion": "tpu-vm-base",
    "schedulingConfig": {"preemptible": True},
    "networkConfig": {"enableExternalIps": True},
}


def create(cluster: str, **more: object) -> tuple[object, list[str]]:
    return Tpu.create_instances(
        cluster_name=cluster,
        project_id=PROJECT,
        zone=ZONE,
        node_config=NODE | more,
        labels={"who": "sky"},
        count=1,
        total_count=1,
        include_head_node=True,
    )


def there() -> dict[str, str]:
    found = Tpu.filter(PROJECT, ZONE, {"who": "sky"}, None)
    return {name.split("/")[-1]: node["state"] for name, node in found.items()}


def life(cluster: str, **more: object) -> dict[str, object]:
    errors, (name,) = create(cluster, **more)
    full = f"projects/{PROJECT}/locations/{ZONE}/nodes/{name}"
    Tpu.set_labels(PROJECT, ZONE, full, {"more": "labels"})
    Tpu.add_network_tag_if_not_exist(PROJECT, ZONE, full, "sky-tag")
    found = {
        "errors": errors,
        "states": list(there().values()),
        "vpc": Tpu.get_vpc_name(PROJECT, ZONE, full),
        "ips": [info.external_ip for info in Tpu.get_instance_info(PROJECT, ZONE, full)],
    }
    Tpu.wait_for_operation(Tpu.terminate(PROJECT, ZONE, full), PROJECT, zone=ZONE)
    return found | {"left": there()}


def refused(**more: object) -> object:
    try:
        return create("gone", **more)[0]
    except ProvisionerError as error:
        return error.errors


what = sys.argv[1]
print(
    json.dumps(
        {
            "node": lambda: life("one"),
            "queued resource": lambda: life("two", gcp_queued_resource=True),
            "refused": lambda: refused(acceleratorType="v9-8"),
            "no capacity": refused,
        }[what]()
    )
)
