"""Google's own libraries as in any program: nothing here knows that the cloud is simulated."""

import json
import sys

import google.auth
from google.cloud import storage, tpu_v2
from googleapiclient import discovery


def main(bucket: str) -> None:
    found = {
        "credentials": type(google.auth.default()[0]).__name__,
        "project": google.auth.default()[1],
    }
    parent = f"projects/{found['project']}/locations/us-central2-b"
    tpu = tpu_v2.TpuClient(transport="rest")
    node = tpu_v2.Node(accelerator_type="v4-8", runtime_version="tpu-ubuntu2204-base")
    made = tpu.create_node(parent=parent, node_id="as-is", node=node).result(timeout=60)
    found["state"] = made.state.name
    for version, static in (("v2", True), ("v2alpha1", True), ("v2", False)):
        api = discovery.build("tpu", version, static_discovery=static, cache_discovery=False)
        nodes = api.projects().locations().nodes().list(parent=parent).execute()["nodes"]
        found[f"{version} {'static' if static else 'dynamic'}"] = [n["name"] for n in nodes]
    compute = discovery.build("compute", "v1")
    rules = compute.firewalls().list(project=found["project"]).execute()["items"]
    found["firewall"] = sorted(rule["name"] for rule in rules)
    tpu.delete_node(name=made.name).result(timeout=60)
    storage.Client().create_bucket(bucket, location="us-central2")
    found["bucket"] = storage.Client().get_bucket(bucket).location
    print(json.dumps(found))


main(sys.argv[1])
