"""Adds numbers over all chips of all hosts, checks the sum, and measures how long it takes.

`herd check` runs it on all hosts of a node at once, with the variables of a gang. It prints one
line of JSON after MARK, and ends by itself after LIMIT_S whatever happens.
"""

import json
import os
import signal
import sys
import time
from importlib import import_module
from typing import Any, Dict

MARK = "herd-check: "
INIT_S, LIMIT_S = 60, 150
ROUNDS = 5
FLOATS = {"cpu": 1 << 18}  #: numbers for each chip; few where CPUs stand in for chips
FLOATS_TPU = 1 << 24


def measure_sum(jax: Any) -> Dict[str, Any]:
    """Sum an array whose parts are on all chips; the part of chip N holds N + 1 everywhere."""
    numpy = import_module("numpy")
    sharding = import_module("jax.sharding")
    devices = jax.devices()
    many = FLOATS.get(devices[0].platform, FLOATS_TPU)
    mesh = sharding.Mesh(numpy.array(devices), ("chips",))
    spread = sharding.NamedSharding(mesh, sharding.PartitionSpec("chips"))
    everywhere = sharding.NamedSharding(mesh, sharding.PartitionSpec())

    def fill(index: Any) -> Any:
        return numpy.full((1, many), (index[0].start or 0) + 1, numpy.float32)

    parts = jax.make_array_from_callback((len(devices), many), spread, fill)
    add = jax.jit(lambda every: every.sum(axis=0), out_shardings=everywhere)
    times = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        total = add(parts).block_until_ready()
        times.append(time.perf_counter() - begun)
    wanted = len(devices) * (len(devices) + 1) / 2
    own = [numpy.asarray(shard.data) for shard in total.addressable_shards]
    return {
        "devices": len(devices),
        "local": jax.local_device_count(),
        "platform": devices[0].platform,
        "kind": str(getattr(devices[0], "device_kind", "")),
        "right": all(bool((one == wanted).all()) for one in own),
        "bytes": many * 4,
        "seconds": min(times[1:]),  # the first one compiles
    }


def main() -> int:
    signal.alarm(LIMIT_S)
    jax = import_module("jax")
    workers = int(os.environ["HERD_WORKERS"])
    if workers > 1:
        jax.distributed.initialize(initialization_timeout=INIT_S)
    found = measure_sum(jax)
    print(f"\n{MARK}{json.dumps({**found, 'processes': jax.process_count()})}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
