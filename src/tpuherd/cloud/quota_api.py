"""Reads the quotas of Cloud TPU from Service Usage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tpuherd.cloud.error_replies import MalformedAnswer
from tpuherd.cloud.parse import parse_shape
from tpuherd.lazy_modules import import_lazily

if TYPE_CHECKING:
    from tpuherd.cloud import reply_shapes
    from tpuherd.cloud.rest import RestClient
else:
    reply_shapes = import_lazily("tpuherd.cloud.reply_shapes")

PAGES_MAX = 50
UNLIMITED = -1


@dataclass(frozen=True, kw_only=True, slots=True)
class QuotaLimit:
    """One limit in one place."""

    id: str  #: TPUV4sPreemptiblePodPerProjectPerZoneForTPUAPI
    place: str  #: a zone or region; "": wherever no other limit is stated
    allowed: int | None  #: None: not limited


async def list_quota_limits(rest: RestClient, project: str) -> list[QuotaLimit]:
    """Return every limit, from all pages."""
    found: list[QuotaLimit] = []
    token, seen = "", set[str]()
    path = f"projects/{project}/services/tpu.googleapis.com/consumerQuotaMetrics"
    for _ in range(PAGES_MAX):
        content = await rest.read_usage(path, pageToken=token, view="FULL")
        page = parse_shape(content, reply_shapes.QuotaMetricsReply)
        for metric in page.metrics:
            found += metric_limits(metric)
        token = page.next_page_token
        if not token:
            return found
        if token in seen:
            break
        seen.add(token)
    raise MalformedAnswer("the cloud's list of quotas never ends")


def bounded_limit(limit: int) -> int | None:
    return None if limit == UNLIMITED else limit


def metric_limits(metric: reply_shapes.QuotaMetric) -> list[QuotaLimit]:
    """Return the limits of one metric. Its name is the quota's id."""
    return [
        QuotaLimit(
            id=metric.display_name,
            place=bucket.dimensions.get("zone") or bucket.dimensions.get("region") or "",
            allowed=bounded_limit(int(bucket.effective_limit)),
        )
        for limit in metric.consumer_quota_limits
        for bucket in limit.quota_buckets
    ]
