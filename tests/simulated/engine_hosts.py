"""Virtual hosts: the agent's real state machine, its effects on a small virtual daemon and disk.

A machine lives as long as its node. Its agent may be killed and come again, its power may go and
come back; what the agent saved is there still, what it did not save is not.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

from tests.simulated.engine_agent_effects import EFFECTS, ignored
from tests.simulated.engine_fleet import Disk, Fleet
from tests.simulated.engine_links import VirtualLink
from tests.simulated.engine_programs import TERM, Process
from tpuherd.errors import NotReached
from tpuherd_host.agent import frames
from tpuherd_host.agent.log_records import pack_record
from tpuherd_host.agent.state_machine import messages
from tpuherd_host.agent.state_machine.reducer import next_wake_time, reduce_event
from tpuherd_host.agent.state_machine.rpc_methods import PURE
from tpuherd_host.agent.state_machine.state import ATTEMPT, AgentState, Ending, Task
from tpuherd_host.agent.state_machine.task_lifecycle import adopt_previous, orphan_task
from tpuherd_host.agent.threaded_methods import THREADED
from tpuherd_sim.model.host_view import HostView

BOOT_S = 8.0  #: from the power to the door
HALT_S = 25.0  #: from the power button to the end of all
SOFT_S = 5.0  #: delay until unsynced writes are on the disk
NEWS_S = 0.5  #: delay of the metadata server's answers


class Machine:
    """One running host: a ProgramHost for processes, with an agent behind its links."""

    def __init__(self, view: HostView, fleet: Fleet) -> None:
        self.view = view
        self.fleet = fleet
        self.disk = Disk()
        self.state: AgentState | None = None  #: of its agent, if one lives
        self.agent_skew_s = 0.0
        self.lines: dict[int, VirtualLink] = {}
        self.readers: dict[int, frames.FrameReader] = {}
        self.processes: dict[str, Process] = {}
        self.opened = 0
        self.on = False
        self.door_at = 0.0
        self.held_until = 0.0  #: the chips are held by a zombie
        self.used_by: str = ""  #: who else has the chips
        self.deaf: set[str] = set()  #: verbs that are never answered
        self.stuck = False  #: its agent is stopped, but alive
        self.thawed_at = 0.0
        self.news: dict[str, str] = {}
        self.ending = ""  #: how its init says that it goes down
        self.sample: Mapping[str, Any] | None = None  #: what its agent measures
        self.unseen: dict[str, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._queue: deque[messages.Event] = deque()
        self._judging = False
        self._waiting: list[Callable[[], None]] = []  #: what a frozen host did not see
        self.power_on()

    # ---- what it is like -------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return f"{self.view.node}/w{self.view.worker}"

    @property
    def runs(self) -> bool:
        """Power, and not frozen."""
        return self.on and not self.view.hung

    @property
    def silent(self) -> bool:
        """Nothing comes through."""
        return not self.on or self.view.network == "down" or not self.view.ssh

    @property
    def answers(self) -> bool:
        """Whether a keep-alive is answered."""
        return self.runs and not self.silent

    @property
    def closed(self) -> bool:
        """Whether no agent listens yet."""
        return self.fleet.clock.now() < self.door_at

    @property
    def slow(self) -> bool:
        return self.view.network == "slow"

    @property
    def boot(self) -> str:
        return f"{self.view.key}-boot-{self.view.boot}"

    def now(self) -> float:
        """The host's time, as its agent shows it."""
        return self.fleet.clock.now() + self.agent_skew_s

    def free(self) -> bool:
        """Whether the chips are free."""
        held = any(one.alive or one.left for one in self.processes.values())
        return not held and self.fleet.clock.now() >= self.held_until

    # ---- its life --------------------------------------------------------------------------------

    def become(self, view: HostView) -> None:
        """Follow a change of the host view: power, boots, freezes, networks."""
        before, self.view = self.view, view
        if before.hung and not view.hung:
            self.thawed_at = self.fleet.clock.now()
        if not view.on:
            self.power_off()
        elif view.boot != before.boot or not before.on:
            self.power_off()
            self.power_on()
        elif view.soft_off != before.soft_off and self.on:
            self.press()
        if not self.answers:
            for line in list(self.lines.values()):
                line.hold()
        else:
            for line in list(self.lines.values()):
                line.pump()
            waiting, self._waiting = self._waiting, []
            for work in waiting:
                work()

    def power_on(self) -> None:
        """It boots."""
        if self.view.on:
            self.on = True
            self.ending = ""
            self.held_until = 0.0
            self.door_at = self.fleet.clock.now() + BOOT_S
            self.unseen.clear()
            for line in list(self.lines.values()):
                # A host answers an unknown connection at once.
                self.later(BOOT_S, line.cut, NotReached(f"{self.name} has been rebooted"))

    def power_off(self) -> None:
        """Everything that runs is gone, and what the disk had no time for."""
        if not self.on:
            return
        self.on = False
        now = self.fleet.clock.now()
        for id, (_, safe_at) in list(self.disk.works.items()):
            if safe_at > now:
                older = self.disk.before.get(id)
                del self.disk.works[id]
                if older is not None:
                    self.disk.works[id] = (older, 0.0)
        processes, self.processes = list(self.processes.values()), {}
        for process in processes:
            process.vanish()
        self.kill_agent(quiet=True)
        for line in list(self.lines.values()):
            line.hold()
        self._waiting.clear()

    def press(self) -> None:
        """The power button: TERM to all, and the end soon."""
        boot = self.view.boot
        self.ending = "REBOOT" if self.view.restarting else "TERM"
        self.handle_event(messages.HostNotice("shutdown", self.ending))
        for process in list(self.processes.values()):
            process.signal(TERM)
        self.later(HALT_S, self.halt, boot)

    def halt(self, boot: int) -> None:
        """The end of a shutdown."""
        if self.on and self.view.boot == boot:
            self.power_off()

    def kill_agent(self, *, quiet: bool = False) -> None:
        """Kill its agent; processes keep running. The next connection starts another agent."""
        if self.state is None:
            return
        self.state = None
        self.readers.clear()
        if not quiet:
            for line in list(self.lines.values()):
                line.cut(NotReached(f"the agent of {self.name} is gone"))

    def lose_state(self) -> None:
        """Remove the agent's folder: processes keep running, but their records are gone."""
        for kept in (self.disk.works, self.disk.before, self.disk.pids, self.disk.exits):
            kept.clear()
        self.disk.logs.clear()
        self.disk.lines.clear()
        self.kill_agent()

    def stick(self, seconds: float) -> None:
        """Stop its agent for a while, as by SIGSTOP: links stay open, without answers."""
        self.stuck = True
        self.later(seconds, self.unstick)

    def unstick(self) -> None:
        """Let the agent continue, with all that arrived meanwhile."""
        self.stuck = False
        waiting, self._waiting = self._waiting, []
        for work in waiting:
            work()

    def say(self, content: Mapping[str, Any]) -> None:
        """Something that its agent says to all, be it true or not."""
        for line in list(self.lines.values()):
            line.down.send(frames.pack_json(frames.EVENT, 0, dict(content)))

    def hear(self, tree: Mapping[str, Any]) -> None:
        """What the metadata server says now."""
        for key in ("preempted", "maintenance-event"):
            value = str(tree.get(key, ""))
            if self.news.get(key) != value:
                self.news[key] = value
                self.later(NEWS_S, self.handle_event, messages.HostNotice(key, value))

    def begin_agent(self) -> None:
        """An agent comes up and finds what an earlier one left."""
        self.agent_skew_s = self.view.clock_skew_s
        works = {}
        for id, (left, _) in list(self.disk.works.items()):
            process = self.processes.get(id)
            if left.is_live and left.phase == "starting" and id in self.disk.pids:
                left = left._replace(pid=self.disk.pids[id], ticks=1, phase="running")
            if left.is_live and left.started is None and left.pid:
                left = left._replace(started=left.asked)
            alive = process is not None and process.alive
            work, why = adopt_previous(left, self.boot, alive, self.now())
            works[id] = work._replace(length=len(self.disk.logs.get(id, b"")))
            if why:
                self.save(works[id], False)
        marks = {id for id, one in self.processes.items() if one.alive or one.left}
        for mark in marks - set(works):
            lost = orphan_task(mark, self.boot, self.now())
            if lost is not None:
                works[mark] = lost
        hello = {
            "protocol": frames.PROTOCOL, "agent": "virtual", "python": "3.10",
            "host": self.view.name, "boot": self.boot, "user": "me", "home": "/home/me",
            "pid": 7, "zlib": "1",
        }  # fmt: skip
        self.state = AgentState(
            hello=hello,
            boot=self.boot,
            works=works,
            epochs=dict(self.disk.epochs),
            stamps=frozenset(self.disk.stamps),
        )
        self.wake()
        news = {**self.news, "shutdown": self.ending} if self.ending else self.news
        for key, value in news.items():
            self.later(NEWS_S, self.handle_event, messages.HostNotice(key, value))

    # ---- lines -----------------------------------------------------------------------------------

    def open(self) -> VirtualLink:
        """Somebody knocks: at the agent, which is brought up if there is none."""
        if self.state is None:
            self.begin_agent()
        self.opened += 1
        line = VirtualLink(self, self.opened)
        self.lines[line.number] = line
        self.readers[line.number] = frames.FrameReader()
        self.handle_event(messages.ConnectionOpened(line.number))
        return line

    def heard(self, line: VirtualLink, piece: bytes) -> None:
        """Frames came for the agent."""
        reader = self.readers.get(line.number)
        for frame in reader.feed(piece) if reader is not None else ():
            verb = frame.content.get("verb") if frame.kind == frames.CALL else None
            if verb not in self.deaf:
                self.handle_event(messages.FrameReceived(line.number, frame))

    def flushed(self, line: VirtualLink, many: int) -> None:
        """So much has left."""
        self.handle_event(messages.BytesFlushed(line.number, many))

    def left(self, line: VirtualLink) -> None:
        """A line is over."""
        if self.lines.pop(line.number, None) is not None:
            self.readers.pop(line.number, None)
            self.handle_event(messages.ConnectionClosed(line.number))

    # ---- the agent -------------------------------------------------------------------------------

    def handle_event(self, event: messages.Event) -> None:
        """Let the agent decide, and carry out its effects."""
        if (self.view.hung or self.stuck) and self.on:
            self._waiting.append(partial(self.handle_event, event))
            return
        self._queue.append(event)
        if self._judging:
            return
        self._judging = True
        try:
            while self._queue and self.state is not None and self.on:
                self.decide(self._queue.popleft())
        finally:
            self._judging = False
            self._queue.clear()
        self.wake()

    def decide(self, event: messages.Event) -> None:
        """One step of the state machine, and its effects in order."""
        assert self.state is not None
        self.state, effects = reduce_event(self.state, event, self.now(), PURE, THREADED)
        for effect in effects:
            if self.state is None:
                return
            EFFECTS.get(type(effect), ignored)(self, effect)

    def wake(self) -> None:
        """See to it that it is woken in time."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        at = next_wake_time(self.state) if self.state is not None else None
        if at is not None:
            wait_s = max(at - self.now(), 0.0) + 1e-4
            self._timer = self.later(wait_s, self.handle_event, messages.TimerFired())

    def save(self, work: Task, hard: bool) -> None:
        """Write down how a piece of work stands."""
        if self.view.disk_full:
            return
        older = self.disk.works.get(work.id)
        if older is not None:
            self.disk.before[work.id] = older[0]
        if hard:
            self.disk.before[work.id] = work
        safe_at = 0.0 if hard else self.fleet.clock.now() + SOFT_S
        self.disk.works[work.id] = (work, safe_at)

    def write(self, id: str, port: int, text: str) -> None:
        """A line into a log."""
        if not self.view.disk_full:
            log = self.disk.logs.setdefault(id, bytearray())
            log += pack_record(self.now(), port, f"{text}\n".encode())
            self.disk.lines.setdefault(id, []).append(text)
            self.handle_event(messages.LogGrew(id, 0, len(log)))

    # ---- processes -------------------------------------------------------------------------------

    def told(self, process: Process, text: str) -> None:
        """A process prints a line."""
        self.write(process.work, 2 if "rror" in text else 1, text)

    def report(self, content: dict[str, Any]) -> None:
        """A process tells the agent its step."""
        self.handle_event(messages.StepReported(content))

    def begin(self, work: Task, boot: int) -> None:
        """The supervisor begins a process; a frozen one does once it thaws."""
        if self.on and self.view.hung:
            self._waiting.append(partial(self.begin, work, boot))
        if not self.runs or self.view.boot != boot:
            return
        self.fleet.pids += 1
        stage = work.stages[work.stage]
        command = work.kind == ATTEMPT and work.stage == len(work.stages) - 1
        env = dict(stage.env)
        process = Process(
            host=self,
            work=work.id,
            pid=self.fleet.pids,
            env={**env, "HERD_WORK": env.get("HERD_WORK") or work.id},
            script=self.fleet.script(env.get("HERD_JOB", "")),
        )
        self.processes[work.id] = process
        self.disk.pids[work.id] = process.pid
        self.disk.exits.pop(work.id, None)
        self.handle_event(messages.ProcessStarted(work.id, process.pid, 1))
        if command:
            self.fleet.gang(process).join(process)
        else:
            self.later(process.script.setup_s, self.set_up, process)

    def set_up(self, process: Process) -> None:
        """A step of a setup is through."""
        slot = f"{process.env.get('HERD_JOB')}-{process.env.get('HERD_SLOT')}"
        many = self.fleet.setups.get(slot, 0)
        if process.alive and many < process.script.setup_fails:
            self.fleet.setups[slot] = many + 1
            self.told(process, "E: Unable to locate package")
            process.end(100)
        elif process.alive:
            process.end(0)

    def over(self, process: Process, exit: int | None, signal: int | None) -> None:
        """The supervisor saw the end of a process."""
        if not self.on:
            return
        ending = {"exit": exit, "signal": signal, "pid": process.pid, "at": self.now()}
        self.disk.exits[process.work] = ending
        if process.gang is not None and process.script.chips_s:
            self.held_until = self.fleet.clock.now() + process.script.chips_s
        self.handle_event(messages.ProcessEnded(process.work, Ending(exit, signal), self.now()))
        self.handle_event(messages.OutputsClosed(process.work))

    def later(
        self, seconds: float, work: Callable[..., None], *arguments: Any
    ) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(seconds, work, *arguments)


def fits(machine: Machine, pattern: str) -> bool:
    """NODE/wN patterns, or NODE alone for all of it."""
    return fnmatchcase(machine.name, pattern) or fnmatchcase(machine.view.node, pattern)
