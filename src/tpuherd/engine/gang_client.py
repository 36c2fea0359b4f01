"""Watch the hosts of all bids, and prepare, start and stop each bid's hosts as one gang."""

import asyncio
import json
from collections import defaultdict
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from tpuherd.engine import gang_env
from tpuherd.engine.agent_call import CALL_S, call_agent
from tpuherd.engine.container_images import container_command, provide_image
from tpuherd.engine.environments import provide_environment
from tpuherd.engine.fetch_ahead import can_fetch, fetch_checkpoint
from tpuherd.engine.fetch_outputs import fetch_outputs
from tpuherd.engine.free_chips import free_chips
from tpuherd.engine.host_failures import (
    HostFailure,
    failure_message,
    setup_failure,
    unreached_failure,
)
from tpuherd.engine.host_messages import (
    InvalidMessage,
    KeptFiles,
    MovedFiles,
    PingReply,
    StacksReply,
    parse_attempt,
    parse_message,
)
from tpuherd.engine.host_watcher import HostWatcher, WatcherDeps, has_ended
from tpuherd.engine.nfs_mounts import mount_nfs_folders
from tpuherd.errors import DiskFilled, HerdError, NotFound, NotReached, OperationFailed, Superseded
from tpuherd.jobfile.launch_spec import stagger_steps
from tpuherd.model.node_spec import LaunchSpec
from tpuherd.model.observed import HostStatus
from tpuherd.model.slots_and_plan import Launch
from tpuherd.ports import FetchedFiles, Host
from tpuherd_host.agent.snapshots.tree import error_text

COPY_S = 900.0  #: what a setup made is copied, on the disk of the host
DEADMAN_S = 72 * 3600.0  #: without contact from an engine, hosts stop their attempt
HOLD_S = 30.0  #: how long a host that is about to go may wait until its outputs are fetched
LEASE_S = 300.0  #: between renewals of the agents' leases
SETUPS_MAX = 200  #: setup ids in a row that a host may report as taken

Json = Mapping[str, Any]


