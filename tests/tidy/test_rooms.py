"""Who may import whom, and who may tell the time, start processes or read the environment."""

import ast
from collections.abc import Iterator
from pathlib import Path

import grimp
import pytest

SRC = Path(__file__).parents[2] / "src"
FILES = sorted((SRC / "tpuherd").rglob("*.py"))

#: Rooms that may import only these others of tpuherd. Everybody else: pyproject's layers.
KNOWS = {
    "sim": {"sim", "catalogue", "clock"},
    "core": {"core", "catalogue"},
    "catalogue": {"catalogue"},
    "clock": set(),
}

#: What the core never imports, though the standard library has it.
IMPURE = {
    "asyncio", "datetime", "logging", "os", "pathlib", "random", "select", "socket", "sqlite3",
    "ssl", "subprocess", "tempfile", "threading", "time", "uuid",
}  # fmt: skip

#: Where each banned name may stand all the same: paths under src/tpuherd, and why.
CLOCK = ("clock.py",)
PROCESSES = (
    "sim/hosts/",  # hosts are processes
    "cli/apart.py",  # --detach
    "desk/engines.py",  # begins the engine
    "cli/via.py",  # calls ssh
    "cli/engine_move.py",  # the same
    "cli/there.py",  # begins a command that was said elsewhere
    "front.py",  # it begins the keeper
    "hosts/snapshot_git.py",  # asks git
    "cloud/auth.py",  # asks gcloud for a token
    "desk/secrets.py",  # runs what tells a secret, as its user says
)
ENVIRONMENT = ("front.py", "cli/", "meant.py")
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
def test_a_room_uses_only_what_it_may(file: Path) -> None:
    place = str(file.relative_to(SRC / "tpuherd"))
    for line, name in named(ast.parse(file.read_text())):
        found = banned(name)
        assert not found or place.startswith(found[1]), f"{file}:{line} {found[0]} is not for here"


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(SRC)))
def test_a_room_knows_only_whom_it_may(file: Path) -> None:
    room = file.relative_to(SRC / "tpuherd").parts[0].removesuffix(".py")
    for line, name in imported(ast.parse(file.read_text())):
        parts = name.split(".")
        if parts[0] == "tpuherd" and room in KNOWS and parts[1:] not in ([], ["__version__"]):
            assert parts[1] in KNOWS[room], f"{file}:{line} {room} does not know {name}"
        assert room != "core" or parts[0] not in IMPURE, f"{file}:{line} the core is pure"


def test_no_module_imports_itself_in_a_circle() -> None:
    graph = grimp.build_graph("tpuherd", "tpuherd_host", exclude_type_checking_imports=True)
    for module in sorted(graph.modules):
        for other in sorted(graph.find_modules_directly_imported_by(module)):
            back = graph.find_shortest_chain(other, module)
            assert back is None, f"{module} → {' → '.join(back or ())}"
