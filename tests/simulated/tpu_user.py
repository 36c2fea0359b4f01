"""A user of the Cloud TPU API in this process: the calls that tests of the simulator make."""

from dataclasses import dataclass, field
from typing import Any

from tests.simulated.in_process_world import START, Asker
from tpuherd_sim.handle import new_world
from tpuherd_sim.model.records import Node, QueuedResource
from tpuherd_sim.model.world import World
from tpuherd_sim.model.world_parts import Settings

ZONE = "us-central2-b"
PARENT = f"projects/demo/locations/{ZONE}"
PLACE = f"/v2/{PARENT}"
ALPHA = f"/v2alpha1/{PARENT}"
EVERYWHERE = "/v2/projects/demo/locations/-"
LONG = 3600.0  #: after this time everything in the cloud's lifecycle is done
ONE_HOST = {"acceleratorType": "v4-8", "runtimeVersion": "tpu-ubuntu2204-base"}
POD = {"acceleratorType": "v4-16", "runtimeVersion": "tpu-ubuntu2204-base"}
SPOT: dict[str, Any] = {"schedulingConfig": {"spot": True}}
QueueSpec = dict[str, Any]


def fresh(**settings: Any) -> World:
    """A world in which nothing has happened."""
    return new_world(Settings(**{"seed": 1, "created": START, **settings}))


@dataclass(kw_only=True)
class User(Asker):
    """Somebody who creates TPUs."""

    world: World = field(default_factory=fresh)

    def create(self, name: str = "n", body: dict[str, Any] | None = None, **more: Any) -> str:
        """Ask for a node; the path of the operation."""
        said = self.post(f"{PLACE}/nodes?nodeId={name}", {**(body or ONE_HOST), **more})
        return f"/v2/{said['name']}"

    def ready(self, name: str = "n", body: dict[str, Any] | None = None, **more: Any) -> Any:
        """A node that is READY."""
        self.create(name, body, **more)
        self.wait(LONG)
        node = self.node(name)
        assert node["state"] == "READY", node
        return node

    def node(self, name: str = "n") -> Any:
        """A node as v2 shows it."""
        return self.get(f"{PLACE}/nodes/{name}")

    def record(self, name: str = "n") -> Node:
        """The same as the model keeps it."""
        return self.world.nodes[f"{ZONE}/{name}"]

    def verb(self, verb: str, name: str = "n", body: object = None) -> str:
        """A custom method of a node of v2alpha1; the path of its operation."""
        return f"/v2/{self.post(f'{ALPHA}/nodes/{name}:{verb}', body)['name']}"

    def delete(self, name: str = "n") -> str:
        """Delete a node; the path of the operation."""
        answer = self.ask("DELETE", f"{PLACE}/nodes/{name}")
        assert answer.status == 200, answer
        return f"/v2/{answer.said['name']}"

    def queue(
        self,
        name: str = "q",
        nodes: int = 1,
        node: dict[str, Any] | None = None,
        **more: Any,
    ) -> str:
        """Ask for nodes by a queued resource; the path of its operation."""
        spec: QueueSpec = {"parent": PARENT, "node": node or ONE_HOST}
        if nodes == 1:
            spec["nodeId"] = f"{name}-n"
        else:
            spec["multiNodeParams"] = {"nodeCount": nodes, "nodeIdPrefix": f"{name}-n"}
        body = {"tpu": {"nodeSpec": [spec]}, **(more or {"spot": {}})}
        said = self.post(f"{ALPHA}/queuedResources?queuedResourceId={name}", body)
        return f"/v2/{said['name']}"

    def active(self, name: str = "q", nodes: int = 1, **more: Any) -> None:
        """A queued resource that has its nodes."""
        self.queue(name, nodes, **more)
        self.wait(LONG)
        assert self.queued(name)["state"]["state"] == "ACTIVE"

    def queued(self, name: str = "q") -> Any:
        """A queued resource as v2 shows it."""
        return self.get(f"{PLACE}/queuedResources/{name}")

    def request(self, name: str = "q") -> QueuedResource:
        """The same as the model keeps it."""
        return self.world.requests[f"{ZONE}/{name}"]

    def weather(self, kind: str, **said: Any) -> None:
        """Let something happen."""
        self.post(f"/sim/v1/weather/{kind}", said)

    def until(self, state: str, name: str = "q", step_s: float = 0.25) -> None:
        """Let time pass until a queued resource is in a state."""
        for _ in range(int(LONG / step_s)):
            if self.request(name).state == state:
                return
            self.wait(step_s)
        raise AssertionError(f"{name} is {self.request(name).state}, not {state}")
