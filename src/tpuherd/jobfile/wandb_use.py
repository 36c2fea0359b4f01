"""Finds where a job's command imports wandb, in its script and in what that imports. Pure.

What is *sure* happens in every run. What hangs on an option, is in a function or may be missing is
not: a job without a key is refused only where it is sure to need one.
"""

import ast
import posixpath
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from tpuherd.jobfile.bucket_scan import COMMENT, candidate_files
from tpuherd.jobfile.code_calls import AGENT, call_names, dotted_name
from tpuherd.jobfile.environment_key import ReadText
from tpuherd.jobfile.job_spec import JobSpec

WITHOUT_KEY = frozenset(("offline", "disabled", "dryrun"))  #: values of WANDB_MODE
#: What shows that the code or the setup logs in, or does without a key, by itself.
OWN_LOGIN = re.compile(
    r"WANDB_(?:API_KEY|MODE|DISABLED)|wandb[ .](?:login|offline|off|disabled)|netrc"
)
SHELL_CHOICE = re.compile(r"(?:^|[\s;])(?:if|case|for|while|until)\s|\|\|")
#: Conditions that one process of a job always meets.
FIRST_PROCESS = re.compile(
    r"process_index|process_id|rank\b|RANK|is_main|is_master|is_coordinator|HERD_WORKER|__main__"
)
MISSING = frozenset(("ImportError", "ModuleNotFoundError", "Exception", "BaseException"))
TRAIN, LOGGER = "tpuherd_host.train", "wandb"  #: our function that begins a run
OPTIONS = frozenset(("mode", "anonymous"))  #: of wandb.init, which may make a key unneeded
MODULES_MAX = 400


@dataclass(frozen=True, kw_only=True, slots=True)
class WandbUse:
    at: str  #: train.py:3
    sure: bool


@dataclass(kw_only=True, slots=True)
class ModuleFacts:
    """What a module does when it is imported."""

    imports: list[tuple[str, int, bool]] = field(default_factory=list)  #: name, line, is it sure
    starts: list[bool] = field(default_factory=list)  #: for each start of a run, whether it is sure


def find_wandb_use(job: JobSpec, read: ReadText) -> WandbUse | None:
    """Return the first import of wandb that the command reaches, a sure one before others.

    `read` returns the text of a file of the code, "" if there is none.
    """
    if job.run is None or job.env.get("WANDB_MODE") in WITHOUT_KEY:
        return None
    read = cache(read)
    text = job.run if isinstance(job.run, str) else " ".join(job.run)
    named = list(named_files({"run": job.run, "env": job.env}, read))
    shell = "\n".join((text, *(read(path) for path in named if path.endswith(".sh"))))
    named += named_files({"run": shell}, read)
    entries = [path for path in dict.fromkeys(named) if path.endswith(".py")]
    found, starts, texts = walk_modules(entries, read)
    if AGENT.search(text):
        found.append(WandbUse(at="run", sure=True))
    best = next((one for one in found if one.sure), found[0] if found else None)
    if best is None:
        return None
    texts += [shell, *job.setup]
    doubtful = any(OWN_LOGIN.search(COMMENT.sub("", one)) for one in texts)
    doubtful = doubtful or bool(SHELL_CHOICE.search(shell)) or (bool(starts) and not any(starts))
    return WandbUse(at=best.at, sure=best.sure and not doubtful)


def named_files(content: Mapping[str, Any], read: ReadText) -> Iterator[str]:
    """Yield the files of the code that a command names; of a package, what it runs."""
    for path in candidate_files(content):
        yield from (one for one in (path, f"{path}/__main__.py") if read(one))


def walk_modules(
    entries: Sequence[str], read: ReadText
) -> tuple[list[WandbUse], list[bool], list[str]]:
    """Read the scripts and the modules of the code that they import: the imports of wandb, the
    starts of runs, and all texts."""
    found, starts, texts = list[WandbUse](), list[bool](), list[str]()
    roots = list(dict.fromkeys((*map(posixpath.dirname, entries), "", "src")))
    waiting = [(path, True, True) for path in entries]
    seen: set[tuple[str, bool]] = set()
    while waiting and len(seen) < MODULES_MAX:
        path, sure, is_script = waiting.pop(0)
        if (path, True) in seen or (path, sure) in seen:
            continue
        seen.add((path, sure))
        texts.append(read(path))
        facts = read_module(texts[-1], path, is_script=is_script)
        starts += facts.starts
        for name, line, always in facts.imports:
            if name.partition(".")[0] == "wandb":
                found.append(WandbUse(at=f"{path}:{line}", sure=sure and always))
            else:
                inner = module_files(name, roots, read)
                waiting += [(file, sure and always, False) for file in inner]
    return found, starts, texts