class GangClient:
    """Hold a watcher for each host, by bid, and call all hosts of a bid at the same time."""

    def __init__(
        self, means: WatcherDeps, spawn: Callable[[Coroutine[Any, Any, None]], Any]
    ) -> None:
        self.refused: dict[str, str] = {}  #: jobs whose hosts say that another engine leads: why
        self.means = means
        self._spawn = spawn
        self._watches: dict[str, list[HostWatcher]] = {}
        self._statuses: dict[str, tuple[HostStatus, ...]] = {}  #: of all hosts of each bid
        self._changed: set[str] = set()  #: bids whose statuses are others since
        self._tasks: dict[HostWatcher, asyncio.Task[None]] = {}
        self._setups: dict[str, int] = {}
        self.fetched: dict[str, str] = {}  #: by bid: the trial whose outputs have come last
        self._freed: set[str] = set()  #: bids whose chips were free before an attempt
        #: One installation at a time of a job's environment.
        self.installing: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def host_statuses(self) -> Mapping[str, tuple[HostStatus, ...]]:
        """The status of every host, by bid; the same tuple as before if nothing has changed."""
        for bid in self._changed:
            watches = self._watches.get(bid)
            if watches is None:
                self._statuses.pop(bid, None)
            else:
                self._statuses[bid] = tuple(watch.status for watch in watches)
        self._changed.clear()
        return dict(self._statuses)

    def watch_bids(self, held: Mapping[str, str], hosts: Mapping[str, Sequence[Host]]) -> None:
        """Watch the hosts of these bids. `held`: slots by bid; `hosts`: those of reachable bids.

        The last status of a host is kept as long as its bid is held, even if it is unreachable.
        """
        for bid in [bid for bid in self._watches if bid not in held]:
            for watch in self._watches.pop(bid):
                self._stop_watcher(watch)
            self._changed.add(bid)
            self.fetched.pop(bid, None)
            self._freed.discard(bid)
        jobs = {slot.rpartition("-")[0] for slot in held.values()}
        self.refused = {job: why for job, why in self.refused.items() if job in jobs}
        for bid, slot in held.items():
            there = hosts.get(bid, ())
            if there:
                self._update_watchers(bid, slot, there)
            else:
                for watch in self._watches.get(bid, ()):
                    watch.wanted.clear()

    def _update_watchers(self, bid: str, slot: str, hosts: Sequence[Host]) -> None:
        known = {(one.host.incarnation, one.host.worker): one for one in self._watches.get(bid, ())}
        watches = []
        for host in hosts:
            watch = known.pop((host.incarnation, host.worker), None)
            if watch is None:
                watch = HostWatcher(host, slot, self.means, partial(self._changed.add, bid))
                self._tasks[watch] = self._spawn(watch.run())
            watch.host = host
            watch.wanted.set()
            watches.append(watch)
        for watch in known.values():
            self._stop_watcher(watch)
        if watches != self._watches.get(bid):
            self._watches[bid] = watches
            self._changed.add(bid)

    def _stop_watcher(self, watch: HostWatcher) -> None:
        self._tasks.pop(watch).cancel()
        self._setups.pop(watch.status.name, None)

    async def prepare_hosts(
        self, bid: str, snapshot: str, order: LaunchSpec, secrets: Mapping[str, str]
    ) -> list[HostFailure]:
        """Ship the code to all hosts, then set them up; return the failures by host."""
        watches = self._watches.get(bid, [])
        missing = [unreached_failure(one) for one in watches if one.link is None]
        if missing or not watches:
            return missing or [HostFailure(host=bid, sentence="its hosts are not known yet")]
        if can_fetch(order):
            self._spawn(fetch_checkpoint(self, watches, order, secrets))
        if snapshot:
            try:
                failed = await self._ship_code(watches, snapshot, order.dest)
            except HerdError as error:
                lost = isinstance(error, NotFound)
                return [HostFailure(host=bid, sentence=error.sentence, missing=lost)]
            if failed:
                return [HostFailure(host=host, sentence=why) for host, why in failed.items()]
        if order.environment is not None:
            with only_known_errors():
                failures = await provide_environment(self, watches, order, secrets)
            if failures:
                return failures
        failures = await mount_nfs_folders(self, bid, watches, order.nfs)
        if failures:
            return failures
        failures = await self._run_setup(bid, order, secrets)
        if failures or not order.image:
            return failures
        return await provide_image(self, watches, order.image)

    async def _run_setup(
        self, bid: str, order: LaunchSpec, secrets: Mapping[str, str]
    ) -> list[HostFailure]:
        """Run the user's setup on all hosts."""
        watches = self._watches.get(bid, [])
        if not order.setup:
            return []
        name = f"{bid}-setup-{sha256(json.dumps(order.setup).encode()).hexdigest()[:6]}"

        async def set_up(watch: HostWatcher) -> HostFailure | None:
            steps = stagger_steps(order.setup, watches.index(watch), len(watches))
            return await self.set_up_host(watch, name, {"steps": steps, "secrets": dict(secrets)})

        found = await self.run_on_all(watches, set_up)
        return [one for one in found if isinstance(one, HostFailure)]

    async def _ship_code(
        self, watches: Sequence[HostWatcher], snapshot: str, dest: str
    ) -> Mapping[str, str]:
        """Ship the code; if it was lost here, recover it first from a host that has it."""
        links = [one.link for one in watches if one.link is not None]
        with only_known_errors():
            try:
                return await self.means.hosts.ship(snapshot, dest, links)
            except NotFound:
                await self._recover_code(watches[0].job, snapshot)
            return await self.means.hosts.ship(snapshot, dest, links)

    async def retain_code(self, codes: Mapping[str, Collection[str]]) -> None:
        """Keep these snapshots of jobs here; fetch what is not from hosts that have it."""
        lost = self.means.hosts.retain_snapshots({one for many in codes.values() for one in many})
        for job, snapshot in [(job, one) for job, many in codes.items() for one in many]:
            if snapshot not in lost:
                continue
            try:
                with only_known_errors():
                    await self._recover_code(job, snapshot)
            except (NotFound, OperationFailed):
                continue  # reported when the code is needed

    async def _recover_code(self, job: str, snapshot: str) -> None:
        links = [
            watch.link
            for many in self._watches.values()
            for watch in many
            if watch.link is not None and watch.job == job
        ]
        await self.means.hosts.recover_snapshot(snapshot, links)

    async def set_up_host(self, watch: HostWatcher, name: str, what: Json) -> HostFailure | None:
        """Run the user's setup on one host; a failure from an earlier call is tried again."""
        began = parse_message(PingReply, await call_agent(watch, "ping", {}, CALL_S)).time
        many = self._setups.get(watch.status.name, 0)
        for _ in range(SETUPS_MAX):
            id = f"{name}-{many}"
            answer = await call_agent(watch, "setup", {"id": id, "slot": watch.slot, **what}, None)
            status = parse_attempt(answer)
            if status.id != id:
                continue  # another setup was running and had to end first
            if status.phase == "ended" and status.exit == 0:
                return None
            many = self._setups[watch.status.name] = many + 1
            if status.asked is None or status.asked >= began:
                return setup_failure(watch, status)
        raise InvalidMessage(f"{SETUPS_MAX} setup ids in a row are already in use")

    async def keep_setup(self, bid: str, dest: str) -> tuple[list[HostFailure], list[str]]:
        """Have all hosts copy what the setup made in the folder, for their trials; return the
        failures, and the hosts whose agents are of an earlier version and cannot: there all trials
        share it."""

        async def keep(watch: HostWatcher) -> HostFailure | str:
            try:
                answer = await call_agent(watch, "trial.keep", {"dest": dest}, COPY_S)
            except NotFound:
                return watch.status.name
            why = parse_message(KeptFiles, answer).refused
            return HostFailure(host=watch.status.name, sentence=why, unfit=True) if why else ""

        found = await self.run_on_all(self._watches.get(bid, []), keep)
        failures = [one for one in found if isinstance(one, HostFailure)]
        return failures, [one for one in found if isinstance(one, str) and one]

    async def begin_trial(
        self, bid: str, slot: str, dest: str, *, run: str = "", safe: str = ""
    ) -> list[MovedFiles]:
        """Have all hosts put the folder back as the setup left it, for this trial or none. What
        the last one wrote is moved aside, or removed if that is the one that is `safe`."""
        arguments = {"dest": dest, "slot": slot, "trial": run, "safe": safe}

        async def begin(watch: HostWatcher) -> MovedFiles:
            try:
                answer = await call_agent(watch, "trial.begin", arguments, COPY_S)
            except NotFound as error:  # its agent is of an earlier version
                if run and watch.renew_agent():
                    raise NotReached("its agent is replaced by one of this version") from error
                return (
                    MovedFiles()
                )  # it stays while others use it: files lie as its trials left them
            return parse_message(MovedFiles, answer)

        found = await self.run_on_all(self._watches.get(bid, []), begin)
        failures = [one for one in found if isinstance(one, HostFailure)]
        if failures:
            kind = NotReached if all(one.unknown for one in failures) else OperationFailed
            raise kind(failure_message(failures))
        return [one for one in found if one.moved]

    async def launch_attempt(
        self, launch: Launch, order: LaunchSpec, env: Mapping[str, str]
    ) -> list[str]:
        """Start on all hosts, or on none: if one refuses, the others are stopped. Return which
        leftovers on the chips were ended before."""
        watches = self._watches.get(launch.bid, [])
        ended = await self._free_chips(launch, watches)
        hosts = [watch.host for watch in watches]

        async def start(watch: HostWatcher) -> HostFailure | None:
            index = watches.index(watch)
            given = {**gang_env.default_environment(hosts, index, order), **order.env, **env}
            place = gang_env.gang_environment(hosts, index, launch, order.cluster)
            verb = start_arguments(launch, order, {**given, **place, **order.trial})
            await call_agent(watch, "start", verb, CALL_S)
            return None

        found = await self.run_on_all(watches, start)
        failures = [one for one in found if isinstance(one, HostFailure)]
        if not failures and watches:
            return ended
        if all(one.unknown for one in failures):  # sending the same launch again shows it
            raise NotReached(failure_message(failures) or f"{launch.bid} has no hosts")
        await self.halt_attempt(
            launch.bid, launch.attempt, 0.0, "not all of its hosts could start it"
        )
        raise OperationFailed(failure_message(failures))

    async def _free_chips(self, launch: Launch, watches: Sequence[HostWatcher]) -> list[str]:
        """Free the chips on all hosts first: else some would start and wait for the others without
        end. Between two trials or items on a node the chips are not looked at."""
        if launch.trial is not None and launch.bid in self._freed:
            return []
        found = await self.run_on_all(watches, lambda one: free_chips(one, self.means.clock))
        failures = [one for one in found if isinstance(one, HostFailure) and one.unknown]
        if failures:
            raise NotReached(failure_message(failures))
        self._freed.add(launch.bid)
        return [line for one in found if isinstance(one, list) for line in one]

    async def halt_attempt(self, bid: str, attempt: str, grace_s: float, why: str) -> None:
        """Stop it on all reachable hosts, and return when their chips are free."""

        async def halt(watch: HostWatcher) -> None:
            arguments = {"attempt": attempt, "grace_s": grace_s, "why": why}
            await call_agent(watch, "halt", arguments, grace_s + CALL_S)

        await self.run_on_all([one for one in self._watches.get(bid, []) if one.link], halt)

    async def collect_stacks(self, bid: str, attempt: str) -> Mapping[str, str]:
        """Return the stacks of its processes as one text per host."""

        async def look(watch: HostWatcher) -> str:
            status = parse_message(
                StacksReply, await call_agent(watch, "stacks", {"attempt": attempt}, CALL_S)
            )
            parts = [f"# {one.pid} {one.command}\n{one.text}\n" for one in status.processes]
            return "\n".join(parts)

        watches = [one for one in self._watches.get(bid, []) if one.link]
        found = await self.run_on_all(watches, look)
        return {
            watch.status.name: text if isinstance(text, str) else f"# {failure_message([text])}\n"
            for watch, text in zip(watches, found, strict=True)
            if text is not None
        }

    async def collect_outputs(
        self, bid: str, order: LaunchSpec | None, into: Path, within_s: float | None = None
    ) -> tuple[FetchedFiles, list[HostFailure]]:
        """Fetch the rest of the logs and, given an `order`, each host's outputs. `within_s`: the
        node goes away; then hosts that are reached bring what they can."""
        watches = self._watches.get(bid, [])
        missing = [unreached_failure(one) for one in watches if one.link is None]
        if not watches:
            missing = [HostFailure(host=bid, sentence="its hosts are not known yet")]
        if missing and (within_s is None or len(missing) >= len(watches)):
            return FetchedFiles(), missing
        found, failures = await fetch_outputs(self, watches, order, into, within_s)
        return found, missing + failures

    def linked_hosts(self) -> list[HostWatcher]:
        """All hosts that are reached."""
        return [one for many in self._watches.values() for one in many if one.link is not None]

    async def keep_leases_alive(self) -> None:
        """Renew the leases at intervals, so that the agents' dead man's switches do not fire."""
        while True:
            await self.means.clock.sleep(LEASE_S)
            await self.renew_leases()

    async def renew_leases(self) -> None:
        watches = [
            one
            for many in self._watches.values()
            for one in many
            if one.link and any(not has_ended(work) for work in one.status.works)
        ]
        terms = {"seconds": DEADMAN_S}
        await self.run_on_all(watches, lambda watch: call_agent(watch, "lease", terms, CALL_S))

    async def run_on_all(
        self,
        watches: Collection[HostWatcher],
        work: Callable[[HostWatcher], Coroutine[Any, Any, Any]],
    ) -> list[Any]:
        """Run it on all hosts at the same time; return the results or failures in their order."""

        async def one(watch: HostWatcher) -> Any:
            try:
                return await work(watch)
            except Superseded as error:
                self.refused[watch.job] = error.sentence
                self.means.stir()
                return HostFailure(host=watch.status.name, sentence=error.sentence)
            except NotReached as error:
                return HostFailure(host=watch.status.name, sentence=error.sentence, unknown=True)
            except HerdError as error:
                full = isinstance(error, DiskFilled)
                return HostFailure(host=watch.status.name, sentence=error.sentence, full=full)
            except TimeoutError:
                sentence = "it did not answer in time"
                return HostFailure(host=watch.status.name, sentence=sentence, unknown=True)
            except InvalidMessage as nonsense:
                watch.report_invalid(nonsense)
                sentence = f"its answer is invalid: {nonsense}"
                return HostFailure(host=watch.status.name, sentence=sentence)
            except OSError as error:
                sentence = f"a file cannot be written on this machine ({error_text(error)})"
                return HostFailure(host=watch.status.name, sentence=sentence)
            except Exception as error:  # noqa: BLE001 - one host never ends the engine
                return HostFailure(host=watch.status.name, sentence=watch.report_failure(error))

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(watch)) for watch in watches]
        return [task.result() for task in tasks]


