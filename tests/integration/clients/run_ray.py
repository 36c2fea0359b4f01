"""What Ray detects on the machine where it was started."""

import json

import ray

ray.init(address="auto", logging_level="ERROR")
print(json.dumps(ray.cluster_resources()))
