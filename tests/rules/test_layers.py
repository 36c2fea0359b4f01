"""Which module may import which, read the time, start processes or read the environment."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import grimp
import pytest

SRC = Path(__file__).parents[2] / "src"
PACKAGES = ("tpuherd", "tpuherd_sim")
FILES = sorted(f for p in PACKAGES for f in (SRC / p).rglob("*.py"))

#: What the simulator may import of tpuherd.
FOR_THE_SIMULATOR = {"catalogue", "clock", "_version"}

#: Packages whose functions only turn values into values.
PURE = {
    "accounting", "diagnosis", "exports", "history", "jobfile", "model", "notify", "planner",
    "sweeps", "views",
}  # fmt: skip
ADAPTERS = ("tpuherd/sweeps/optuna_sampler.py",)  #: a library of others' in a pure package

#: What pure packages never import, though the standard library has it.
IMPURE = {
    "asyncio", "datetime", "logging", "os", "pathlib", "random", "select", "socket", "sqlite3",
    "ssl", "subprocess", "tempfile", "threading", "time", "uuid",
}  # fmt: skip

#: Modules that alone may bring hosts and clouds together.
CLOUD_IN_REMOTE = ("tpuherd/remote/open_remote.py", "tpuherd/remote/resolve_hosts.py")

#: Where each banned name may stand all the same: paths under src, and why.
CLOCK = ("tpuherd/clock.py",)
PROCESSES = (
    "tpuherd_sim/hosts/",  # hosts are processes
    "tpuherd/background.py",  # starts the daemon, engines and worlds
    "tpuherd/cli/via_client.py",  # calls ssh
    "tpuherd/cli/open_programs.py",
    "tpuherd/cli/top.py",  # starts VS Code and mosh
    "tpuherd/cli/via_server.py",  # begins a command that was said elsewhere
    "tpuherd/sync/snapshot_git.py",  # asks git
    "tpuherd/cloud/auth.py",  # asks gcloud for a token
    "tpuherd/checks/machine_facts.py",  # asks ssh and the daemon
    "tpuherd/jobs/secret_values.py",  # runs what tells a secret, as its user says
    "tpuherd/senders/run_notifier.py",  # runs what a user wants to be told by
)
ENVIRONMENT = (
    "tpuherd/launcher.py",
    "tpuherd/ssh_proxy.py",  # its half of `herd ssh-proxy`
    "tpuherd/cli/",
    "tpuherd/settings/",
    "tpuherd/engine/engine_process.py",
)
ALLOWED = {
    "time.time": CLOCK,
    "time.time_ns": CLOCK,
    "time.monotonic": CLOCK,
    "time.perf_counter": CLOCK,
    "time.sleep": CLOCK,
    "asyncio.sleep": CLOCK,
    "datetime.now": (),
    "datetime.utcnow": (),
    "date.today": (),
    "random.random": (),
    "subprocess": PROCESSES,
    "asyncio.create_subprocess_exec": PROCESSES,
    "asyncio.create_subprocess_shell": PROCESSES,
    "os.fork": PROCESSES,
    "os.system": (),
    "os.posix_spawn": PROCESSES,
    "os.environ": ENVIRONMENT,
    "os.getenv": ENVIRONMENT,
    "mock": (),
}


def imported(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Every module that a file names, with the line; those for types only too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def named(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Every `module.name` of a file, however it was imported."""
    yield from imported(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            owner = node.value
            last = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
            yield node.lineno, f"{last}.{node.attr}"


def banned(name: str) -> tuple[str, tuple[str, ...]] | None:
    for ban, places in ALLOWED.items():
        if name == ban or name.startswith(f"{ban}."):
            return ban, places
    return None


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(SRC)))
def test_a_module_uses_only_allowed_names(file: Path) -> None:
    place = str(file.relative_to(SRC))
    for line, name in named(ast.parse(file.read_text())):
        found = banned(name)
        assert not found or place.startswith(found[1]), f"{file}:{line} {found[0]} is not for here"


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(SRC)))
def test_a_module_imports_only_allowed_modules(file: Path) -> None:
    place = str(file.relative_to(SRC))
    package, room = place.split("/")[0], place.split("/")[1]
    for line, name in imported(ast.parse(file.read_text())):
        parts = name.split(".")
        where = f"{file}:{line}"
        if package == "tpuherd_sim" and parts[0] == "tpuherd":
            assert parts[1] in FOR_THE_SIMULATOR, f"{where} the simulator does not know {name}"
        if room in PURE and package == "tpuherd" and place not in ADAPTERS:
            assert parts[0] not in IMPURE, f"{where} {room} is pure"
        if room == "remote" and parts[:2] == ["tpuherd", "cloud"]:
            assert place in CLOUD_IN_REMOTE, f"{where} only {CLOUD_IN_REMOTE} may know the cloud"


def test_no_module_imports_itself_in_a_circle() -> None:
    graph = build_graph()
    for module in sorted(graph.modules):
        for other in sorted(graph.find_modules_directly_imported_by(module)):
            if "tpuherd" in (module, other):  # the top names its public classes for type checkers
                continue
            back = graph.find_shortest_chain(other, module)
            assert back is None, f"{module} → {' → '.join(back or ())}"


@pytest.mark.parametrize(
    ("top", "depth"),
    [("tpuherd", 2), ("tpuherd_sim", 2), ("tpuherd_host", 3)],
)
def test_no_package_imports_itself_in_a_circle(top: str, depth: int) -> None:
    edges: dict[str, set[str]] = {}
    graph = build_graph()
    for module in graph.modules:
        for other in graph.find_modules_directly_imported_by(module):
            one, two = (".".join(m.split(".")[:depth]) for m in (module, other))
            if module.startswith(f"{top}.") and other.startswith(f"{top}.") and one != two:
                edges.setdefault(one, set()).add(two)
    for package in sorted(edges):
        reached: set[str] = set()
        waiting = [package]
        while waiting:
            new = edges.get(waiting.pop(), set()) - reached
            reached |= new
            waiting += new
        assert package not in reached, f"{package} imports itself by way of {sorted(reached)}"


@cache
def build_graph() -> grimp.ImportGraph:
    """Who imports whom, for type checkers too."""
    return grimp.build_graph("tpuherd", "tpuherd_host", "tpuherd_sim")
