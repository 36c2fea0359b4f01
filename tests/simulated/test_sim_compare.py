"""`herd sim compare`: nothing to say about the world itself, and every alteration is found."""

import copy
import functools
import itertools
import json
import random
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from json_schemas import SCHEMAS

from tests.simulated.cloud_user import User
from tests.simulated.recorded_worlds import (
    EVERYWHERE,
    NODE,
    PLACE,
    Line,
    ask,
    look,
    queue_body,
    record_world,
    sentences,
)
from tpuherd.cli.main import run
from tpuherd_sim.compare.lifecycles import STEPS
from tpuherd_sim.model.world import World


async def use_everything(user: User) -> None:
    """Nodes and queued resources from their creation to their end, and some refusals."""
    spot: dict[str, Any] = {"schedulingConfig": {"spot": True}, "labels": {"a": "b"}}
    for name in ("n1", "n2", "n3"):
        await ask(user, "POST", f"{PLACE}/nodes", {**NODE, **spot}, nodeId=name)
    await ask(
        user, "POST", f"{PLACE}/queuedResources", queue_body("q", spot={}), queuedResourceId="q"
    )
    await look(user, 400)
    await ask(user, "GET", f"{PLACE}/nodes/n1")
    await ask(user, "GET", f"{PLACE}/queuedResources/q")
    await ask(user, "POST", f"{PLACE}/nodes", NODE, nodeId="n1")  # it exists
    await ask(user, "GET", f"{PLACE}/nodes/absent")
    await ask(user, "POST", f"{PLACE}/nodes/n1:getGuestAttributes", {"workerIds": [""]})
    await user.weather("preempt", target="n1")
    await user.weather("preempt", target="q-n")
    await look(user, 200)
    for path in ("nodes/n1", "nodes/n2", "queuedResources/q"):
        await ask(user, "DELETE", f"{PLACE}/{path}")
    await user.weather("drought", zone="*", type="*")
    await ask(user, "POST", f"{PLACE}/nodes", NODE, nodeId="late")
    await look(user, 300)
    await ask(user, "GET", f"{EVERYWHERE}/nodes", pageToken="wrong")


@functools.cache
def recorded() -> tuple[Line, ...]:
    return tuple(record_world(use_everything))


def altered() -> list[Line]:
    return copy.deepcopy(list(recorded()))


def messages(lines: list[Line], state: str) -> Iterator[Line]:
    """Every node and queued resource in this state, in any reply."""
    for line in lines:
        reply = line.get("reply", {})
        for one in (reply, *reply.get("nodes", ()), *reply.get("queuedResources", ())):
            found = one.get("state")
            if (found.get("state") if isinstance(found, dict) else found) == state:
                yield one


def operations(lines: list[Line]) -> Iterator[Line]:
    for line in lines:
        yield from line.get("reply", {}).get("operations", ())


def find_line(lines: list[Line], path: str, method: str = "GET", **fields: Any) -> Line:
    """The first exchange of a method whose path ends so."""
    return next(
        line
        for line in lines
        if re.search(path, line.get("path", "")) and line.get("method") == method
        and all(line.get(name) == value for name, value in fields.items())
    )  # fmt: skip


def test_a_transcript_of_the_world_has_no_difference() -> None:
    lines = altered()
    states = {"CREATING", "READY", "PREEMPTED", "ACTIVE", "SUSPENDED"}
    assert all(any(messages(lines, state)) for state in states)
    assert {line.get("status") for line in lines} >= {200, 400, 404, 409}
    assert sentences(lines) == []


SPOT: dict[str, Any] = {"schedulingConfig": {"spot": True}}
ORDERS: tuple[dict[str, Any], ...] = ({}, SPOT, {"tags": ["a"]})
SHORT: dict[str, Any] = {"queueingPolicy": {"validUntilDuration": "100s"}, "spot": {}}
REQUESTS: tuple[dict[str, Any], ...] = ({"spot": {}}, {"guaranteed": {}}, SHORT)
STROKES = {"preempt": "*", "crash": "*/w0", "maintain": "*", "unhealthy": "*", "reboot": "*/w0"}


