"""Agents that cost little here: they say what real ones would, and decide almost nothing.

With the real agents' state machine, 20,000 hosts would take nine tenths of the processor time. The
engine's side of a link is the real one, from the bytes on.
"""

import asyncio
import json
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from tests.simulated.engine_fleet import Fleet
from tests.simulated.engine_links import VirtualLink
from tpuherd_host.agent import frames
from tpuherd_sim.model.host_view import HostView

BEAT_S = 10.0  #: of heartbeats and samples, as agents have them
BOOT_S, INIT_S = 8.0, 8.0
STEP_S, SAVED_S = 30.0, 600.0
LEAVES_S = 3.0  #: from a notice to the end of the attempt
Json = dict[str, Any]


class LightMachine:
    """One host with its agent; has what VirtualHosts and the links need of a Machine."""

    sample: bytes = b""  #: what every host sends, as a frame

    def __init__(self, view: HostView, fleet: Fleet) -> None:
        self.view = view
        self.fleet = fleet
        self.disk = SimpleNamespace(trees={})
        self.on = view.on
        self.opened = 0
        self.lines: dict[int, VirtualLink] = {}
        self.readers: dict[int, frames.FrameReader] = {}
        self.rows: dict[str, Json] = {}  #: attempts as the agent shows them
        self.following: dict[str, list[tuple[VirtualLink, int]]] = {}
        self.preempted = False
        self.door_at = fleet.clock.now() + BOOT_S
        self.slow = False
        self._beat: asyncio.TimerHandle | None = None

    @property
    def name(self) -> str:
        return f"{self.view.node}/w{self.view.worker}"

    @property
    def runs(self) -> bool:
        return self.on

    @property
    def answers(self) -> bool:
        return self.on

    @property
    def silent(self) -> bool:
        return not self.on

    @property
    def closed(self) -> bool:
        return self.fleet.clock.now() < self.door_at

    def become(self, view: HostView) -> None:
        self.view = view
        if not view.on:
            self.power_off()

    def power_off(self) -> None:
        self.on = False
        if self._beat is not None:
            self._beat.cancel()
        for line in list(self.lines.values()):
            line.hold()

    def hear(self, tree: Mapping[str, Any]) -> None:
        """What the metadata server says now."""
        if str(tree.get("preempted", "")) == "TRUE" and not self.preempted and self.on:
            self.preempted = True
            self._say({"event": "notice", "what": "preempted", "value": "TRUE"})
            asyncio.get_running_loop().call_later(LEAVES_S, self._end_all)

    # ---- links -----------------------------------------------------------------------------------

    def open(self) -> VirtualLink:
        self.opened += 1
        line = VirtualLink(self, self.opened)  # type: ignore[arg-type]
        self.lines[line.number] = line
        self.readers[line.number] = frames.FrameReader()
        hello = {"protocol": frames.PROTOCOL, "boot": self._boot(), "host": self.view.name}
        line.down.send(frames.pack_json(frames.HELLO, 0, hello))
        if self._beat is None:
            first = BEAT_S * (hash(self.view.key) % 1000) / 1000
            self._beat = asyncio.get_running_loop().call_later(first, self._tick)
        return line

    def heard(self, line: VirtualLink, piece: bytes) -> None:
        for frame in self.readers[line.number].feed(piece):
            if frame.kind == frames.CALL:
                self._answer(line, frame.id, frame.content)

    def flushed(self, line: VirtualLink, many: int) -> None:
        return

    def left(self, line: VirtualLink) -> None:
        self.lines.pop(line.number, None)
        self.readers.pop(line.number, None)
        for waiting in self.following.values():
            waiting[:] = [one for one in waiting if one[0] is not line]

    def _answer(self, line: VirtualLink, call: int, verb: Json) -> None:
        id = str(verb.get("attempt", ""))
        answer: Json = {"time": self.fleet.clock.now()}
        match verb["verb"]:
            case "attempts":
                notices = {"preempted": "TRUE"} if self.preempted else {}
                answer = {"attempts": list(self.rows.values()), "notices": notices}
            case "start":
                self._start(id, verb)
            case "halt":
                self._end(id)
            case "follow" if self.rows.get(id, {}).get("phase") == "running":
                self.following.setdefault(id, []).append((line, call))
                return
        line.down.send(frames.pack_json(frames.REPLY, call, answer))

    def _start(self, id: str, verb: Json) -> None:
        now = self.fleet.clock.now()
        if id not in self.rows:
            self.rows[id] = {
                "id": id, "kind": "attempt", "phase": "running", "slot": verb["slot"],
                "number": verb["number"], "stage": 0, "stages": 1, "asked": now, "started": now,
                "length": 0, "tail": [], "report": None, "stopped": False,
            }  # fmt: skip
            self._say({"event": "attempt", **self.rows[id]})

    def _end_all(self) -> None:
        for id in list(self.rows):
            self._end(id)

    def _end(self, id: str) -> None:
        row = self.rows.get(id)
        if row is None or row["phase"] != "running" or not self.on:
            return
        row |= {"phase": "ended", "ended": self.fleet.clock.now(), "exit": 0, "stopped": True}
        self._say({"event": "ended", **row})
        for line, call in self.following.pop(id, ()):
            line.down.send(frames.pack_json(frames.REPLY, call, {}))

    def _tick(self) -> None:
        """A heartbeat and a sample; the first worker reports steps and checkpoints."""
        now, beats = self.fleet.clock.now(), []
        for id, row in self.rows.items():
            if row["phase"] == "running":
                if self.view.worker == 0:
                    row["report"] = self._report(now - row["started"])
                beats.append({"id": id, "phase": "running", "stage": 0, "length": 0,
                              "report": row["report"]})  # fmt: skip
        self._say({"event": "heartbeat", "time": now, "attempts": beats, "used": False})
        if beats and self.sample:
            for line in self.lines.values():
                line.down.send(self.sample)
        self._beat = asyncio.get_running_loop().call_later(BEAT_S, self._tick)

    def _report(self, age_s: float) -> Json | None:
        step = int((age_s - INIT_S) // STEP_S)
        if step < 1:
            return None
        saved = int(age_s // SAVED_S * SAVED_S / STEP_S)
        return {"step": step, "step_s": STEP_S, "loss": 2.0, **({"saved": saved} if saved else {})}

    def _say(self, event: Json) -> None:
        frame = frames.pack_frame(frames.EVENT, 0, json.dumps(event).encode())
        for line in self.lines.values():
            line.down.send(frame)

    def _boot(self) -> str:
        return f"{self.view.key}-boot-{self.view.boot}"
