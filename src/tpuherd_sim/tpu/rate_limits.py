"""The API's rate limits: creates per minute, and queued resources per zone."""

from tpuherd_sim.model.http_types import ApiError
from tpuherd_sim.model.world import World
from tpuherd_sim.tpu import errors
from tpuherd_sim.tpu.quota_and_stock import CREATE_RATE, CREATES_PER_MINUTE, REQUESTS, WHOLE


def check_requests(world: World, zone: str) -> None:
    """Refuse a queued resource if its zone has too many."""
    limit = world.books.quotas.get(f"{zone}/{REQUESTS}")
    if limit is None:
        return
    if sum(request.zone == zone for request in world.requests.values()) >= limit:
        text = f"Quota limit '{REQUESTS}' has been exceeded. Limit: {limit} in zone {zone}."
        metric = "tpu.googleapis.com/queued_resources"
        raise errors.quota_error(world, text, limit_id=REQUESTS, metric=metric, place=zone)


def check_rate(world: World, now: float) -> None:
    """Refuse a node after too many creates in the last minute. Wall time, because it is a rate."""
    books = world.books
    limit = books.quotas.get(f"{WHOLE}/{CREATE_RATE}", CREATES_PER_MINUTE)
    passed = max(now - books.tokens_at, 0.0)
    books.tokens = min(books.tokens + passed * limit / 60.0, float(limit))
    books.tokens_at = now
    if books.tokens < 1.0:
        raise rate_exceeded_error(world)
    books.tokens -= 1.0


def rate_exceeded_error(world: World) -> ApiError:
    name = "Maximum number of CreateNode requests per minute"
    text = (
        f"Quota exceeded for quota metric '{name}' and limit '{name}' of service "
        f"'tpu.googleapis.com' for consumer 'project_number:{world.settings.project_number}'."
    )
    metric = "tpu.googleapis.com/create_requests"
    return errors.quota_error(world, text, limit_id=CREATE_RATE, metric=metric, place="global")