async def act_at_random(user: User, seed: int) -> None:
    """Half an hour of somebody who clicks everywhere, in bad weather."""
    dice, end, names = random.Random(seed), user.clock.now() + 1800, ["n0"]
    while user.clock.now() < end:
        name = dice.choice(names)
        match dice.choice("create queue delete drop stroke verb patch guests error refuse".split()):
            case "create":
                names.append(f"n{len(names)}")
                body = {**NODE, **dice.choice(ORDERS)}
                body["acceleratorType"] = dice.choice(["v4-8", "v4-16", "v4-32"])
                await ask(user, "POST", f"{PLACE}/nodes", body, nodeId=names[-1])
            case "queue":
                body = queue_body(name, **dice.choice(REQUESTS))
                path = f"{PLACE}/queuedResources"
                await ask(user, "POST", path, body, queuedResourceId=name)
            case "delete":
                await ask(user, "DELETE", f"{PLACE}/nodes/{name}")
            case "drop":
                force = dice.choice(["true", "false"])
                await ask(user, "DELETE", f"{PLACE}/queuedResources/{name}", force=force)
            case "stroke":
                kind = dice.choice(list(STROKES))
                with suppress(AssertionError):  # there may be no node
                    await user.weather(kind, target=STROKES[kind], pick=1)
            case "verb":
                verb = dice.choice(["stop", "start"])
                await ask(user, "POST", f"{PLACE}/nodes/{name}:{verb}", {})
            case "patch":
                body = {"metadata": {"a": "b"}}
                await ask(user, "PATCH", f"{PLACE}/nodes/{name}", body, updateMask="metadata")
            case "guests":
                path = f"{PLACE}/nodes/{name}:getGuestAttributes"
                await ask(user, "POST", path, {"workerIds": [""]})
            case "error":
                await user.weather("http-error", http=dice.choice([429, 500, 503]), times=2)
            case "refuse":
                await user.weather("operation-error", code=dice.choice([5, 8, 9, 13]), times=1)
        await look(user, dice.choice([1, 20, 60]), 10)


@pytest.mark.parametrize("seed", range(3))
def test_a_world_in_bad_weather_has_no_difference(seed: int) -> None:
    """And all that happens in it is in the table of changes."""
    changes: set[tuple[str, str, str]] = set()

    async def act_and_look_back(user: User) -> None:
        await act_at_random(user, seed)
        changes.update(state_changes(user.world))

    assert sentences(record_world(act_and_look_back)) == []
    assert ("Node", "CREATING", "READY") in changes
    for kind, before, after in sorted(changes):
        assert after in STEPS[kind][before].split(), (kind, before, after)


def state_changes(world: World) -> Iterator[tuple[str, str, str]]:
    """What changed its state in the last quarter of an hour."""
    kinds = {"nodes": "Node", "queuedResources": "QueuedResource"}
    changes: dict[tuple[str, str, int], list[str]] = {}
    for change in world.past:
        if change.old is not None:
            key = (kinds[change.collection], change.key, change.old.uid)
            changes.setdefault(key, []).append(change.old.state)
    for (kind, _, _), states in changes.items():
        for before, after in itertools.pairwise(states):
            if before != after:
                yield kind, before, after


def add_field(lines: list[Line]) -> None:
    for node in messages(lines, "READY"):
        node["coolant"] = "<text:12345678>"


def serve_documented_field(lines: list[Line]) -> None:
    for node in messages(lines, "READY"):
        node["protectionTier"] = "STANDARD"


def remove_field(lines: list[Line]) -> None:
    for node in messages(lines, "READY"):
        node.pop("networkEndpoints", None)


def change_type(lines: list[Line]) -> None:
    for node in messages(lines, "READY"):
        if "health" in node:
            node["apiVersion"] = 4


def change_time(lines: list[Line]) -> None:
    for node in messages(lines, "READY"):
        node["createTime"] = "<text:12345678>"


def change_number(lines: list[Line]) -> None:
    for node in messages(lines, "READY"):
        if "id" in node:
            node["id"] = "<text:12345678>"


