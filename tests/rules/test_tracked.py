"""What no file of the repository may contain."""

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BYTES_MAX = 1_000_000
#: Taken apart, so that this file may stand in the repository itself.
HOSTS = ["pypi" + ".org", "python" + "hosted.org", "npmjs" + ".org", "deb.debian" + ".org"]
REMINDERS = ["TO" + "DO", "FIX" + "ME", "XX" + "X", "NotImplemented" + "Error"]


@cache
def tracked() -> list[Path]:
    """What git would commit; in a bare copy, all that isn't hidden or made by our own commands."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if listed.returncode == 0:
        names = [ROOT / name for name in listed.stdout.split("\0") if name]
    else:
        made = re.compile(r"/(\.(?!ci|git(ignore|attributes))|__pycache__|build/|dist/)")
        names = [f for f in ROOT.rglob("*") if not made.search(f"/{f.relative_to(ROOT)}")]
    return sorted(f for f in names if f.is_file() and not f.is_symlink())


@cache
def lines() -> list[tuple[str, str]]:
    """Every line of every text file, with where it is."""
    found = []
    for file in tracked():
        try:
            text = file.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        name = file.relative_to(ROOT)
        found += [(f"{name}:{n}", line) for n, line in enumerate(text.splitlines(), 1)]
    return found


def places(pattern: str, under: str = "") -> list[str]:
    seek = re.compile(pattern)
    return [where for where, line in lines() if where.startswith(under) and seek.search(line)]


def test_no_path_of_this_machine() -> None:
    common = {"/", "/home", "/opt", "/root", "/srv", "/tmp", "/usr/src", "/workspace"}
    own = {str(ROOT), str(ROOT.parent)} - common
    for path in own:
        found = places(rf"(?<![\w.*]){re.escape(path)}/")
        assert found == [], f"{found} name {path}, a path of this machine; write a relative one"


@pytest.mark.parametrize("host", HOSTS)
def test_no_registry_host(host: str) -> None:
    found = places(rf"(?<![\w-]){re.escape(host)}")
    assert found == [], f"{found} name {host}; leave the registry to the settings of pip or npm"


def test_no_todo_comments() -> None:
    found = places("|".join(rf"\b{word}\b" for word in REMINDERS), under="src/")
    assert found == [], f"{found} have a reminder ({', '.join(REMINDERS)}); do it, or file an issue"


def test_no_lock_files_or_large_files() -> None:
    for file in tracked():
        locks = {"uv.lock", "poetry.lock", "package-lock.json"}
        assert file.name not in locks, f"{file} is a lock file; remove it, constraints.txt pins"
        size = file.stat().st_size
        assert size <= BYTES_MAX, f"{file} has {size:,} bytes, may have {BYTES_MAX:,}; make it less"


def test_constraints_contain_only_versions() -> None:
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        fits = re.fullmatch(r"[a-z0-9-]+==[0-9][\w.]*( ; .+)?", line)
        assert fits, f"constraints.txt: {line!r} is no version; write name==version"


def test_every_test_asserts_something() -> None:
    silent = "assert " + r"True\b|pytest\.mark\.(skip\b|xfail)|except Exception: *pass"
    found = places(silent, under="tests/")
    assert found == [], f"{found} can't fail; assert what the test is about, or remove the test"
