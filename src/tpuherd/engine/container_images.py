"""Brings the image of a job's container to the hosts of a gang, and says how commands start in it.

`provide_image` asks every host what it has (`image.look`); those that lack the image pull it at the
same time, as a setup step. All must have the same one in the end. The host's side is
tpuherd_host/agent/containers.
"""

import json
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Protocol

from msgspec import Struct

from tpuherd.engine.agent_call import CALL_S, call_agent
from tpuherd.engine.host_failures import HostFailure, own_lines
from tpuherd.engine.host_messages import Short, Text, parse_message
from tpuherd.engine.host_watcher import HostWatcher, WatcherDeps
from tpuherd.model.node_spec import LaunchSpec
from tpuherd_host.agent.environments.installer_output import UNFIT

LOOK_S = 2 * CALL_S + 120.0  #: engines may be asked twice


class ImageLook(Struct, frozen=True, kw_only=True):
    """What a host answers to `image.look`."""

    engine: Short
    trouble: Text = ""
    id: Short = ""


class ImageCalls(Protocol):
    """How the hosts of a gang are reached: a GangClient."""

    means: WatcherDeps

    async def run_on_all(
        self,
        watches: Collection[HostWatcher],
        work: Callable[[HostWatcher], Coroutine[Any, Any, Any]],
    ) -> list[Any]: ...

    async def set_up_host(
        self, watch: HostWatcher, name: str, what: Mapping[str, Any]
    ) -> HostFailure | None: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class PulledImage:
    """A host of the gang, and which image it has."""

    watch: HostWatcher
    id: str


def container_command(order: LaunchSpec, env: Mapping[str, Any]) -> list[str]:
    """The words that run the command in a container; values of variables are not among them."""
    plan = {
        "image": order.image,
        "names": sorted(env),
        "mounts": list(order.mounts),
        "shell": not order.argv,
    }
    words = order.argv or (order.shell,)
    return ["$PYTHON", "$AGENT", "container", json.dumps(plan), *words]


async def provide_image(
    gang: ImageCalls, watches: Sequence[HostWatcher], image: str
) -> list[HostFailure]:
    """Have all hosts pull it that lack it; return the failures by host."""
    found = await look_on_hosts(gang, watches, image)
    failures = [one for one in found if isinstance(one, HostFailure)]
    lacking = [one.watch for one in found if isinstance(one, PulledImage) and not one.id]
    if failures or not (lacking or have_different(found)):
        return failures
    began = gang.means.clock.now()
    failures = await pull_on_hosts(gang, lacking, image)
    if failures:
        return failures
    found = await look_on_hosts(gang, watches, image)
    failures = [one for one in found if isinstance(one, HostFailure)]
    images = [one for one in found if isinstance(one, PulledImage)]
    if lacking and images:
        seconds = round(gang.means.clock.now() - began, 1)
        report_pull(gang, lacking, image, images[0].id, seconds)
    return failures or find_differences(images, image)


async def look_on_hosts(
    gang: ImageCalls, watches: Sequence[HostWatcher], image: str
) -> list[PulledImage | HostFailure]:
    async def look(watch: HostWatcher) -> PulledImage | HostFailure:
        answer = await call_agent(watch, "image.look", {"image": image}, LOOK_S)
        found = parse_message(ImageLook, answer)
        if found.engine:
            return PulledImage(watch=watch, id=found.id)
        sentence = found.trouble or "this host has neither docker nor podman: install one in setup"
        return HostFailure(host=watch.status.name, sentence=sentence, unfit=not found.trouble)

    return await gang.run_on_all(watches, look)


async def pull_on_hosts(
    gang: ImageCalls, watches: Sequence[HostWatcher], image: str
) -> list[HostFailure]:
    name = f"image-{sha256(image.encode()).hexdigest()[:6]}"
    step = {"name": f"image {image}", "argv": ["$PYTHON", "$AGENT", "image", image]}

    async def pull(watch: HostWatcher) -> HostFailure | None:
        arguments = {"steps": [step], "secrets": {}}
        return await gang.set_up_host(watch, f"{watch.host.node}-{name}", arguments)

    found = await gang.run_on_all(watches, pull)
    return [explain_pull(one) for one in found if isinstance(one, HostFailure)]


def explain_pull(failure: HostFailure) -> HostFailure:
    """The last line of the pull is its sentence."""
    lines = own_lines(failure.tail)
    if failure.exit is None or not lines:
        return failure
    return replace(failure, sentence=lines[-1], tail=(), unfit=failure.exit == UNFIT)


def have_different(found: Sequence[PulledImage | HostFailure]) -> bool:
    return len({one.id for one in found if isinstance(one, PulledImage)}) > 1


def find_differences(images: Sequence[PulledImage], image: str) -> list[HostFailure]:
    """Hosts of a gang that pulled a name at different times may have different images of it."""
    if not have_different(images):
        return []
    other = next(one for one in images if one.id != images[0].id)
    sentence = (
        f"its image of {image} is not that of worker {images[0].watch.host.worker}:"
        " name it by its digest, as NAME@sha256:…"
    )
    return [HostFailure(host=other.watch.status.name, sentence=sentence, unfit=True)]


def report_pull(
    gang: ImageCalls, watches: Sequence[HostWatcher], image: str, id: str, seconds: float
) -> None:
    many = f"{len(watches)} hosts" if len(watches) > 1 else "1 host"
    first = watches[0]
    gang.means.tell("image.pulled", first.slot, {
        "bid": first.host.node, "hosts": [one.status.name for one in watches], "image": image,
        "id": id, "seconds": seconds, "why": f"{many} pulled {image} in {seconds:.1f} s",
    })  # fmt: skip
