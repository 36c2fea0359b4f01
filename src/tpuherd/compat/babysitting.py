"""Watches TPUs from the user's program, and calls its callbacks for each new one.

The engine keeps the TPUs: it requests, replaces and deletes them, whether this program runs or not.
The program only runs what the user wrote. At each look, for each TPU:
- a node that is new: `creation_callback` returns its context, which is kept on disk, and
  `start_fn` runs in a process for each worker (start_processes.py);
- the same node after the program was started again: the kept context goes on, and `start_fn` runs
  only where nothing that it started still runs;
- a node that is lost: its processes are interrupted, and the engine replaces it.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tpuherd.api import run_blocking
from tpuherd.cloud.parse import Node
from tpuherd.compat.callbacks import (
    CallbackFailed,
    CreationCallback,
    StartFunction,
    call_creation_callback,
)
from tpuherd.compat.kept_contexts import KeptContext, context_file, load_context, save_context
from tpuherd.compat.setup_script import BUSY_STATUS, CHECK_BUSY
from tpuherd.compat.start_processes import StartProcess, Worker
from tpuherd.compat.tpu_access import ENDING, TpuAccess, TpuView, WantedTpu
from tpuherd.errors import HerdError, InvalidInput, OperationFailed
from tpuherd.model.stored_job import StoredJob
from tpuherd.targets import fold_names

TRIES = 3  #: of start_fn on one node, if what it ran on the TPU failed
AGAIN_S = 10.0

LogFunction = Callable[..., None]


@dataclass(frozen=True, kw_only=True, slots=True)
class CareOptions:
    """What the user's program says of all its TPUs."""

    start_fn: StartFunction
    creation_callback: CreationCallback
    all_workers: bool
    unhealthy_s: float
    look_s: Callable[[], float]  #: between two looks; the program may change it
    note: LogFunction  #: for what is shown only on request
    warn: LogFunction


@dataclass(kw_only=True, slots=True)
class TpuCare:
    """One TPU: what was done for its present node."""

    wanted: WantedTpu
    job: StoredJob | None = None
    incarnation: str = ""  #: of the node that is served
    context: Any = None
    processes: dict[Worker, StartProcess] = field(default_factory=dict)
    tries: dict[Worker, int] = field(default_factory=dict)
    again_at: dict[Worker, float] = field(default_factory=dict)
    unhealthy_since: float | None = None
    message: str = ""
    over: bool = False  #: it is not looked after any more
    failed: str = ""  #: the sentence, if that is start_fn's fault

    @property
    def host(self) -> str:
        return self.wanted.host


