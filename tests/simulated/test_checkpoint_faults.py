"""Checkpoints in a bucket whose requests go wrong: what is loaded afterwards is whole."""

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from http.client import IncompleteRead
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy
import pytest

from tests.simulated.test_cloud_storage import QuickTime
from tests.simulated.test_objects import JSON_API, Answer, Buckets
from tpuherd_host import cloud_storage
from tpuherd_host.train.checkpoint_commit import Commit
from tpuherd_host.train.checkpoints import Checkpoints, LoadedCheckpoint
from tpuherd_host.train.read_checkpoint import list_checkpoints, read_checkpoint
from tpuherd_host.train.storage import Unreachable

#: Of JAX, which is not here, what trees of NumPy's arrays need.
JAX = SimpleNamespace(
    Array=type("Array", (), {}),
    tree_util=SimpleNamespace(
        tree_flatten_with_path=lambda tree: (sorted(tree.items()), None),
        keystr=str,
        tree_structure=sorted,
        tree_unflatten=lambda names, leaves: dict(zip(names, leaves, strict=True)),
    ),
)
#: What becomes of one request. It arrives, or does not, or too late; the answer comes, or does not.
ARRIVED = ("answered 503", "answer lost", "answer cut", "sent twice", "killed after it")
ABSENT = ("refused 503", "refused 403", "killed before it")
LATE = ("after the next", "after the restore", "killed, after the restore")
CUTS = ("body cut", "killed in its body")
LATER = 3  #: the step that the next attempt saves


@dataclass(frozen=True)
class Fault:
    kind: str
    at: int  #: number of the request
    cut: int = 0  #: bytes of its body that arrive


@dataclass
class Line:
    """The way from a training to a world's buckets, on which one request goes wrong."""

    buckets: Buckets
    fault: Fault
    number: int = 0
    dead: bool = False
    late: list[Callable[[], object]] = field(default_factory=list)
    sent: list[tuple[str, bytes]] = field(default_factory=list)  #: bodies by the objects' names
    sizes: list[int] = field(default_factory=list)  #: of the bodies

    def exchange(self, method: str, url: str, body: bytes, headers: dict[str, str]) -> "Response":
        self.number += 1
        self.sizes.append(len(body))
        struck = self.number == self.fault.at
        kind = self.fault.kind if struck else ""
        late, self.late = (self.late, []) if self.fault.kind == LATE[0] else ([], self.late)
        if body:
            self.sent.append((parse_qs(urlsplit(url).query)["name"][0], body))

        def arrive(cut: int | None = None) -> Answer:
            asked = {key.lower().replace("-", "_"): text for key, text in headers.items()}
            return self.buckets.ask(method, f"http://world{url}", body, cut=cut, **asked)

        self.dead |= kind.startswith("killed") and kind != ARRIVED[4]
        if kind in CUTS:
            arrive(self.fault.cut)
        if kind in LATE:
            self.late.append(arrive)
        if self.dead or kind in (*CUTS, *LATE):
            raise ConnectionResetError("cut")
        if kind.startswith("refused"):
            return Response(refusal(int(kind[-3:])))
        answers = [arrive() for _ in range(1 + (kind == "sent twice"))]
        for done in late:
            done()
        if kind in ("answer lost", ARRIVED[4]):
            self.dead |= kind == ARRIVED[4]
            raise ConnectionResetError("lost")
        if kind.startswith("answered"):
            return Response(refusal(503))
        return Response(answers[-1], cut=int(kind == "answer cut"))


def refusal(status: int) -> Answer:
    answer = Answer()
    answer.status = status
    return answer


class Response:
    """An answer as http.client has it; of a cut one, the last byte does not come."""

    def __init__(self, answer: Answer, cut: int = 0) -> None:
        self.status, self.reason, self.length = answer.status, "no", len(answer.body)
        self._headers = {name.lower(): text for name, text in answer.headers.items()}
        self._rest = answer.body[: self.length - cut]

    def getheader(self, name: str) -> str | None:
        return self._headers.get(name)

    def getheaders(self) -> list[tuple[str, str]]:
        return list(self._headers.items())

    def read(self, size: int | None = None) -> bytes:
        found, self._rest = self._rest[:size], self._rest[len(self._rest[:size]) :]
        self.length -= len(found)
        if size is None and self.length:
            raise IncompleteRead(found)
        return found


class Connection:
    """A connection of the training, which keeps it until something goes wrong."""

    def __init__(self, line: Line) -> None:
        self._line = line

    def request(
        self, method: str, url: str, body: Iterable[bytes] | None, headers: dict[str, str]
    ) -> None:
        self._response = self._line.exchange(method, url, b"".join(body or ()), headers)

    def getresponse(self) -> Response:
        return self._response

    def close(self) -> None:
        pass


