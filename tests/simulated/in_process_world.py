"""A world in this process and the shortest way to call it."""

import json
from dataclasses import dataclass, field
from typing import Any

from tpuherd_sim.handle import advance_world, handle_request, new_world
from tpuherd_sim.model.http_types import Request, Response
from tpuherd_sim.model.world import World
from tpuherd_sim.model.world_parts import Settings

START = 1_800_000_000.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """A status with its body."""

    status: int
    said: Any
    response: Response

    @property
    def message(self) -> str:
        """The sentence of a refusal."""
        return str(self.said["error"]["message"])

    @property
    def reason(self) -> str:
        """Why, in the words of Compute and Storage."""
        return str(self.said["error"]["errors"][0]["reason"])


@dataclass(kw_only=True)
class Asker:
    """Somebody with a world and a watch."""

    world: World = field(
        default_factory=lambda: new_world(Settings(seed=1, created=START, time_scale=1.0))
    )
    now: float = START

    def ask(
        self,
        method: str,
        target: str,
        body: object = None,
        *,
        raw: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        """One request; `target` is the path with its query."""
        path, _, query = target.partition("?")
        sent = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        request = Request(method=method, path=path, query=query, headers=headers or {}, body=sent)
        response = handle_request(self.world, request, self.now)
        page = response.body.startswith((b"<", b"--"))  # no JSON: a page, or a batch
        said = response.body.decode() if page else json.loads(response.body or b"null")
        return Answer(status=response.status, said=said, response=response)

    def get(self, target: str) -> Any:
        """What a GET that must succeed says."""
        answer = self.ask("GET", target)
        assert answer.status == 200, answer
        return answer.said

    def post(self, target: str, body: object = None) -> Any:
        """What a POST that must succeed says."""
        answer = self.ask("POST", target, body if body is not None else {})
        assert answer.status == 200, answer
        return answer.said

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds
        advance_world(self.world, self.now)
