"""Which module may import which, read the time, start processes or read the environment."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import grimp
import pytest

SRC = Path(__file__).parents[2] / "src"
PACKAGES = ("tpuherd", "tpuherd_sim")
FILES = sorted(f for p in PACKAGES for f in (SRC / p).rglob("*.py"))

#: What the simulator may import of tpuherd.
FOR_THE_SIMULATOR = {"catalogue", "clock", "peer_uid", "_version"}

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

#: Paths under src where a banned name may stand all the same, and what others do instead.
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
#: These make folders that are not only ours; make_private_folder makes those that are.
FOLDERS = (
    "tpuherd/files.py",
    "tpuherd/cli/systemd_unit.py",  # systemd's
    "tpuherd/commands/job_outputs.py",  # where the user copies to
    "tpuherd/commands/output.py",  # of `exec --output`
    "tpuherd/remote/bootstrap_on_host.py",  # on a host
    "tpuherd/ssh_config/user_file.py",  # ~/.ssh
    "tpuherd/sync/copy_files.py",  # where the user copies to
)
ENVIRONMENT = ("tpuherd/launcher.py", "tpuherd/settings/project_access.py")
BANS = (
    ("time.time time.time_ns time.monotonic time.perf_counter time.sleep asyncio.sleep",
     CLOCK, "take `now` or a Clock as an argument"),
    ("datetime.now datetime.utcnow date.today", (), "take `now` as an argument"),
    ("random.random", (), "take a random.Random with a seed as an argument"),
    ("subprocess asyncio.create_subprocess_exec asyncio.create_subprocess_shell os.fork"
     " os.posix_spawn", PROCESSES, "let a file of PROCESSES start it, or add this one, with why"),
    ("os.system", (), "start it without a shell, from a file of PROCESSES"),
    ("os.environ", ENVIRONMENT, "take `environ` as an argument"),
    ("os.environb os.getenv os.putenv os.unsetenv", (), "take or pass `environ` as an argument"),
    ("mock", (), "test with the simulator, or with a class of the tests"),
)  # fmt: skip

ARGUMENT = "take what it gives as an argument, or move the function to where this is allowed"
APART = "move what both ends need to a module that imports neither"


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


def banned(name: str, place: str) -> str:
    """Return what to do instead of using this name in this file, or ""."""
    for bans, places, instead in BANS:
        found = f"{name}.".startswith(tuple(f"{ban}." for ban in bans.split()))
        if found and not place.startswith(places):
            return instead
    return ""


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(SRC)))
def test_a_module_uses_only_allowed_names(file: Path) -> None:
    place = str(file.relative_to(SRC))
    for line, name in named(ast.parse(file.read_text())):
        instead = banned(name, place)
        assert not instead, f"src/{place}:{line} uses {name}; {instead}"


def test_only_one_function_makes_folders_of_our_own() -> None:
    for file in sorted((SRC / "tpuherd").rglob("*.py")):
        place = str(file.relative_to(SRC))
        for line, name in named(ast.parse(file.read_text())) if place not in FOLDERS else ():
            makes = name.rpartition(".")[2] in ("mkdir", "makedirs")
            assert not makes, f"src/{place}:{line} uses {name}; call files.make_private_folder"


def test_the_environment_of_this_process_is_copied_and_never_changed() -> None:
    for place in ENVIRONMENT:
        for line, text in enumerate((SRC / place).read_text().splitlines(), 1):
            bare = re.search(r"(?<!dict\()os\.environ\b", text)
            assert not bare, f"src/{place}:{line} uses os.environ itself; pass dict(os.environ) on"


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(SRC)))
def test_a_module_imports_only_allowed_modules(file: Path) -> None:
    place = str(file.relative_to(SRC))
    package, room = place.split("/")[0], place.split("/")[1]
    for line, name in imported(ast.parse(file.read_text())):
        parts = name.split(".")
        where = f"src/{place}:{line} imports {name}"
        if package == "tpuherd_sim" and parts[0] == "tpuherd":
            assert parts[1] in FOR_THE_SIMULATOR, f"{where}, not of FOR_THE_SIMULATOR; {ARGUMENT}"
        if room in PURE and package == "tpuherd" and place not in ADAPTERS:
            assert parts[0] not in IMPURE, f"{where}, but tpuherd.{room} is pure; {ARGUMENT}"
        if room == "remote" and parts[:2] == ["tpuherd", "cloud"]:
            assert place in CLOUD_IN_REMOTE, f"{where}, but is not of CLOUD_IN_REMOTE; {ARGUMENT}"


def test_no_module_imports_itself_in_a_circle() -> None:
    graph = build_graph()
    for module in sorted(graph.modules):
        for other in sorted(graph.find_modules_directly_imported_by(module)):
            if "tpuherd" in (module, other):  # the top names its public classes for type checkers
                continue
            back = graph.find_shortest_chain(other, module)
            assert back is None, f"{module} → {' → '.join(back or ())} is a circle; {APART}"


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
        back = [one for one in sorted(edges[package]) if package in list_imports(one, edges)]
        assert not back, f"{package} imports {', '.join(back)}, which import it; {APART}"


def list_imports(package: str, edges: dict[str, set[str]]) -> set[str]:
    """Return what it imports, directly or not."""
    reached, waiting = set[str](), [package]
    while waiting:
        new = edges.get(waiting.pop(), set()) - reached
        reached |= new
        waiting += new
    return reached


@cache
def build_graph() -> grimp.ImportGraph:
    """Who imports whom, for type checkers too."""
    return grimp.build_graph("tpuherd", "tpuherd_host", "tpuherd_sim")
