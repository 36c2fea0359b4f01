"""A stand-in for the W&B service: as much of it as `wandb` and `wandb agent` need.

Which calls these are was found by listening to wandb 0.31. What it keeps can be read while it
serves. It refuses a key that it does not know, as the service does.
"""

import base64
import gzip
import json
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ENTITY, KEY = "lab", "5ca1ab1e" * 5
HISTORY, EVENTS = "wandb-history.jsonl", "wandb-events.jsonl"
SUMMARY = "wandb-summary.json"


@dataclass
class Tracked:
    """A run, as reported."""

    id: str
    project: str
    group: str = ""
    sweep: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    files: dict[str, dict[int, str]] = field(default_factory=dict)  #: lines by their number
    exits: list[int] = field(default_factory=list)

    def lines(self, file: str = HISTORY) -> list[str]:
        return [line for _, line in sorted(self.files.get(file, {}).items())]

    def curve(self, metric: str) -> list[tuple[int, float]]:
        """Its points, as reported and in that order."""
        rows = [json.loads(line) for line in self.lines()]
        return [(row["_step"], row[metric]) for row in rows if metric in row]


@dataclass
class Search:
    """A sweep: its settings, and what is still to be tried."""

    id: str
    config: str
    waiting: list[dict[str, Any]] = field(default_factory=list)
    given: dict[str, str] = field(default_factory=dict)  #: run: agent
    agents: list[str] = field(default_factory=list)
    hopeless: set[str] = field(default_factory=set)  #: runs that are to end early


