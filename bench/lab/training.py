"""The training script of one job: each attempt a gang that steps together, saves and is lost."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import Any

from bench.lab.constants import Constants
from bench.lab.trace_cloud import loop_time

from tpuherd.clock import Clock
from tpuherd.ports import Host
from tpuherd_host.train.run import EARLY
from tpuherd_host.train.save_interval import SaveCosts, count_losses, parse_node_life

BEAT_S = 10.0  #: between heartbeats of an agent whose script makes no steps
REPORTED_S = 290.0  #: between those that only repeat that it steps: more are of no use to anybody
JUST_S = 1e-3  #: what ends at this moment is complete
INTERRUPTED, KILLED = 75, 9
#: Delivers what an agent says to the engine: node, worker, message.
TellEngine = Callable[[str, int, Mapping[str, Any]], None]


class GangPhase(StrEnum):
    """How far an attempt is."""

    STARTING = "starting"  #: not on all hosts yet
    LOADING = "loading"  #: before the first step
    STEPPING = "stepping"
    SAVING = "saving"  #: it was told to stop
    OVER = "over"


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """A time in which the script made steps, and saved."""

    end: float
    resumed_s: float  #: the progress with which it began
    reached_s: float  #: and ended
    blocked_s: float  #: how long saves kept it from stepping
    losses: int  #: attempts before it that lost work


@dataclass(kw_only=True, slots=True)
class TrainingProgress:
    """Progress is counted in seconds of training. The script saves by the rule of `Run`."""

    constants: Constants
    spans: list[Span] = field(default_factory=list)
    durable_s: float = 0.0  #: the progress that the newest checkpoint has
    saved_by: int = 0  #: the attempt that wrote it
    losses: int = 0  #: what that attempt knew of
    at_end: bool = False  #: it ended with this checkpoint

    def add_span(
        self, start: float, end: float, *, life_s: float, attempt: int, until: float, save: bool
    ) -> None:
        """Record that it stepped from `start` to `end`, with the saves that were due.

        What was being written survives if it is durable before `until`. `save`: it saved at the
        end.
        """
        losses = attempt - 1
        if self.saved_by:
            losses = count_losses(attempt, self.saved_by, self.losses, at_end=self.at_end)
        resumed_s = reached_s = self.durable_s
        block_s, write_s = self.constants.save_block_s, self.constants.save_durable_s
        costs = SaveCosts(blocked=[], took=[], usual_s=life_s)
        now, due_s, blocked_s = start, float(EARLY), 0.0
        while now + due_s < end:
            now += due_s
            reached_s += due_s
            if now + block_s + write_s <= until:
                self._note_checkpoint(reached_s, attempt, losses)
            blocked_s += min(block_s, end - now)
            now += block_s
            due_s = self._seconds_until_save(costs, reached_s, losses)
        reached_s += max(0.0, end - now)
        if save and end + block_s + write_s <= until:
            self._note_checkpoint(reached_s, attempt, losses, at_end=True)
        self.spans.append(
            Span(
                end=end, resumed_s=resumed_s, reached_s=reached_s, blocked_s=blocked_s,
                losses=losses,
            )
        )  # fmt: skip

    def _note_checkpoint(
        self, reached_s: float, attempt: int, losses: int, *, at_end: bool = False
    ) -> None:
        self.durable_s, self.saved_by, self.losses, self.at_end = (
            reached_s, attempt, losses, at_end,
        )  # fmt: skip

    def _seconds_until_save(self, costs: SaveCosts, reached_s: float, losses: int) -> float:
        took_s = self.constants.save_block_s + self.constants.save_durable_s
        if len(costs.blocked) < 1:
            costs.add_blocked(self.constants.save_block_s)
            costs.add_duration(took_s)
        return float(costs.steps_until_save(1.0, reached_s, losses))


class Training:
    """All attempts of the job."""

    def __init__(self, constants: Constants, clock: Clock) -> None:
        self.constants = constants
        self.clock = clock
        self.progress = TrainingProgress(constants=constants)
        self.runs: dict[str, GangRun] = {}  #: those that agents know
        self.all_runs: list[GangRun] = []
        self.tell: TellEngine = lambda node, worker, event: None
        self.newest: GangRun | None = None

    def start_attempt(self, host: Host, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Start it on one host; it loads when all have started."""
        attempt = str(arguments["attempt"])
        run = self.runs.get(attempt)
        if run is None:
            run = self.runs[attempt] = self.newest = GangRun(self, host.node, arguments)
            self.all_runs.append(run)
        run.add_worker(host.worker)
        status = run.build_status(host.worker)
        self.tell(host.node, host.worker, {"event": "attempt", **status})
        return status

    def list_statuses(self, node: str, worker: int) -> list[Mapping[str, Any]]:
        return [
            run.build_status(worker)
            for run in self.runs.values()
            if run.node == node and worker in run.workers
        ]

    def stop_node(self, node: str, why: str) -> None:
        """A notice: the agents stop what runs there."""
        if self.newest is not None and self.newest.node == node:
            self.newest.stop(self.newest.notice_grace_s, why)

    def lose_node(self, node: str) -> None:
        """What runs there is gone, and can tell nobody."""
        if self.newest is not None and self.newest.node == node:
            self.newest.end_gang(None, tell=False)
        self.runs = {id: run for id, run in self.runs.items() if run.node != node}

    def close(self) -> None:
        """The laboratory ends: what the newest attempt did until now counts."""
        if self.newest is not None:
            self.newest.close()


