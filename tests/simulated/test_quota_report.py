"""What a project may have, and who uses it."""

import pytest

from tests.simulated.in_process_world import Asker
from tpuherd.catalogue import accelerators
from tpuherd.cloud.error_replies import MalformedAnswer
from tpuherd.cloud.parse import parse_shape
from tpuherd.cloud.quota_api import QuotaLimit, metric_limits
from tpuherd.cloud.reply_shapes import QuotaMetricsReply
from tpuherd.jobfile.grants import Grant
from tpuherd.jobfile.quota_ids import parse_quota_name
from tpuherd.jobs.quota_report import Holding, grant_row, quota_rows
from tpuherd.views.quota_table import EMPTY, quota_text
from tpuherd_sim.tpu.quota_and_stock import QUOTAS, quota_id, quota_ids, quota_place

V4 = "TPUV4sPreemptiblePodPerProjectPerZoneForTPUAPI"
HELD = [
    Holding(zone="us-central2-b", type="v4-32", tier="spot", job="gpt"),
    Holding(zone="us-central2-b", type="v4-8", tier="preemptible", job=""),
    Holding(zone="us-central2-b", type="v4-8", tier="on-demand", job="dev"),
    Holding(zone="europe-west4-a", type="v6e-8", tier="spot", job="gpt"),
]


@pytest.mark.parametrize("spot", [False, True])
def test_every_type_counts_in_the_quota_that_refuses_it(spot: bool) -> None:
    tier = "spot" if spot else "on-demand"
    for one in accelerators().values():
        if one.generation not in QUOTAS:
            continue
        wanted, amount = quota_id(one.type, spot)
        names = [name for id in quota_ids("*") if (name := parse_quota_name(id)) is not None]
        (name,) = [name for name in names if name.covers(one, tier)]
        assert (name.id, name.amount(one)) == (wanted, amount), one.type
        assert name.place("us-east5-a") == quota_place(wanted, "us-east5-a")
        assert not name.covers(one, "reserved")
    assert parse_quota_name("qps/create") is None


def test_limits_with_what_each_job_takes() -> None:
    limits = [
        QuotaLimit(id=V4, place="", allowed=0),
        QuotaLimit(id=V4, place="us-central2-b", allowed=64),
        QuotaLimit(id=V4, place="us-east1-c", allowed=0),
        QuotaLimit(id=V4.replace("Preemptible", ""), place="", allowed=None),
        QuotaLimit(id="TPUV6EPreemptiblePerProjectPerRegionForTPUAPI", place="", allowed=0),
        QuotaLimit(id="unknown", place="us-central2-b", allowed=5),
    ]
    rows = quota_rows(limits, HELD)
    assert [(one.place, one.tier, one.unit, one.allowed, one.used) for one in rows] == [
        ("europe-west4", "spot", "chips", 0, 8),
        ("us-central2-b", "on-demand", "cores", None, 8),
        ("us-central2-b", "spot", "cores", 64, 40),
        ("elsewhere", "on-demand", "cores", None, 0),
    ]
    assert rows[2].jobs == {"": 8, "gpt": 32}


def test_limits_are_read_as_service_usage_serves_them() -> None:
    world = Asker()
    world.world.books.quotas[f"us-central2-b/{V4}"] = 64
    path = "/v1beta1/projects/demo/services/tpu.googleapis.com/consumerQuotaMetrics"
    page = parse_shape(world.get(path), QuotaMetricsReply)
    limits = [limit for metric in page.metrics for limit in metric_limits(metric)]
    assert QuotaLimit(id=V4, place="us-central2-b", allowed=64) in limits
    assert QuotaLimit(id=V4, place="", allowed=None) in limits
    with pytest.raises(MalformedAnswer):
        bucket = {"effectiveLimit": "many"}
        parse_shape(
            {"metrics": [{"consumerQuotaLimits": [{"quotaBuckets": [bucket]}]}]}, QuotaMetricsReply
        )


def test_grants_count_chips_and_both_cheap_tiers() -> None:
    grant = Grant(zone="us-central2-b", type="v4", tier="spot", chips=16, free=True)
    row = grant_row(grant, HELD)
    assert (row.allowed, row.used, row.jobs) == (16, 20, {"": 4, "gpt": 16})
    text = quota_text({"limits": [{**{name: getattr(row, name) for name in row.__slots__}}]})
    assert text.splitlines()[1].split()[:6] == ["us-central2-b", "v4", "spot", "16", "20", "0"]
    assert "not herd 4, gpt 16" in text
    assert quota_text({"limits": []}) == EMPTY
