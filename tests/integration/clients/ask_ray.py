"""Places a function on each host of a slice by the chips' resources, as launchers do.

It prints what they return, and stays until it is told to stop; then it writes `saved`.
"""

import json
import signal
import socket
import sys
import time

import ray
import ray.util.accelerators
from ray._private.accelerators import TPUAcceleratorManager

KIND = f"TPU-{sys.argv[1]}-head"


@ray.remote(num_cpus=0)
def name_host():
    return socket.gethostname()


@ray.remote(resources={KIND: 1}, num_cpus=0)
def run_on_slice():
    tpu = ray.util.accelerators.tpu
    name, hosts = tpu.get_current_pod_name(), tpu.get_current_pod_worker_count()
    chips = TPUAcceleratorManager.get_current_node_num_accelerators()
    each = name_host.options(resources={name: 1, "TPU": chips})
    return name, hosts, chips, sorted(ray.get([each.remote() for _ in range(hosts)]))


def save(number, frame):
    with open("saved", "w") as file:
        file.write("saved")
    sys.exit(0)


ray.init(logging_level="ERROR", log_to_driver=False)
signal.signal(signal.SIGTERM, save)  # Ray sets its own at its start
labels = [node["Labels"] for node in ray.nodes()]
found = {
    "resources": ray.cluster_resources(),
    "labels": labels,
    "slice": ray.get(run_on_slice.remote()),
}
print(json.dumps(found), flush=True)
while True:
    time.sleep(1)
