"""Run the tests near a change: `make near`, or `make near BASE=main` for all commits since main.

Near are the test files that changed, those that import a changed module, and those whose rigs do (a
rig is any other Python file of tests/, and may import rigs). A test that reads files instead of
importing them lists them: `NEAR = ("src/tpuherd/cli/*.py",)`.
"""

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: Below these, a module's name begins (as `pythonpath` and `mypy_path` in pyproject.toml have it).
IMPORT_ROOTS = ("src/", "docs/", "examples/demo/")
NO_TESTS_RAN = 5  #: pytest's status when `-m` leaves out all tests


def module_name(file: str) -> str:
    """Return what a test writes to import this file."""
    for root in IMPORT_ROOTS:
        file = file.removeprefix(root)
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def imported_modules(tree: ast.Module) -> Iterator[str]:
    """Yield each name that is imported anywhere in a file, and may be a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def near_patterns(tree: ast.Module) -> Iterator[str]:
    """Yield the patterns of the files that a test reads: its NEAR."""
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id="NEAR")]):
                yield from ast.literal_eval(node.value)


def is_test(file: str) -> bool:
    return file.startswith("tests/") and Path(file).name.startswith("test_")


def near_tests(changed: Iterable[str], tests: dict[str, str]) -> list[str]:
    """Return the test files near the changed files; `tests` has the text of each file of tests/."""
    changed = set(changed)
    trees = {file: ast.parse(text) for file, text in tests.items()}
    imports = {file: set(imported_modules(tree)) for file, tree in trees.items()}
    near = {file for file in tests if file in changed}
    near |= {
        file
        for file, tree in trees.items()
        if any(fnmatch(one, pattern) for pattern in near_patterns(tree) for one in changed)
    }
    reached = {module_name(file) for file in changed if file.endswith(".py")}
    waiting = True
    while waiting:
        found = {file for file in tests if file not in near and imports[file] & reached}
        near |= found
        rigs = {file for file in near if not is_test(file)}
        waiting = not {module_name(file) for file in rigs} <= reached
        reached |= {module_name(file) for file in rigs}
        folders = [
            file.removesuffix("conftest.py") for file in rigs if file.endswith("conftest.py")
        ]
        near |= {file for file in tests if any(file.startswith(folder) for folder in folders)}
    return sorted(file for file in near if is_test(file))


def changed_files(base: str) -> list[str]:
    """Return what differs from a commit in the work tree: changed, deleted and new files."""
    found = []
    for words in (
        ["diff", "--name-only", "--no-renames", "-z", base, "--"],
        ["ls-files", "--others", "--exclude-standard", "-z"],
    ):
        listed = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
        if listed.returncode:
            sys.exit(f"make near: {listed.stderr.strip()}")
        found += [name for name in listed.stdout.split("\0") if name]
    return found


def main() -> int:
    base, *pytest = sys.argv[1:]
    tests = {
        str(file.relative_to(ROOT)): file.read_text()
        for file in (ROOT / "tests").rglob("*.py")
        if "clients" not in file.parts
    }
    changed = changed_files(base)
    files = near_tests(changed, tests)
    if not files:
        print(f"No test is near the {len(changed)} files that differ from {base}.")
        return 0
    print(f"Test files near the change: {len(files)}", *files, sep="\n  ", flush=True)
    status = subprocess.run([*pytest, *files], cwd=ROOT).returncode
    return 0 if status == NO_TESTS_RAN else status


if __name__ == "__main__":
    sys.exit(main())
