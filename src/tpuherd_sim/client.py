"""Calls a world that runs in another process; standard library only."""

import http.client
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tpuherd_sim.state_dir import WorldError, WorldInfo, read_world_info, running_world_pid

Json = dict[str, Any]
PATIENCE_S = 30.0


class WorldNotRunning(WorldError):
    pass


class RequestRejected(WorldError):
    """The world refused the request."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


def find_running_world(folder: Path) -> WorldInfo:
    """Return the address of the world in this folder; raise WorldNotRunning if it is
    not running.
    """
    facts = read_world_info(folder)
    if facts is None:
        raise WorldNotRunning(
            f"No world in {folder}; create one with `herd sim start --state-dir {folder}`"
        )
    if running_world_pid(folder) is None:
        raise WorldNotRunning(
            f"The world in {folder} is not running; "
            f"resume it with `herd sim start --state-dir {folder}`"
        )
    return facts


def send_request(
    facts: WorldInfo, method: str, *path: str, query: str = "", body: Json | None = None
) -> Json:
    """Send one request below /sim/v1 and return its answer."""
    where = "/".join(["/sim/v1", *(quote(part, safe=":*") for part in path)])
    connection = http.client.HTTPConnection("127.0.0.1", facts.port, timeout=PATIENCE_S)
    try:
        content = None if body is None else json.dumps(body)
        headers = {"Content-Type": "application/json"} if content else {}
        connection.request(method, f"{where}?{query}" if query else where, content, headers)
        response = connection.getresponse()
        answer: Json = json.loads(response.read() or b"{}")
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise WorldNotRunning(f"The world at {facts.url} does not respond ({error})") from error
    finally:
        connection.close()
    if response.status >= 400:
        raise RequestRejected(response.status, str(answer.get("error", {}).get("message", answer)))
    return answer