@dataclass
class Service:
    """All that it knows."""

    url: str = ""
    runs: dict[str, Tracked] = field(default_factory=dict)
    searches: dict[str, Search] = field(default_factory=dict)
    strange: list[str] = field(default_factory=list)  #: asked, and not understood
    refused: int = 0  #: so often for want of a key
    lock: threading.Lock = field(default_factory=threading.Lock)

    def search(self, id: str, trials: list[dict[str, Any]], command: str = "") -> Search:
        """A sweep that tries these in order, then tells its agents to exit."""
        waiting = [{name: {"value": value} for name, value in one.items()} for one in trials]
        config = f"program: train.py\nmethod: grid\n{command}parameters: {{}}\n"
        self.searches[id] = Search(id=id, config=config, waiting=waiting)
        return self.searches[id]

    # What GraphQL asks, by the name of the answer's first field.

    def viewer(self, asked: Mapping[str, Any]) -> Any:
        return {"id": "1", "username": "u", "entity": ENTITY, "flags": "{}", "email": "u@x",
                "admin": False, "name": "u", "teams": {"edges": []}}  # fmt: skip

    def entity(self, asked: Mapping[str, Any]) -> Any:
        return {"id": "1", "name": ENTITY, "organization": None}

    def server_info(self, asked: Mapping[str, Any]) -> Any:
        return {"features": [], "cliVersionInfo": {"max_cli_version": "99"},
                "latestLocalVersionInfo": None}  # fmt: skip

    def model(self, asked: Mapping[str, Any]) -> Any:
        """What a client asks before it resumes a run."""
        run = self.runs.get(str(asked.get("name")))
        told = None
        if run is not None:
            tails = {
                "historyTail": json.dumps(run.lines(HISTORY)[-1:]),
                "eventsTail": json.dumps(run.lines(EVENTS)[-1:]),
            }
            own = (run.config.get("_wandb") or {}).get("value") or {}
            told = {
                **bucket(run), **tails, "summaryMetrics": (run.lines(SUMMARY) or ["{}"])[-1],
                "logLineCount": len(run.lines("output.log")), "eventsLineCount":
                len(run.lines(EVENTS)), "tags": [], "notes": None,
                # Without it a client takes the run for one that was only planned.
                "wandbConfig": json.dumps({"t": own["t"]} if "t" in own else {}),
            }  # fmt: skip
        return {"id": "1", "name": asked.get("project"), "entity": {"id": "1", "name": ENTITY},
                "bucket": told}  # fmt: skip

    def upsert_bucket(self, asked: Mapping[str, Any]) -> Any:
        """A run starts, resumes, or changes its fields."""
        id = str(asked["name"])
        new = id not in self.runs
        run = self.runs.setdefault(id, Tracked(id=id, project=str(asked.get("project"))))
        run.group = asked.get("groupName") or run.group
        run.sweep = asked.get("sweep") or run.sweep
        run.config.update(json.loads(asked.get("config") or "{}"))
        return {"bucket": bucket(run), "inserted": new}

    def create_run_files(self, asked: Mapping[str, Any]) -> Any:
        files = [{"name": name, "uploadUrl": f"{self.url}/up"} for name in asked.get("files") or []]
        return {"runID": "1", "uploadHeaders": [], "files": files}

    def project(self, asked: Mapping[str, Any]) -> Any:
        """Return the runs of a project or one of them, for `Api`; or the sweep that an agent asks
        for.
        """
        if "perPage" in asked or "name" in asked:
            return self.project_runs(asked)
        search = self.searches.get(str(asked.get("sweep") or asked.get("sweepName")))
        told: Any = search and {
            "id": search.id, "name": search.id, "method": "grid", "state": "RUNNING",
            "description": None, "config": search.config, "createdAt": "2026-01-01T00:00:00",
            "heartbeatAt": None, "updatedAt": None, "earlyStopJobRunning": False,
            "controller": None, "scheduler": None, "runs": {"edges": []},
            "runCount": len(search.given), "bestLoss": None, "displayName": None,
        }  # fmt: skip
        return {"id": "1", "name": "p", "entity": {"name": ENTITY}, "sweep": told}

    def project_runs(self, asked: Mapping[str, Any]) -> Any:
        runs = [run for run in self.runs.values() if run.project == asked.get("project")]
        found = next((full_run(run) for run in runs if run.id == asked.get("name")), None)
        edges = [{"node": full_run(run), "cursor": run.id} for run in runs]
        page = {"edges": edges, "pageInfo": {"endCursor": None, "hasNextPage": False}}
        return {"internalId": "1", "runCount": len(runs), "readOnly": False, "run": found,
                "runs": page}  # fmt: skip

    def upsert_sweep(self, asked: Mapping[str, Any]) -> Any:
        id = f"sweep{len(self.searches) + 1}"
        self.searches[id] = Search(id=id, config=str(asked["config"]))
        place = {"id": "1", "name": asked["projectName"],
                 "entity": {"id": "1", "name": asked["entityName"]}}  # fmt: skip
        return {"sweep": {"name": id, "project": place}, "configValidationWarnings": []}

    def create_agent(self, asked: Mapping[str, Any]) -> Any:
        search = self.searches[str(asked.get("sweep"))]
        search.agents.append(f"agent-{len(search.agents) + 1}-{search.id}")
        return {"agent": {"id": search.agents[-1]}}

    def agent_heartbeat(self, asked: Mapping[str, Any]) -> Any:
        """One trial at a time to each agent, and the end to whom there is nothing left for."""
        id = str(asked["id"])
        search = next(one for one in self.searches.values() if id in one.agents)
        busy = json.loads(asked.get("runState") or "{}")
        commands: list[dict[str, Any]] = []
        if not busy and search.waiting:
            run = f"{search.id}-{len(search.given) + 1}"
            search.given[run] = id
            commands = [{"type": "run", "run_id": run, "program": "train.py",
                         "args": search.waiting.pop(0)}]  # fmt: skip
        elif not busy:
            commands = [{"type": "exit"}]
        commands += [{"type": "stop", "run_id": run} for run in search.hopeless & set(busy)]
        return {"agent": {"id": id}, "commands": json.dumps(commands)}


ANSWERS = {
    "upsertBucket": Service.upsert_bucket,
    "createRunFiles": Service.create_run_files,
    "createAgent": Service.create_agent,
    "upsertSweep": Service.upsert_sweep,
    "agentHeartbeat": Service.agent_heartbeat,
    "serverInfo": Service.server_info,
    "viewer": Service.viewer,
    "model": Service.model,
    "project": Service.project,
    "entity": Service.entity,
}