def invent_enum(lines: list[Line]) -> None:
    for node in messages(lines, "PREEMPTED"):
        node["health"] = "EVICTED"


def change_status(lines: list[Line]) -> None:
    line = find_line(lines, "nodes/<node:[0-9a-f]+>$", status=404)
    line["status"] = line["reply"]["error"]["code"] = 410


def change_status_word(lines: list[Line]) -> None:
    line = find_line(lines, "nodes/<node:[0-9a-f]+>$", status=404)
    line["reply"]["error"]["status"] = "GONE"


def contradict_status(lines: list[Line]) -> None:
    find_line(lines, "nodes/<node:[0-9a-f]+>$", status=404)["reply"]["error"]["code"] = 5


def change_error_shape(lines: list[Line]) -> None:
    find_line(lines, "nodes/<node:[0-9a-f]+>$", status=404)["reply"] = {"error_message": "<text:1>"}


def change_wording(lines: list[Line]) -> None:
    error = find_line(lines, "/nodes$", "POST", status=409)["reply"]["error"]
    error["message"] = "The name '<name>' is in use"


def change_operation_code(lines: list[Line]) -> None:
    for operation in operations(lines):
        if "error" in operation:
            operation["error"]["code"] = 15


def change_operation_text(lines: list[Line]) -> None:
    for operation in operations(lines):
        if "error" in operation:
            operation["error"]["message"] = "Out of machines"


def change_reason(lines: list[Line]) -> None:
    error = find_line(lines, "nodes/<node:[0-9a-f]+>$", status=404)["reply"]["error"]
    info = {"reason": "NODE_MISSING", "domain": "googleapis.com", "metadata": {}}
    error["details"] = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", **info}]


def create_with_202(lines: list[Line]) -> None:
    find_line(lines, "/nodes$", "POST", status=200)["status"] = 202


def answer_without_json(lines: list[Line]) -> None:
    del find_line(lines, "/nodes$", status=200)["reply"]


def call_unknown_method(lines: list[Line]) -> None:
    line = find_line(lines, ":getGuestAttributes$", "POST")
    line["path"] = line["path"].replace("getGuestAttributes", "defrost")


def take_unknown_parameter(lines: list[Line]) -> None:
    find_line(lines, "/nodes$", status=200)["query"]["filter2"] = "<text:1>"


def go_back(lines: list[Line]) -> None:
    for node in messages(lines, "PREEMPTED"):
        node["state"] = "STARTING"
        node |= {"health": "TIMEOUT", "networkEndpoints": [], "cidrBlock": ""}


def skip_states(lines: list[Line]) -> None:
    """A queued resource is ACTIVE as soon as it was seen waiting."""
    for request in messages(lines, "PROVISIONING"):
        request["state"] = {"state": "WAITING_FOR_RESOURCES"}


def sort_otherwise(lines: list[Line]) -> None:
    for line in lines:
        if "nodes" in line.get("order", {}):
            line["order"] = {"nodes": "createTime, descending"}


def swap_pages(lines: list[Line]) -> None:
    """The second page is said to have come before the first."""
    next(line for line in lines if "pageToken" in line.get("query", {}))["at"] = -1.0


def repeat_on_second_page(lines: list[Line]) -> None:
    second = next(line for line in lines if "pageToken" in line.get("query", {}))
    token = second["query"]["pageToken"]
    first = next(x for x in lines if x.get("reply", {}).get("nextPageToken") == token)
    kind = next(iter(first["order"]))
    second["reply"][kind] = first["reply"][kind]


def hurry_operations(lines: list[Line]) -> None:
    for operation in operations(lines):
        if "response" in operation:
            operation["metadata"]["endTime"] = operation["metadata"]["createTime"]


def delay_operations(lines: list[Line]) -> None:
    for operation in operations(lines):
        if operation["metadata"]["verb"] == "create" and "response" in operation:
            operation["metadata"]["endTime"] = "<time:90000.000:9Z>"


def stretch_creation(lines: list[Line]) -> None:
    """Everything takes twenty times as long."""
    for line in lines:
        if "at" in line:
            line["at"] *= 20


