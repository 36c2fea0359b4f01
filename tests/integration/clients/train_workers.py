"""A training whose workers load this file again, as those of a data loader: HOW [trains | starts].

Prints what the training process and each of its workers know of the pod.
"""

import json
import multiprocessing
import os
import sys

import jax
import jax.numpy as jnp

from tpuherd_host import train
from tpuherd_host.train.loader import process_number

pod = train.init()
run = train.Run(seed=3)
sum_over_hosts = jax.pmap(lambda x: jax.lax.psum(x, "chips"), axis_name="chips")


def describe(_: int) -> list[object]:
    """What a worker knows; it may compute a little, but not on the pod's chips."""
    return [os.getpid(), *process_number(), pod.count, pod.is_main, int(jnp.arange(3).sum())]


def main() -> None:
    total = 0
    with multiprocessing.get_context(sys.argv[1]).Pool(2) as pool:
        told = pool.map(describe, range(6), chunksize=1)
        for _ in run.steps(4):
            whole = sum_over_hosts(jnp.ones(jax.local_device_count()))
            total += int(whole.addressable_data(0)[0])
    said = {"start": run.start, "me": [os.getpid(), pod.index, pod.count], "is_main": pod.is_main}
    print(json.dumps({**said, "workers": told, "total": total}))


if __name__ == "__main__" and len(sys.argv) == 2:
    main()
elif sys.argv[2:] == ["trains"]:  # in the worker, too
    child = multiprocessing.get_context(sys.argv[1]).Process(target=describe, args=(0,))
    if __name__ != "__main__":
        list(run.steps(4))
elif sys.argv[2:] == ["starts"]:
    child = multiprocessing.get_context(sys.argv[1]).Process(target=describe, args=(0,))
if sys.argv[2:]:
    child.start()
    child.join()
    sys.exit(child.exitcode)
