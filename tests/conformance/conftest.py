"""One world without hosts for all tests of the API, with Google's libraries pointed at it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest

from tests.conformance.host_backends import KINDS, HostBackend, host_backend
from tests.conformance.world import World, borrow, started

Build = Callable[..., Any]
#: Where each of Google's services begins on a world.
PATHS = {
    "tpu": "/",
    "compute": "/compute/v1/",
    "storage": "/storage/v1/",
    "serviceusage": "/",
    "iam": "/",
    "cloudresourcemanager": "/",
    "oslogin": "/",
}


@pytest.fixture(scope="session")
def world() -> Iterator[World]:
    with started("--hosts", "none", "--time-scale", "600") as world:
        yield world


@pytest.fixture(autouse=True)
def tidy(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test of the world finds an empty one and leaves one."""
    world = request.getfixturevalue("world") if "world" in request.fixturenames else None
    yield
    if world is not None:
        world.clear()


@pytest.fixture(scope="module", params=KINDS)
def backend(request: pytest.FixtureRequest) -> Iterator[HostBackend]:
    with host_backend(request.param) as place:
        yield place


@pytest.fixture(scope="session")
def nobody() -> Any:
    """Arbitrary credentials: a world accepts all of its owner's requests."""
    borrow("light")
    return pytest.importorskip("google.auth.credentials").AnonymousCredentials()


@pytest.fixture(scope="session")
def tpu(world: World, nobody: Any) -> Iterator[Any]:
    """google-cloud-tpu's client, API v2 over REST."""
    v2 = pytest.importorskip("google.cloud.tpu_v2")
    place = {"api_endpoint": world.url}
    with v2.TpuClient(credentials=nobody, transport="rest", client_options=place) as client:
        yield client


@pytest.fixture(scope="session")
def errors(nobody: Any) -> Any:
    """The exceptions of Google's libraries."""
    return pytest.importorskip("google.api_core.exceptions")


@pytest.fixture(scope="session")
def build(world: World, nobody: Any) -> Iterator[Build]:
    """google-api-python-client's services."""
    discovery = pytest.importorskip("googleapiclient.discovery")
    with ExitStack() as stack:

        def build(version: str, api: str = "tpu", **more: Any) -> Any:
            place = {"api_endpoint": world.url + PATHS[api]}
            place = {} if "discoveryServiceUrl" in more else place
            more = {"credentials": nobody, "client_options": place} | more
            return stack.enter_context(closing(discovery.build(api, version, **more)))

        yield build


@pytest.fixture(scope="session")
def storage(world: World, nobody: Any) -> Iterator[Any]:
    """google-cloud-storage's client."""
    place = {"api_endpoint": world.url}
    library = pytest.importorskip("google.cloud.storage")
    client = library.Client(project="demo", credentials=nobody, client_options=place)
    with closing(client):
        yield client