def module_files(name: str, roots: Sequence[str], read: ReadText) -> list[str]:
    """Return the files of the code that are run when the module is imported."""
    parts = name.split(".")
    for root in roots:
        paths = [posixpath.join(root, *parts[: at + 1]) for at in range(len(parts))]
        files = [
            one for path in paths for one in (f"{path}/__init__.py", f"{path}.py") if read(one)
        ]
        if files:
            return files
    return []


def read_module(source: str, path: str, *, is_script: bool) -> ModuleFacts:
    """Read what a module imports; nothing if its text is no Python of ours."""
    facts = ModuleFacts()
    try:
        with warnings.catch_warnings():  # an invalid escape in somebody's code is no news of ours
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return facts
    package = posixpath.dirname(path).replace("/", ".")
    for node, sure in reached_nodes(tree.body, True, is_script=is_script):
        facts.imports += [(name, node.lineno, sure) for name in imported_names(node, package)]
    ours, names = set(call_names(tree, TRAIN, LOGGER)), set(call_names(tree, "wandb", "init"))
    for call, sure in called_nodes(tree, True):
        name = dotted_name(call.func)
        if name in ours | names:
            facts.starts.append(sure and OPTIONS.isdisjoint({one.arg for one in call.keywords}))
        if name in ours:
            facts.imports.append(("wandb", call.lineno, True))
    return facts


def imported_names(node: ast.stmt, package: str) -> list[str]:
    """Return the modules that the statement imports, and what may be modules."""
    if isinstance(node, ast.Import):
        return [one.name for one in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    above = package.split(".") if package else []
    above = above[: len(above) - node.level + 1] if node.level else []
    base = ".".join((*above, *([node.module] if node.module else [])))
    if base.partition(".")[0] == "wandb":
        return [base]
    return [f"{base}.{one.name}" if base else one.name for one in node.names]


def reached_nodes(
    body: Sequence[ast.stmt], sure: bool, *, is_script: bool
) -> Iterator[tuple[ast.stmt, bool]]:
    """Yield each statement and whether it is always executed when the module is."""
    for node in body:
        yield node, sure
        for name in ("body", "handlers", "orelse", "finalbody"):
            for part in getattr(node, name, []):
                inner = [part] if isinstance(part, ast.stmt) else part.body
                always = sure and is_always_run(node, name, is_script=is_script)
                yield from reached_nodes(inner, always, is_script=is_script)


def is_always_run(node: ast.stmt, part: str, *, is_script: bool) -> bool:
    """Whether a part of the statement is executed whenever the statement is."""
    if isinstance(node, ast.Try):
        caught = {name for one in node.handlers for name in caught_names(one)}
        return part == "finalbody" or (part == "body" and MISSING.isdisjoint(caught))
    if isinstance(node, ast.If):
        test = ast.unparse(node.test)
        return (
            part == "body"
            and bool(FIRST_PROCESS.search(test))
            and (is_script or "__main__" not in test)
        )
    return isinstance(node, ast.With | ast.ClassDef)


def caught_names(handler: ast.ExceptHandler) -> set[str]:
    if handler.type is None:
        return {"BaseException"}
    return {dotted_name(node) for node in ast.walk(handler.type) if isinstance(node, ast.expr)}


def called_nodes(node: ast.AST, sure: bool) -> Iterator[tuple[ast.Call, bool]]:
    """Yield each call, and whether no option decides about it."""
    if isinstance(node, ast.Call):
        yield node, sure
    for name, value in ast.iter_fields(node):
        always = sure
        if isinstance(node, ast.If | ast.IfExp) and name in ("body", "orelse"):
            always = sure and bool(FIRST_PROCESS.search(ast.unparse(node.test)))
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from called_nodes(child, always)
