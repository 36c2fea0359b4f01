"""What Ray makes of the machine it was started on."""

import json

import ray

ray.init(address="auto", logging_level="ERROR")
print(json.dumps(ray.cluster_resources()))
