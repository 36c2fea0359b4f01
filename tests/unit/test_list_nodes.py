"""Each TPU of the project is a row, whatever made it."""

import pytest

from tpuherd.cli.ls import node_row
from tpuherd.cloud.parse import Node, WorkerAddress

ZONE = "us-central2-b"


@pytest.mark.parametrize(
    ("name", "job", "owner"),
    [("gpt-0-g1-7kq", "gpt", ""), ("gpt-0-g1-zzz", "", "zzz"), ("gcloud-made", "", "")],
)
def test_whose_a_node_is(name: str, job: str, owner: str) -> None:
    node = Node(
        name=name, zone=ZONE, state="CREATING", health="", type="v4-8", incarnation="i",
        created=5.0, workers=(), tier="spot",
    )  # fmt: skip
    row = node_row(node, {"7kq"})
    assert (row.job, row.owner, row.address) == (job, owner, "")
    assert row.per_hour is not None


def test_a_type_that_herd_does_not_know_is_listed() -> None:
    node = Node(
        name="new", zone=ZONE, state="NEW_STATE", health="", type="v99-8", incarnation="i",
        created=5.0, workers=(WorkerAddress(internal_ip="10.0.0.2", external_ip=""),),
    )  # fmt: skip
    row = node_row(node, ())
    assert (row.type, row.address, row.per_hour) == ("v99-8", "10.0.0.2", None)
