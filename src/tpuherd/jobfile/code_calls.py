"""Finds what the shipped code calls that needs variables: W&B, torch's process group. Pure."""

import ast
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tpuherd.jobfile.job_spec import JobSpec

PROGRAM = re.compile(r"(?:.*/)?[^/]+\.(?:py|sh|bash|ya?ml)|(?:.*/)?Makefile")
AGENT = re.compile(r"\bwandb[ ._]agent\b|\bwandb\s+launch-agent\b")
#: Where a call may run more than once.
LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.ListComp, ast.SetComp, ast.DictComp)
#: What the user sets to choose W&B's run.
OWN = frozenset(("WANDB_RUN_ID", "WANDB_RESUME", "WANDB_SWEEP_ID"))
#: Commands that give each process its place.
LAUNCHERS = re.compile(
    r"\btpuherd_host\.torch\b|\btorchrun\b|\btorch\.distributed\b|\baccelerate\b"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class CodeCalls:
    """What the code of a job calls."""

    wandb_starts: int = 0  #: places that begin a run of W&B; one in a loop counts twice
    wandb_agent: bool = False


def count_calls(texts: Iterable[str]) -> CodeCalls:
    """Look through the texts of all programs of the code."""
    starts, agent = 0, False
    for text in texts:
        if "wandb" in text:
            starts += sum(2 if loops else 1 for _, loops in calls_of(text, "wandb", "init"))
            agent = agent or bool(AGENT.search(text))
    return CodeCalls(wandb_starts=starts, wandb_agent=agent)


def is_one_wandb_run(job: JobSpec, calls: CodeCalls | None) -> bool:
    """Whether all attempts of a process are surely one run of W&B, which the user did not name."""
    if calls is None or job.cluster:
        return False
    secrets = {secret.name for secret in job.secrets}
    text = job.run if isinstance(job.run, str) else " ".join(job.run or ())
    chosen = not OWN.isdisjoint({*job.env, *secrets}) or any(name in text for name in OWN)
    agent = calls.wandb_agent or bool(AGENT.search(text))
    return calls.wandb_starts <= 1 and not chosen and not agent


def process_group_call(job: JobSpec, texts: Mapping[str, str]) -> str:
    """Return where the code calls init_process_group, as train.py:12; "" if the command gives each
    process its place, or if nothing calls it."""
    text = job.run if isinstance(job.run, str) else " ".join(job.run or ())
    if job.cluster or LAUNCHERS.search(text):
        return ""
    for path, source in texts.items():
        if "init_process_group" in source:
            for line, _ in calls_of(source, "torch.distributed", "init_process_group"):
                return f"{path}:{line}"
    return ""


def calls_of(source: str, module: str, function: str) -> Iterator[tuple[int, bool]]:
    """Yield the line of each call of `module.function`, under whatever name it was imported, and
    whether it is in a loop. The text is searched if it is no Python of ours."""
    try:
        with warnings.catch_warnings():  # an invalid escape in somebody's code is no news of ours
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        dotted = re.escape(f"{module.rpartition('.')[2]}.{function}")
        for number, line in enumerate(source.splitlines(), 1):
            for _ in re.finditer(rf"\b{dotted}\s*\(", line.partition("#")[0]):
                yield number, False
        return
    names = set(call_names(tree, module, function))
    loops = [one for one in ast.walk(tree) if isinstance(one, LOOPS)]
    repeated = {id(inner) for loop in loops for inner in ast.walk(loop)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and dotted_name(node.func) in names:
            yield node.lineno, id(node) in repeated


def call_names(tree: ast.AST, module: str, function: str) -> Iterator[str]:
    """Yield the names by which the code calls it: wandb.init, dist.init_process_group."""
    yield f"{module}.{function}"
    parent, _, last = module.rpartition(".")
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for one in node.names:
                if one.name == module and one.asname:
                    yield f"{one.asname}.{function}"
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            for one in node.names:
                if node.module == module and one.name == function:
                    yield one.asname or function
                if parent and node.module == parent and one.name == last:
                    yield f"{one.asname or last}.{function}"


def dotted_name(node: ast.AST) -> str:
    """Return a.b.c of such an expression; "" of any other."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{before}.{node.attr}" if (before := dotted_name(node.value)) else ""
    return ""