class GangRun:
    """One attempt on all hosts of its node."""

    def __init__(self, training: Training, node: str, arguments: Mapping[str, Any]) -> None:
        environment: Mapping[str, str] = arguments.get("env", {})
        self.id = str(arguments["attempt"])
        self.node = node
        self.number = int(arguments["number"])
        self.slot = str(arguments["slot"])
        self.notice_grace_s = float(arguments["notice_grace_s"])
        self.size = int(environment.get("HERD_WORKERS", "1"))
        self.life_s = parse_node_life(environment.get("HERD_LIFE_S", ""))
        self.workers: dict[int, float] = {}  #: when it was started on each, by the clock
        self.phase = GangPhase.STARTING
        self.started_at = self.stepped_at = inf  #: by the loop
        self.why = ""
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._training = training
        self._ended_clock: float | None = None
        self._exit: int | None = None
        self._signal: int | None = None
        self._stopped_at = inf
        self._timers: dict[str, asyncio.TimerHandle] = {}  #: the next phase and heartbeat

    def add_worker(self, worker: int) -> None:
        if worker in self.workers:
            return
        self.workers[worker] = self._training.clock.now()
        if len(self.workers) == self.size and self.phase is GangPhase.STARTING:
            self.phase, self.started_at = GangPhase.LOADING, loop_time()
            self._call_later("phase", self._training.constants.restart_s, self._begin_steps)

    def _begin_steps(self) -> None:
        self.phase, self.stepped_at = GangPhase.STEPPING, loop_time()
        self._send_report()
        self._call_later("beat", REPORTED_S, self._send_beat)

    def stop(self, grace_s: float, why: str) -> None:
        """TERM: it saves and ends; KILL after the grace."""
        if self.phase in (GangPhase.SAVING, GangPhase.OVER):
            return
        self.why = why
        stepping, constants = self.phase is GangPhase.STEPPING, self._training.constants
        self.phase = GangPhase.SAVING
        save_s = constants.save_block_s + constants.save_durable_s if stepping else 0.0
        self._stopped_at = loop_time()
        self._clear_timers()
        self._call_later("phase", min(save_s, grace_s), self.end_gang, INTERRUPTED)

    def end_gang(self, exit: int | None, tell: bool = True) -> None:
        """It is over on all hosts; an exit of None is a KILL."""
        if self.phase is GangPhase.OVER:
            return
        if self.phase is GangPhase.STEPPING:
            self._record_span(loop_time(), until=loop_time())
        elif self.phase is GangPhase.SAVING and self.stepped_at < inf:
            self._record_span(self._stopped_at, until=loop_time() + JUST_S, save=True)
        self._clear_timers()
        self.phase = GangPhase.OVER
        self._ended_clock = self._training.clock.now()
        self._exit, self._signal = exit, KILLED if exit is None else None
        if tell and not self.ended.done():
            self.ended.set_result(None)
        for worker in self.workers if tell else ():
            self._tell_engine(worker, {"event": "ended", **self.build_status(worker)})

    def close(self) -> None:
        """Record what it did until now: the laboratory ends."""
        if self.phase is GangPhase.STEPPING:
            self._record_span(loop_time(), until=inf)
        elif self.phase is GangPhase.SAVING and self.stepped_at < inf:
            self._record_span(self._stopped_at, until=inf, save=True)
        self.phase = GangPhase.OVER
        self._clear_timers()

    def _record_span(self, end: float, *, until: float, save: bool = False) -> None:
        self._training.progress.add_span(
            self.stepped_at,
            end,
            life_s=self.life_s,
            attempt=self.number,
            until=until,
            save=save,
        )

    # ---- what its agents say ---------------------------------------------------------------------

    def build_status(self, worker: int) -> Mapping[str, Any]:
        """The agent's status of it."""
        over = self._ended_clock is not None
        phase = "ended" if over else "sweeping" if self.phase is GangPhase.SAVING else "running"
        return {
            "id": self.id, "kind": "attempt", "phase": phase, "slot": self.slot,
            "number": self.number, "asked": self.workers.get(worker), "logged": None,
            "started": self.workers.get(worker), "ended": self._ended_clock,
            "exit": self._exit, "signal": self._signal, "stopped": bool(self.why),
            "why": self.why, "tail": [],
            "report": self._progress_report() if worker == 0 else None,
        }  # fmt: skip

    def _progress_report(self) -> dict[str, Any] | None:
        if self.stepped_at == inf:
            return None
        progress = self._training.progress
        steps = progress.durable_s + max(0.0, loop_time() - self.stepped_at)
        if self.phase is GangPhase.OVER and progress.spans:
            steps = progress.spans[-1].reached_s
        return {"step": int(steps) + 1, "step_s": 1.0, "saved": int(progress.durable_s)}

    def _send_report(self) -> None:
        report = {"attempt": self.id, "report": self._progress_report()}
        self._tell_engine(0, {"event": "step", **report})

    def _send_beat(self) -> None:
        stepping = self.phase is GangPhase.STEPPING
        row = {"id": self.id, "report": self._progress_report() if stepping else None}
        self._tell_engine(0, {"event": "heartbeat", "attempts": [row]})
        self._call_later("beat", REPORTED_S if stepping else BEAT_S, self._send_beat)

    def _tell_engine(self, worker: int, event: Mapping[str, Any]) -> None:
        self._training.tell(self.node, worker, event)

    def _call_later(
        self, name: str, seconds: float, change: Callable[..., None], *arguments: Any
    ) -> None:
        if seconds < inf:
            loop = asyncio.get_running_loop()
            self._timers[name] = loop.call_later(seconds, change, *arguments)

    def _clear_timers(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