def bucket(run: Tracked) -> dict[str, Any]:
    """A run as the service tells of it."""
    return {
        "id": f"id-{run.id}", "name": run.id, "displayName": run.id, "description": None,
        "config": json.dumps(run.config), "sweepName": run.sweep or None,
        "historyLineCount": len(run.lines()),
        "project": {"id": "1", "name": run.project, "entity": {"id": "1", "name": ENTITY}},
    }  # fmt: skip


def full_run(run: Tracked) -> dict[str, Any]:
    """A run as `Api` reads it."""
    return {
        **bucket(run), "projectId": "1", "tags": [], "state": "running", "group": run.group,
        "jobType": None, "commit": None, "readOnly": False, "createdAt": "2026-01-01T00:00:00",
        "heartbeatAt": "2026-01-01T00:00:00", "notes": None, "historyKeys": None,
        "user": {"name": "u", "username": "u"},
        "systemMetrics": "{}", "summaryMetrics": (run.lines(SUMMARY) or ["{}"])[-1],
    }  # fmt: skip


def root(query: str) -> str:
    """The name of the first field that a query asks for."""
    name = query.partition("{")[2].split("(")[0].split("{")[0].split("}")[0]
    return name.partition(":")[2].strip() or name.strip()


class WandbHandler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    service: Service

    def log_message(self, format: str, *args: object) -> None:
        """It is never read."""

    def body(self) -> bytes:
        content = self.rfile.read(int(self.headers.get("content-length") or 0))
        if self.headers.get("transfer-encoding") == "chunked":
            while length := int(self.rfile.readline(), 16):
                content += self.rfile.read(length)
                self.rfile.readline()
            self.rfile.readline()
        packed = self.headers.get("content-encoding") == "gzip"
        return gzip.decompress(content) if packed else content

    def say(self, content: Any, status: int = 200) -> None:
        text = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_PUT(self) -> None:
        self.body()
        self.say({})

    def do_GET(self) -> None:
        self.say({})

    def do_POST(self) -> None:
        content = self.body()
        known = base64.b64encode(f"api:{KEY}".encode()).decode()
        with self.service.lock:
            if self.path.startswith("/sdk/"):
                self.say({})  # what the client says about itself
            elif self.headers.get("authorization") != f"Basic {known}":
                self.service.refused += 1
                self.say({"errors": [{"message": "invalid API key"}]}, 401)
            elif self.path.startswith("/graphql"):
                self.say(self.asked(json.loads(content)))
            elif self.path.startswith("/files/"):
                self.say(self.streamed(json.loads(content)))
            else:
                self.service.strange.append(self.path)
                self.say({})

    def asked(self, told: Mapping[str, Any]) -> Any:
        query, values = str(told["query"]), told.get("variables") or {}
        name = root(query)
        if name in ("__schema", "__type"):
            return {"data": {name: None}}
        if name not in ANSWERS:
            self.service.strange.append(query)
            return {"data": {name: None}}
        return {"data": {name: ANSWERS[name](self.service, values)}}

    def streamed(self, told: Mapping[str, Any]) -> Any:
        """Lines of a run's files, each with the number of the first."""
        run = self.service.runs[self.path.split("/")[4]]
        for name, piece in (told.get("files") or {}).items():
            lines = run.files.setdefault(name, {})
            for number, line in enumerate(piece["content"], piece["offset"]):
                lines[number] = line
        if told.get("complete"):
            run.exits.append(int(told["exitcode"]))
        return {"exitcode": None, "limits": {}}


class WandbServer(ThreadingHTTPServer):
    """Clients that are killed leave without a word."""

    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        error = sys.exception()
        if not isinstance(error, ConnectionError):
            self.RequestHandlerClass.service.strange.append(repr(error))  # type: ignore[attr-defined]


@contextmanager
def serving(address: str = "127.0.0.1") -> Iterator[Service]:
    """One, until the end of the block."""
    service = Service()
    handler = type("OwnHandler", (WandbHandler,), {"service": service})
    with WandbServer((address, 0), handler) as server:
        service.url = f"http://{address}:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield service
        finally:
            server.shutdown()
            thread.join()
