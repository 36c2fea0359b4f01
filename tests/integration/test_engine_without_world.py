"""Engines whose world is stopped or gone: they end, or can be stopped, with a message."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from socket import socket

import pytest

from tests.integration.worlds import herd, until

pytestmark = pytest.mark.real
JOB = {"name": "gpt", "accelerator": "v4-8", "zones": "us-central2-b", "run": "true"}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Path]:
    """A world without hosts, which a user began; nothing stays of it."""
    folder = tmp_path / "w"
    place = ("--state-dir", str(folder))
    start = herd("sim", "start", "--detach", "--hosts", "none", *place, home=tmp_path)
    assert start.returncode == 0, start.stderr
    yield folder
    said(folder, "engine", "stop")
    herd("sim", "stop", *place, home=tmp_path)


def said(world: Path, *words: str) -> tuple[int, str]:
    """A command on this world: its exit status and all that it says."""
    done = herd(*words, home=world.parent, HERD_WORLD=str(world))
    return done.returncode, done.stdout + done.stderr


def pid(world: Path) -> int | None:
    """The engine's, by its lease."""
    done = herd("engine", "status", "--json", home=world.parent, HERD_WORLD=str(world))
    found = json.loads(done.stdout)["pid"]
    return None if found is None else int(found)


def lives(pid: int) -> bool:
    """Whether such a process exists; a zombie does not count."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_an_engine_without_jobs_ends_with_its_world(world: Path) -> None:
    assert said(world, "engine", "start")[0] == 0
    engine = pid(world)
    assert engine is not None
    status, told = said(world, "sim", "stop", "--state-dir", str(world))
    assert status == 0
    assert told.splitlines()[1:] == ["its engine has stopped, too"]
    until(lambda: not lives(engine), "the engine to end")


def test_an_engine_with_jobs_waits_and_can_be_stopped_without_its_world(world: Path) -> None:
    job = world.parent / "job.yaml"
    job.write_text(json.dumps(JOB))
    assert said(world, "run", str(job), "--detach", "--yes")[0] == 0
    engine = until(lambda: pid(world), "an engine")
    status, told = said(world, "sim", "stop", "--state-dir", str(world))
    assert status == 0
    assert f"its engine (pid {engine}) waits ten minutes for the world, because of gpt" in told
    assert lives(engine)
    assert said(world, "engine", "stop") == (0, "Stopped the engine\n")
    until(lambda: not lives(engine), "the engine to end")


def test_an_engine_can_be_stopped_when_the_folder_of_its_world_is_gone(world: Path) -> None:
    assert said(world, "engine", "start")[0] == 0
    engine = pid(world)
    assert engine is not None
    os.kill(json.loads((world / "world.json").read_text())["pid"], 9)
    shutil.rmtree(world)
    assert said(world, "engine", "stop") == (0, "Stopped the engine\n")
    until(lambda: not lives(engine), "the engine to end")
    status, told = said(world, "engine", "status")
    assert (status, told.startswith("herd engine status: no engine is running")) == (7, True)


def test_an_engine_finds_its_world_at_another_address(world: Path) -> None:
    place = ("--state-dir", str(world))
    job = world.parent / "job.yaml"
    job.write_text(json.dumps(JOB))
    assert said(world, "run", str(job), "--detach")[0] == 0
    until(lambda: "bid.accepted" in said(world, "events", "gpt-0")[1], "the first answer")
    engine = pid(world)
    assert said(world, "sim", "stop", *place)[0] == 0
    before = json.loads((world / "world.json").read_text())["port"]
    with socket() as other:
        other.bind(("127.0.0.1", 0))
        port = other.getsockname()[1]
    start = ("sim", "start", "--detach", "--hosts", "none", "--port", str(port), *place)
    assert port != before
    assert said(world, *start)[0] == 0
    assert said(world, "set", "gpt", "copies=2")[0] == 0
    until(lambda: "bid.accepted" in said(world, "events", "gpt-1")[1], "an answer from there")
    assert pid(world) == engine