ALTERATIONS: dict[Callable[[list[Line]], None], str] = {
    add_field: "field: Node.coolant: the model never serves it; no document has it",
    serve_documented_field: "field: Node.protectionTier: the model never serves it; the API doc",
    remove_field: "missing: Node.networkEndpoints is missing in READY; the model always serves it",
    change_type: "type: Node.apiVersion is number; the model's is string",
    change_time: "type: Node.createTime is not a time",
    change_number: "type: Node.id is not a number in a string",
    invent_enum: "enum: Node.health has the value EVICTED, which no document lists",
    change_status: "error: nodes.get answered 410 NOT_FOUND; the model never does",
    change_status_word: "error: nodes.get answered 404 GONE; the model never does",
    contradict_status: "error: nodes.get answered HTTP 404 with the code 5",
    change_error_shape: "error: nodes.get answered HTTP 404 without an error object",
    change_wording: "wording: ALREADY_EXISTS: the cloud says: The name '<name>' is in use",
    change_operation_code: "error: an operation failed with code 15 (DATA_LOSS); the model's never",
    change_operation_text: "wording: code 8: the cloud says: Out of machines",
    change_reason: "error: an error has the reason NODE_MISSING, which the model never gives",
    create_with_202: "status: nodes.create answered with HTTP 202; the model with 200",
    answer_without_json: "type: nodes.list answered without a JSON object",
    call_unknown_method: "method: the model has no POST v2/projects/*/locations/us-central2-b",
    take_unknown_parameter: "query: nodes.list takes the parameter filter2; the model refuses it",
    go_back: "transition: a Node went from READY to STARTING within",
    skip_states: "transition: a QueuedResource went from WAITING_FOR_RESOURCES to ACTIVE within",
    sort_otherwise: "order: nodes.list is sorted by createTime, descending; the model's by zone",
    swap_pages: "page: operations.list was asked for a page to which no earlier page led",
    repeat_on_second_page: "page: operations.list lists the same resource on two pages",
    hurry_operations: "timing: the operation nodes.create ran for less than 0 s; the model's takes",
    delay_operations: "timing: the operation nodes.create ran for at least",
    stretch_creation: "timing: a QueuedResource was PROVISIONING for at least",
}


@pytest.mark.parametrize("alter", ALTERATIONS, ids=lambda alter: alter.__name__)
def test_an_alteration_is_found(alter: Callable[[list[Line]], None]) -> None:
    lines = altered()
    alter(lines)
    assert any(one.startswith(ALTERATIONS[alter]) for one in sentences(lines)), sentences(lines)


def test_an_impossible_change_is_named() -> None:
    lines = altered()
    dead = list(messages(lines, "PREEMPTED"))
    dead[-1] |= {"state": "READY", "health": "HEALTHY"}
    found = sentences(lines)
    assert "transition: a Node went from PREEMPTED to READY; the model's never do" in found


def test_a_faster_world_is_compared_at_its_speed() -> None:
    lines = altered()
    lines[0]["time_scale"] = 1000.0
    assert any("here 1000 times faster" in one for one in sentences(lines))


def write(file: Path, lines: list[Line]) -> Path:
    file.write_text("".join(f"\n{json.dumps(line)}" for line in lines))
    return file


def test_a_torn_end_is_tolerated(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / "t", altered())
    with file.open("a") as stream:
        stream.write('\n{"kind":"exchange","id')
    assert run(("sim", "compare", str(file))) == 0
    said = capfd.readouterr().out
    first, second = said.splitlines()
    assert re.fullmatch(r"No difference in \d+ exchanges of a simulated world", first)
    assert second == "1 line cut or malformed, and left out"


