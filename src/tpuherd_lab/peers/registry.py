"""The policies of other tools by name, each as a function of traces, a seed and constants."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from tpuherd_lab.bounds import zone_groups
from tpuherd_lab.capacity import set_capacities
from tpuherd_lab.constants import Constants
from tpuherd_lab.peers import scripts, skypilot
from tpuherd_lab.peers.recorder import RunRecorder, Scene
from tpuherd_lab.policy_run import PolicyRun, merge_runs
from tpuherd_lab.traces import TraceSet

Policy = Callable[[TraceSet, int, Constants], PolicyRun]


@dataclass(frozen=True, slots=True)
class PeerModel:
    run: Callable[[RunRecorder], None]
    scope: str  #: where it may run: in one "zone", or in "all"; see bounds.SCOPES


MODELS: Mapping[str, PeerModel] = {
    "tpucare": PeerModel(scripts.run_tpucare, "zone"),
    "tpunicorn": PeerModel(scripts.run_tpunicorn, "zone"),
    "levanter-babysit": PeerModel(scripts.run_levanter, "zone"),
    "uniform-progress": PeerModel(scripts.run_uniform_progress, "zone"),
    "greedy": PeerModel(scripts.run_greedy, "all"),
    "skypilot-failover": PeerModel(skypilot.run_failover, "all"),
    "skypilot-eager": PeerModel(skypilot.run_eager, "all"),
}


def run_peer(name: str, traces: TraceSet, seed: int, constants: Constants) -> PolicyRun:
    """Run a model; one that knows one zone runs in each, and the runs are summed."""
    capacities = set_capacities(traces, seed)
    runs = []
    for zones in zone_groups(capacities, MODELS[name].scope):
        scene = Scene(
            policy=name,
            traces=traces.name,
            zones=tuple(zones),
            constants=constants,
            seed=seed,
            length_s=traces.length_s,
            gang=traces.gang,
            tick_s=max(trace.tick_s for trace in traces.zones),
        )
        runs.append(record_run(MODELS[name], scene).close_books())
    return runs[0] if len(runs) == 1 else merge_runs(runs)


def record_run(model: PeerModel, scene: Scene) -> RunRecorder:
    """Return the books of a run, with its states."""
    recorder = RunRecorder(scene)
    model.run(recorder)
    return recorder


POLICIES: Mapping[str, Policy] = {name: partial(run_peer, name) for name in MODELS}
