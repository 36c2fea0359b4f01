"""The client of commands: reads are retried for a moment, writes are sent once."""

from collections.abc import Callable

import httpx2
import pytest

from tests.simulated.cloud_user import ZONE, User, live
from tpuherd.cloud.nodes_api import Cloud
from tpuherd.cloud.retrying_rest import PAUSES_S, RetryingRest
from tpuherd.errors import HerdError, NotListening, NotReached, OperationFailed


def patient(user: User) -> Cloud:
    """The same cloud as a command asks it."""
    rest = user.cloud.rest
    return Cloud(RetryingRest(rest.client, rest.urls, rest.bearer, user.clock), user.cloud.project)


@pytest.mark.parametrize("many", range(len(PAUSES_S) + 2))
@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_a_read_is_retried_for_seconds(status: int, many: int) -> None:
    async def work(user: User) -> tuple[float, str]:
        await user.weather("http-error", http=status, times=many) if many else None
        begun = user.clock.now()
        try:
            await patient(user).list_nodes()
            said = ""
        except OperationFailed as error:
            said = error.sentence
        return user.clock.now() - begun, said

    seconds, said = live(work)
    assert bool(said) == (many > len(PAUSES_S))
    assert not said or said.startswith("the cloud has a temporary problem: ")
    assert seconds <= sum(PAUSES_S) + 1.0


def test_a_cut_connection_is_reopened() -> None:
    async def work(user: User) -> int:
        await user.weather("lost-response", method="nodes.list", times=1)
        assert (await patient(user).list_nodes()).nodes == ()
        return len(user.wire.asked)

    assert live(work) == 2


@pytest.mark.parametrize(
    ("trouble", "kind"),
    [(httpx2.ConnectError, NotListening), (httpx2.ReadTimeout, NotReached)],
    ids=["nobody listens", "a whole time-out"],
)
def test_permanent_errors_are_reported_at_once(
    trouble: type[httpx2.TransportError], kind: type[HerdError]
) -> None:
    def strike(_: httpx2.Request) -> None:
        raise trouble("no")

    async def work(user: User) -> int:
        user.wire.between = strike
        with pytest.raises(kind):
            await patient(user).list_nodes()
        return len(user.wire.asked)

    assert live(work) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda cloud: cloud.rest.call_tpu("DELETE", f"projects/demo/locations/{ZONE}/nodes/gpt-0"),
        lambda cloud: cloud.rest.call_compute(
            "POST", "projects/demo/setCommonInstanceMetadata", {"items": []}
        ),
    ],
    ids=["delete", "metadata"],
)
def test_writes_are_sent_once(change: Callable[[Cloud], object]) -> None:
    async def work(user: User) -> int:
        await user.weather("http-error", http=503, times=1)
        with pytest.raises(OperationFailed):
            await change(patient(user))  # type: ignore[misc]
        return len(user.wire.asked)

    assert live(work) == 1


def test_an_engine_tries_once() -> None:
    async def work(user: User) -> int:
        await user.weather("http-error", http=503, times=1)
        with pytest.raises(OperationFailed):
            await user.cloud.list_nodes()
        return len(user.wire.asked)

    assert live(work) == 1
