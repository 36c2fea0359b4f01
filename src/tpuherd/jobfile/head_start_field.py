"""The job's field that says what is done before its turn."""

from tpuherd.jobfile.value_types import choice_type, list_type

HEAD_START_CHOICES = ("boot", "checkpoint")
HEAD_START = list_type(choice_type(*HEAD_START_CHOICES), none=True)
HEAD_START_MEANS = (
    "What herd does before its turn, so that a lost node costs less time: `boot` sets hosts up"
    " while the cloud still creates others of the node, `checkpoint` copies the newest"
    " checkpoint and compiled programs from a bucket to the hosts' disks meanwhile. `[]`: nothing."
    " docs/howto/training.md."
)