class Babysitter:
    """Holds the processes of `start_fn`."""

    def __init__(self, wanted: Sequence[WantedTpu], options: CareOptions) -> None:
        self._options = options
        self._access = TpuAccess()
        self._zone = wanted[0].zone
        self.tpus = [TpuCare(wanted=one) for one in wanted]

    def care(self, creating: AbstractContextManager[Any]) -> None:
        """Request them, and look after them for as long as there are any; Ctrl+C ends only this.

        `creating` is held until all are requested.
        """
        try:
            with creating:
                self._request_all()
            while left := [one for one in self.tpus if not one.over]:
                try:
                    self._look_once(left)
                except (CallbackFailed, InvalidInput):
                    raise
                except HerdError as error:
                    self._options.warn(f"{error.sentence}; looking again")
                self._access.clock.wait(self._options.look_s())
        except KeyboardInterrupt:
            self._detach()
            return
        finally:
            for one in self.tpus:
                for process in one.processes.values():
                    process.leave()
        if failed := [one.failed for one in self.tpus if one.failed]:
            raise OperationFailed("; ".join(failed))

    def _request_all(self) -> None:
        """Make sure that each is kept; mistakes are found before anything is created."""
        run_blocking(self._access.check([one.wanted for one in self.tpus]))
        for one in self.tpus:
            self._options.note(run_blocking(self._access.request(one.wanted)))

    def _detach(self) -> None:
        hosts = fold_names(one.host for one in self.tpus)
        self._options.warn(
            f"detached from {hosts}: the TPUs stay, and so does what runs there;"
            " delete_one_tpu, delete_all and `herd down` delete them"
        )

    def _look_once(self, left: Sequence[TpuCare]) -> None:
        views = run_blocking(self._access.look_at(self._zone, [one.host for one in left]))
        for one in left:
            view = views[one.host]
            if view.job is None:
                self._interrupt(one)
                one.over = True
                self._options.warn(f"{one.host} was removed: it is not looked after any more")
                continue
            one.job = view.job
            self._look_at(one, view)

    def _look_at(self, one: TpuCare, view: TpuView) -> None:
        node = view.node
        if node is None or node.state != "READY":
            self._note_absence(one, view)
            return
        self._check_health(one, node)
        if node.incarnation != one.incarnation:
            self._interrupt(one)
            self._serve_node(one, node)
        self._collect_ends(one)

    def _note_absence(self, one: TpuCare, view: TpuView) -> None:
        node = view.node
        gone = node is None or node.incarnation != one.incarnation or node.state in ENDING
        if one.incarnation and gone:
            self._options.warn(f"{one.host} is lost; herd replaces it")
            self._interrupt(one)
            one.incarnation = ""
        if view.message and view.message != one.message:
            one.message = view.message
            self._options.note(f"{one.host}: {view.message}")

    def _check_health(self, one: TpuCare, node: Node) -> None:
        """Replace a node that has been unhealthy for too long; the engine does so as well."""
        now = self._access.clock.now()
        if node.health in ("", "HEALTHY"):
            one.unhealthy_since = None
        elif one.unhealthy_since is None:
            one.unhealthy_since = now
        elif now - one.unhealthy_since > self._options.unhealthy_s:
            self._options.warn(f"{one.host} has been {node.health} for too long; replacing it")
            one.unhealthy_since = None
            run_blocking(self._access.replace_node(one.host, self._zone))

    # ---- callbacks -------------------------------------------------------------------------------

    def _serve_node(self, one: TpuCare, node: Node) -> None:
        """Call the callbacks for a node that this program has not seen."""
        kept = self._load_kept(one)
        one.tries, one.again_at, one.processes = {}, {}, {}
        if kept is not None and kept.incarnation == node.incarnation:
            busy = self._busy_workers(one)
            one.context, one.incarnation = kept.context, node.incarnation
            self._start(one, [worker for worker in self._workers(one) if worker not in busy])
            return
        options = self._options
        options.note(f"{one.host} is created; calling creation_callback")
        before = kept.context if kept is not None else None
        one.context = call_creation_callback(options.creation_callback, one.host, before)
        assert one.job is not None
        fresh = KeptContext(
            job_made_at=one.job.made_at, incarnation=node.incarnation, context=one.context
        )
        save_context(self._context_file(one), fresh, one.host)
        one.incarnation = node.incarnation
        self._start(one, self._workers(one))

    def _load_kept(self, one: TpuCare) -> KeptContext | None:
        """Return what was kept of this job's TPU, not of an earlier one with the same name."""
        assert one.job is not None
        kept = load_context(self._context_file(one), one.host)
        return kept if kept is not None and kept.job_made_at == one.job.made_at else None

    def _context_file(self, one: TpuCare) -> Path:
        assert one.job is not None
        return context_file(self._access.store_folder, one.job.job)

    def _workers(self, one: TpuCare) -> list[Worker]:
        return ["all"] if self._options.all_workers else list(range(one.wanted.slices))

    def _busy_workers(self, one: TpuCare) -> set[Worker]:
        """Return the workers on which something that start_fn started still runs."""
        result = run_blocking(self._access.exec(f"{self._zone}/{one.host}", "sh", "-c", CHECK_BUSY))
        words = {host.host: host.status for host in result.hosts}
        if any(status not in (0, BUSY_STATUS) for status in words.values()):
            raise OperationFailed(f"{one.host} can't be asked what runs there")
        busy = [host for host, status in words.items() if status == BUSY_STATUS]
        if busy:
            self._options.note(f"what start_fn started still runs on {fold_names(busy)}")
        found: set[Worker] = {int(host.rpartition("/w")[2]) for host in busy}
        return found | ({"all"} if busy else set())

    def _start(self, one: TpuCare, workers: Sequence[Worker]) -> None:
        for worker in workers:
            one.tries[worker] = one.tries.get(worker, 0) + 1
            one.processes[worker] = StartProcess(
                self._options.start_fn, one.context, worker, f"{one.host}/{worker}"
            )

    def _collect_ends(self, one: TpuCare) -> None:
        """Run start_fn again where a command on the TPU failed; give up where the program did."""
        for worker, process in list(one.processes.items()):
            failure = process.failure()
            if failure is None:
                continue
            if process.retryable and one.tries[worker] < TRIES:
                self._start_again(one, worker, failure)
                continue
            del one.processes[worker]
            one.over = True
            one.failed = (
                f"start_fn failed on {one.host}, worker {worker}: {failure};"
                f" {one.host} stays, and start_fn runs there when the program is started again"
            )
            self._options.warn(one.failed)

    def _start_again(self, one: TpuCare, worker: Worker, failure: str) -> None:
        now = self._access.clock.now()
        if worker not in one.again_at:
            one.again_at[worker] = now + AGAIN_S
            self._options.warn(f"{one.host}, worker {worker}: {failure}; running start_fn again")
        if now >= one.again_at[worker] and worker not in self._busy_workers(one):
            del one.again_at[worker]
            self._start(one, [worker])

    def _interrupt(self, one: TpuCare) -> None:
        for process in one.processes.values():
            process.interrupt()
        one.processes = {}
