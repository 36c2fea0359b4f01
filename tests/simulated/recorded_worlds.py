"""Transcripts of worlds in this process, and what `herd sim compare` says about them."""

import asyncio
import json
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.simulated.cloud_user import ZONE, User, live
from tests.simulated.in_process_world import START
from tpuherd.cloud.record_traffic import TrafficRecorder
from tpuherd.errors import HerdError
from tpuherd.settings.recordings import start_recording
from tpuherd_sim.compare.compare_transcript import Comparison, compare_file

Line = dict[str, Any]
PLACE = f"projects/demo/locations/{ZONE}"
EVERYWHERE = "projects/demo/locations/-"
PAGE = 3
NODE = {"acceleratorType": "v4-8", "runtimeVersion": "tpu-ubuntu2204-base"}


def record_world(work: Callable[[User], Awaitable[None]]) -> list[Line]:
    """Let a recorded user do something; the lines of the transcript."""
    with tempfile.TemporaryDirectory() as folder:
        flag, file = Path(folder, "flag.json"), Path(folder, "t.jsonl")
        start_recording(flag, file, cloud={"cloud": "world"}, now=START, seconds=1e9)

        async def recorded(user: User) -> None:
            user.cloud.rest.recorder = TrafficRecorder(flag, user.clock)
            await work(user)

        live(recorded)
        return [json.loads(line) for line in file.read_text().splitlines() if line]


def compare_lines(lines: list[Line]) -> Comparison:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "t.jsonl")
        file.write_text("".join(f"\n{json.dumps(line)}" for line in lines))
        return compare_file(file)


def sentences(lines: list[Line]) -> list[str]:
    """Every difference, with its kind."""
    return [f"{one.kind}: {one.sentence}" for one in compare_lines(lines).differences]


async def ask(user: User, method: str, path: str, body: Any = None, **query: Any) -> Any:
    """A call that may fail."""
    try:
        return await user.cloud.rest.call_tpu(method, path, body, **query)
    except HerdError as error:
        return error


async def look(user: User, seconds: float, step_s: float = 10.0) -> None:
    """Poll as the engine does, for some time."""
    end = user.clock.now() + seconds
    while user.clock.now() < end:
        for kind in ("nodes", "queuedResources", "operations"):
            token = ""
            while True:
                page = await ask(
                    user, "GET", f"{EVERYWHERE}/{kind}", pageSize=PAGE, pageToken=token
                )
                token = page.get("nextPageToken", "") if isinstance(page, dict) else ""
                if not token:
                    break
        await asyncio.sleep(step_s)


def queue_body(name: str, **more: Any) -> Any:
    spec = {"parent": PLACE, "nodeId": f"{name}-n", "node": NODE}
    return {"tpu": {"nodeSpec": [spec]}, **more}