def test_the_status_says_whether_there_are_differences(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    lines = altered()
    add_field(lines)
    file = write(tmp_path / "t", lines)
    assert run(("sim", "compare", str(file))) == 1
    said = capfd.readouterr().out
    assert said.startswith("field: a field that the model never serves\n  Node.coolant: ")
    assert "1 difference in " in said
    assert run(("sim", "compare", str(file), "--json")) == 1
    shown = json.loads(capfd.readouterr().out)
    jsonschema.validate(shown, SCHEMAS["herd sim compare TRANSCRIPT --json"])
    assert [one["subject"] for one in shown["differences"]] == ["Node.coolant"]


HEADER = {"kind": "transcript", "format": 1}
BAD: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "is empty"),
    "foreign": (b"hello\nworld\n", "is not a transcript: `herd record start` writes one"),
    "other json": (b'{"kind": 1}\n', "is not a transcript"),
    "binary": (b"\x00\xff" * 1000, "is not a transcript"),
    "newer": (b'{"kind": "transcript", "format": 2}', "has format 2, and this herd reads 1"),
    "nothing": (json.dumps(HEADER).encode(), "has no requests: use herd while it is recorded"),
    "torn": (b'{"kind": "transcr', "is not a transcript"),
    "nested": (b"[" * 100_000, "is not a transcript"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_file_that_is_no_transcript_is_one_sentence(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    content, sentence = BAD[name]
    (tmp_path / "t").write_bytes(content)
    assert run(("sim", "compare", str(tmp_path / "t"))) == 2
    said = capfd.readouterr().err
    assert sentence in said
    assert len(said.splitlines()) <= 3  # the usage, and the sentence


def test_a_huge_or_missing_file_is_one_sentence(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with (tmp_path / "t").open("wb") as stream:
        stream.truncate(300 << 20)
    for name, sentence in (("t", "has 300 MB: more than 256 MB"), ("no", "does not exist"),
                           (".", "is not a file")):  # fmt: skip
        assert run(("sim", "compare", str(tmp_path / name))) == 2
        assert sentence in capfd.readouterr().err


HOSTILE: dict[str, Any] = {
    "method": ["GET"], "path": {"a": 1}, "at": "soon", "took_s": float("1e300"), "status": "200",
    "query": [1], "reply": [[]], "order": 7, "id": {}, "kind": ["exchange"],
}  # fmt: skip


@pytest.mark.parametrize("field", HOSTILE)
def test_a_hostile_record_is_left_out(field: str) -> None:
    good = find_line(altered(), "/nodes$", status=200)
    assert isinstance(sentences([{**HEADER}, good, {**good, field: HOSTILE[field]}]), list)


@pytest.mark.parametrize(
    "reply",
    [{"nodes": 7}, {"nodes": [7, None, {"state": 9}]}, {"operations": [{"metadata": 1}]},
     {"nodes": [{"name": {}, "state": {"state": []}, "createTime": []}]}, {"error": []},
     {"operations": [{"done": True, "metadata": {"target": 7, "createTime": 1, "verb": {}}}]}],
)  # fmt: skip
@pytest.mark.parametrize("status", [200, 404, -1, 10**9])
def test_a_hostile_reply_does_not_stop_the_comparison(reply: Any, status: int) -> None:
    good = find_line(altered(), "/nodes$", status=200)
    for path in ("nodes", "operations"):
        line = {
            **good,
            "reply": reply,
            "status": status,
            "path": f"v2/projects/p/locations/-/{path}",
        }
        assert isinstance(sentences([{**HEADER}, line]), list)


def test_hostile_texts_are_cut_and_have_no_control_characters(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = "v2/\ud800\x1b[31mred\u202e" + "x" * 5000
    good = find_line(altered(), "/nodes$", status=200)
    many = [{**good, "path": f"v2/{number}", "reply": {}} for number in range(1500)]
    file = write(tmp_path / "t", [{**HEADER}, {**good, "path": path}, *many])
    assert run(("sim", "compare", str(file))) == 1
    said = capfd.readouterr().out
    assert "the model has no GET v2/??[31mred?xxx" in said
    assert max(map(len, said.splitlines())) < 500
    assert "1000 differences in 1501 exchanges" in said


def test_replies_that_overlap_in_time_have_no_order() -> None:
    """The later request may be answered first."""
    lines = altered()
    ready = next(i for i, line in enumerate(lines) if list(messages([line], "READY")))
    late = copy.deepcopy(lines[ready - 3])
    late |= {"at": lines[ready]["at"] + 0.1, "took_s": 0.0}
    lines[ready]["took_s"] = 1.0
    assert sentences([*lines, late]) == sentences(lines)
