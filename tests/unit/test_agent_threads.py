"""The agent survives when the user's processes have used up all threads of a host."""

import _thread
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tpuherd_host.agent.effects.log_segments import SegmentedLog
from tpuherd_host.agent.event_loop import EventLoop
from tpuherd_host.agent.host.host_facts import collect_facts
from tpuherd_host.agent.state_machine.messages import Event
from tpuherd_host.agent.state_machine.state import AgentState
from tpuherd_host.agent.threaded_rpc import AgentPaths, ThreadedCall, start_thread


def none_left(*_: Any) -> Iterator[None]:
    raise RuntimeError("can't start new thread")


def test_without_a_thread_the_agent_waits_for_the_disk_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = EventLoop(str(tmp_path), str(tmp_path), "1.a", {})
    log = SegmentedLog(str(tmp_path), 1 << 20)
    assert log.append(1.0, 1, b"said")
    loop.pipes_by_task["a"] = SimpleNamespace(log=log)  # type: ignore[assignment]
    monkeypatch.setattr(_thread, "start_new_thread", none_left)
    assert log.dirty
    loop.sync_logs()
    assert not log.dirty
    assert not loop.syncing
    log.close_writer()
    loop.files.epoll.close()
    for file in (loop.wake_in, loop.wake_out):
        os.close(file)


def test_a_call_that_needs_a_thread_fails_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Event] = []
    threaded_call = ThreadedCall(
        AgentPaths("", "", {}, AgentState, told.append), {"verb": "facts"}, 1, 2
    )
    monkeypatch.setattr(_thread, "start_new_thread", none_left)
    start_thread(collect_facts, threaded_call)
    (answered,) = told
    assert (answered.connection, answered.call, answered.error) == (1, 2, "busy")  # type: ignore[union-attr]
    assert "no room" in answered.content["sentence"]  # type: ignore[union-attr]
