"""The isolation tests again, run by a user without privileges."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.integration.running_hosts import need

TOP = Path(__file__).parents[2]
USER = "1001"
WORDS = [shutil.which("setpriv") or "setpriv", "--reuid", USER, "--regid", USER, "--clear-groups"]
SUITE = ("test_host_isolation.py", "test_host_system.py", "test_host_pool.py")
#: A slice of them: all others run as root too, in a zygote that gave its rights up.
SLICE = "people or harm or world or sudo or packages or best or itself"
LEAVE = "--exclude=__pycache__ --exclude=site-packages --exclude=test --exclude=*.a"
LEAN = "tar -C {0} -cf - " + LEAVE + " . | tar -C {1} -xf -"


@pytest.mark.real
@pytest.mark.root
@pytest.mark.needs("setpriv", "tar")
def test_isolation_works_without_root() -> None:
    need("namespaces-user")
    with tempfile.TemporaryDirectory(prefix="as-a-user-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        python = copied_python(folder)
        for part in ("src", "tests", "pyproject.toml"):
            copy(TOP / part, folder / part)
        for path in (folder, *folder.glob("tests"), *folder.glob("src")):
            shutil.chown(path, int(USER), int(USER))
        tests = [f"tests/integration/{each}" for each in SUITE]
        done = subprocess.run(
            [*WORDS, python, "-m", "pytest", "-p", "no:cacheprovider", "--basetemp",
             str(folder / "tmp"), "-k", SLICE, *tests],
            cwd=folder, env={"PATH": "/usr/bin:/bin:/usr/sbin", "PYTHONPATH": path_of(folder),
                             "HOME": name, "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True, text=True, timeout=300,
        )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert done.stdout.count(".") > 10, done.stdout


def copied_python(folder: Path) -> str:
    """An interpreter that everybody can start, with the packages of ours."""
    base = Path(sys.base_prefix)
    if all(path.stat().st_mode & 0o1 for path in (base, *base.parents)):
        return sys.executable
    (folder / "python").mkdir()
    subprocess.run(["/bin/sh", "-c", LEAN.format(base, folder / "python")], check=True)
    return str(folder / "python/bin/python3")


def path_of(folder: Path) -> str:
    """Where packages are found: the copied sources and those of this environment."""
    site = next(path for path in sys.path if path.endswith("site-packages"))
    return f"{folder / 'src'}:{site}"


def copy(source: Path, target: Path) -> None:
    """A folder or a file, without what was compiled."""
    if source.is_dir():
        leave = shutil.ignore_patterns("__pycache__")
        shutil.copytree(source, target, ignore=leave, symlinks=True)
    else:
        shutil.copy(source, target)