def tree_of(step: int, launched: int) -> dict[str, Any]:
    """Return what an attempt has at a step."""
    return {
        "w": numpy.full((40, 25), step * 1000 + launched, numpy.float32),
        "b": numpy.arange(step, step + 7),
    }


def is_same(found: Any, wanted: dict[str, Any]) -> bool:
    return found.keys() == wanted.keys() and all(
        numpy.array_equal(found[name], wanted[name]) for name in wanted
    )


class Story:
    """An attempt saves step 1, then 2 instead while a request fails; the next one restores, and
    saves step 3.
    """

    def __init__(self, line: Line, location: str) -> None:
        self.line = line
        self.location = location
        self.sizes: tuple[int, ...] = ()  #: of the bodies of the requests that may go wrong

    def attempt(self, launched: int) -> Checkpoints:
        return Checkpoints(self.location, run="r", launched=launched, keep=1)

    def save(self, attempt: Checkpoints, step: int) -> bool:
        commit = Commit(step=step, run="r", launched=attempt.launched)
        attempt.save(commit, tree_of(step, attempt.launched), wait=True)
        return attempt.newest == step

    def restore(self, attempt: Checkpoints) -> LoadedCheckpoint | None:
        found = attempt.load(tree_of(0, 0))
        if found is not None:
            assert is_same(found.tree, tree_of(found.commit.step, found.commit.launched))
        return found

    def happen(self) -> None:
        line, fault = self.line, self.line.fault
        line.fault = Fault("", 0)
        first = self.attempt(1)
        assert self.restore(first) is None
        assert self.save(first, 1)
        line.number, line.sizes, line.fault = 0, [], fault
        is_saved = self.save(first, 2)
        while_saving, line.dead = line.number, False
        self.check_objects()
        next_one = self.attempt(2)
        try:
            found = self.restore(next_one)
            is_over = line.dead
        except Unreachable:
            assert fault.at > while_saving, "the bucket could be reached"
            is_over = True
        if is_over:
            line.dead, next_one = False, self.attempt(3)
            found = self.restore(next_one)
        assert found is not None
        assert found.commit.step in ((2,) if is_saved else (1, 2))
        self.sizes, line.fault = tuple(line.sizes), Fault("", 0)
        for done in line.late:
            done()
        line.late.clear()
        assert self.save(next_one, LATER)
        last = self.restore(self.attempt(4))
        assert last is not None
        assert (last.commit.step, last.commit.launched) == (LATER, next_one.launched)
        self.check_objects()

    def check_objects(self) -> None:
        """Every object is one that was sent, and every complete checkpoint is the one saved."""
        line, bucket = self.line, self.location.removeprefix("gs://mine/")
        number, fault, line.fault = line.number, line.fault, Fault("", 0)
        listed = line.buckets.ask("GET", f"{JSON_API}?prefix={bucket}/").json["items"]
        for one in listed:
            assert (one["name"], line.buckets.read(one["name"])) in line.sent
        for commit in list_checkpoints(self.location):
            found = read_checkpoint(self.location, commit.step)
            assert is_same(found, tree_of(commit.step, commit.launched)), commit
        line.number, line.fault = number, fault
        del line.sizes[number:]


@pytest.fixture
def tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Fault], Story]]:
    """Let a story happen with this fault, each in a folder of its own."""
    monkeypatch.setitem(sys.modules, "jax", JAX)
    monkeypatch.setattr(cloud_storage, "time", QuickTime())
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://world")
    buckets = Buckets(tmp_path / "objects")
    buckets.ask(
        "PATCH", "/storage/v1/b/mine", b'{"softDeletePolicy": {"retentionDurationSeconds": 0}}'
    )

    def tell_story(fault: Fault) -> Story:
        line = Line(buckets, fault)
        monkeypatch.setattr(cloud_storage, "open_connection", lambda base: Connection(line))
        story = Story(line, f"gs://mine/{fault.kind.replace(' ', '-')}-{fault.at}-{fault.cut}")
        try:
            story.happen()
        except BaseException as error:
            error.add_note(f"after {fault}")
            raise
        return story

    yield tell_story
    buckets.check_files()


@pytest.mark.parametrize("kind", [*ARRIVED, *ABSENT, *LATE])
def test_a_request_that_fails_leaves_a_whole_checkpoint(
    tell: Callable[[Fault], Story], kind: str
) -> None:
    calm = tell(Fault("", 0))
    for at in range(1, len(calm.sizes) + 1):
        tell(Fault(kind, at))


@pytest.mark.parametrize("kind", CUTS)
def test_a_body_that_is_cut_leaves_a_whole_checkpoint(
    tell: Callable[[Fault], Story], kind: str
) -> None:
    calm = tell(Fault("", 0))
    for at, size in enumerate(calm.sizes, 1):
        for cut in sorted({0, 1, 7, 8, size // 2, size - 1, size}) if size else ():
            tell(Fault(kind, at, cut))