@contextmanager
def only_known_errors() -> Iterator[None]:
    """Run a call to several hosts; an unexpected error counts as theirs."""
    try:
        yield
    except (HerdError, OSError):
        raise
    except Exception as error:
        what = f"{type(error).__name__}: {error}"[:300]
        raise OperationFailed(f"the hosts sent an invalid answer ({what})") from error


def start_arguments(launch: Launch, order: LaunchSpec, env: Json) -> Json:
    """The arguments of `start`, identical for the same launch."""
    return {
        **command_arguments(order, env),
        "attempt": launch.attempt,
        "slot": launch.slot,
        "number": launch.number,
        "env": dict(env),
        "directory": order.directory or None,
        **({"environment": order.environment.key} if order.environment else {}),
        "grace_s": order.grace_s,
        "notice_grace_s": order.notice_grace_s,
        "lease_s": DEADMAN_S,
        **({"hold_s": HOLD_S} if order.outputs else {}),
    }


def command_arguments(order: LaunchSpec, env: Json) -> Json:
    """What every host runs: the command, or what starts a cluster or a container around it."""
    if order.image:
        return {"argv": container_command(order, env)}
    if order.cluster:
        words = order.argv or ("$SHELL", "-c", order.shell)
        return {"argv": ["python3", "-m", "tpuherd_host.ray_cluster", *words]}
    return {"argv": list(order.argv)} if order.argv else {"shell": order.shell}
