"""How `herd check` asks hosts and repairs them: links that answer well, badly, or not at all."""

import asyncio
import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.unit.check_scenes import HEALTHY
from tpuherd.checks.check_results import CheckResult, CheckStatus
from tpuherd.checks.hosts import check_hosts, fix_hosts
from tpuherd.clock import WallClock
from tpuherd.cloud.nodes_api import NodeList
from tpuherd.cloud.parse import Node, WorkerAddress
from tpuherd.errors import HerdError, NotFound, NotReached
from tpuherd.ports import Host, RpcRequest
from tpuherd.remote.host_key_pins import Pins
from tpuherd.remote.resolve_hosts import RemoteSession
from tpuherd.settings.project_access import ProjectAccess

NODE = Node(
    name="pod",
    zone="us-central2-b",
    state="READY",
    health="HEALTHY",
    type="v4-16",
    incarnation="7@2026-11-23T10:00:00Z",
    created=0.0,
    workers=tuple(WorkerAddress(internal_ip=f"10.0.0.{at}", external_ip=None) for at in (1, 2)),
)
FACTS = {**HEALTHY, "pythons": []}  # so that no program is run
PLACE = cast("ProjectAccess", SimpleNamespace(world=None))
CLEANED = {"ended": [], "left": [], "removed": ["/tmp/libtpu_lockfile"], "mended": []}


@dataclass
class FakeLink:
    """Answers by the verb; an error is raised."""

    host: Host
    answers: Mapping[str, Any]
    asked: list[str] = field(default_factory=list)

    async def call(self, verb: RpcRequest) -> Mapping[str, Any]:
        self.asked.append(verb.name)
        answer = self.answers[verb.name]
        if isinstance(answer, HerdError):
            raise answer
        return cast("Mapping[str, Any]", copy.deepcopy(answer))


class FakeSession:
    """Two hosts of one node, the directory that knows them, and the links to them."""

    def __init__(self, folder: Path, answers: Sequence[Mapping[str, Any]]) -> None:
        self.hosts = [
            Host(
                node="pod",
                zone=NODE.zone,
                worker=at,
                incarnation=NODE.incarnation,
                internal_ip=one.internal_ip,
                external_ip=None,
            )
            for at, one in enumerate(NODE.workers)
        ]
        pairs = zip(self.hosts, answers, strict=True)
        self.links = {host: FakeLink(host, some) for host, some in pairs}
        self.survey = NodeList(nodes=(NODE,), unknown=())
        self.pins = Pins(folder / "pins")

    @property
    def directory(self) -> "FakeSession":
        return self

    @property
    def pool(self) -> "FakeSession":
        return self

    async def list_nodes(self) -> NodeList:
        return self.survey

    def find_node(self, _: Host) -> Node:
        return NODE

    async def resolve_hosts(self, *_: object) -> list[Host]:
        return self.hosts

    async def get_link(self, host: Host) -> FakeLink:
        return self.links[host]


def good(**changes: Any) -> dict[str, Any]:
    return {"check": FACTS, "ping": {"time": WallClock().now()}, "clean": CLEANED, **changes}


def check(session: FakeSession) -> list[CheckResult]:
    reach = cast("RemoteSession", session)
    return asyncio.run(check_hosts("pod", PLACE, reach, WallClock()))


@pytest.mark.parametrize(
    ("changes", "status", "words"),
    [
        ({"check": {"disks": "all"}}, "problem", "its agent's answer makes no sense: Expected"),
        ({"check": {"locks": [{"path": "\x1b" * 9000}]}}, "problem", "makes no sense"),
        ({"ping": {"time": 1e300}}, "problem", "makes no sense"),
        ({"ping": {"time": "now"}}, "problem", "makes no sense"),
        ({"check": NotReached("no answer in 60 s")}, "problem", "no answer in 60 s"),
        ({"check": NotFound("no verb check")}, "warning", "its agent can't be asked: no verb"),
        (
            {"check": {**FACTS, "failed": {"apt": "OSError: x"}}},
            "warning",
            "apt can't be read: OSError: x",
        ),
    ],
)
def test_what_is_wrong_with_one_host_ends_nothing_else(
    tmp_path: Path, changes: dict[str, Any], status: str, words: str
) -> None:
    results = check(FakeSession(tmp_path, [good(), good(**changes)]))
    [first, second] = [one for one in results if one.check == "reach"]
    assert (first.where, first.status) == ("pod/w0", CheckStatus.OK)
    assert (second.where, second.status) == ("pod/w1", status)
    assert words in second.found and second.remedy
    judged = {one.check for one in results if one.where == "pod/w0"}
    assert len(judged) > 20
    last = results[-1]
    assert (last.check, last.status) == ("collective", CheckStatus.SKIPPED)


def test_no_more_is_asked_than_facts_and_time(tmp_path: Path) -> None:
    session = FakeSession(tmp_path, [good(), good()])
    check(session)
    assert [link.asked for link in session.links.values()] == [["check", "ping"]] * 2


def test_a_repair_touches_only_hosts_that_need_it_and_are_ours(tmp_path: Path) -> None:
    session = FakeSession(tmp_path, [good(), good(clean={"ended": 7})])
    reach = cast("RemoteSession", session)

    def fix(*where: str) -> list[str]:
        wanted = [
            CheckResult(check="tpu-lock", where=one, status=CheckStatus.PROBLEM, found="", fix=fix)
            for one, fix in zip(where, ("clean", "clean"), strict=False)
        ]
        return asyncio.run(fix_hosts(wanted, "pod", PLACE, reach))

    assert fix("pod/w0") == ["pod/w0: removed the stale lock /tmp/libtpu_lockfile"]
    assert [link.asked for link in session.links.values()] == [["clean"], []]
    [sentence] = fix("pod/w1")
    assert sentence.startswith("pod/w1: its agent's answer makes no sense")
    theirs = replace(session.hosts[0], foreign=True)
    session.hosts = [theirs, session.hosts[1]]
    [sentence] = fix("us-central2-b/pod/w0", "pod/w0")
    assert sentence.startswith("pod/w0: not touched, as it belongs to another herd user")
    assert session.links[theirs].asked == ["clean"]
