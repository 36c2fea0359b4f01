"""The first lines of a training program without any arguments: its own rank, and its peers."""

import json
import socket

import jax
import numpy as np

jax.distributed.initialize()
from jax.experimental import multihost_utils  # noqa: E402

name = np.frombuffer(socket.gethostname().encode().ljust(64), dtype=np.uint8)
names = multihost_utils.process_allgather(name)
print(
    json.dumps(
        {
            "process": jax.process_index(),
            "processes": jax.process_count(),
            "devices": jax.device_count(),
            "platform": jax.devices()[0].platform,
            "met": [bytes(row).decode().strip() for row in np.asarray(names)],
        }
    )
)
