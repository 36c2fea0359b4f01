"""The job's field that says which cluster is started around its command."""

from tpuherd.jobfile.value_types import choice_type

RAY = "ray"
CLUSTER = choice_type(RAY)
CLUSTER_MEANS = (
    "Start a Ray cluster over all hosts of the node first, and run the command on worker 0 only:"
    " docs/howto/ray.md."
)
