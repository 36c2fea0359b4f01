"""What is released: the wheel and the source archive, and the numbers that they carry."""

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from typing import Any

import pytest

from tests.rules.test_tracked import tracked
from tpuherd._version import __version__
from tpuherd.cli.wheel import source_files

ROOT = Path(__file__).parents[2]
VERSION = re.compile(r"(0|[1-9]\d*)\.(\d+)\.(\d+)((a|b|rc)\d+)?(\.dev\d+)?")
CORE_MAX = 13  #: packages that everybody gets; a new one needs a decision
WHEEL_MAX = 2_500_000


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both, built offline by the pinned builder."""
    folder = tmp_path_factory.mktemp("dist")
    words = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return found


def wheel_names(built: Path) -> set[str]:
    (file,) = built.glob("*.whl")
    size = file.stat().st_size
    assert size < WHEEL_MAX, f"{file.name} has {size:,} bytes, may have {WHEEL_MAX:,}: ship less"
    with zipfile.ZipFile(file) as wheel:
        return set(wheel.namelist())


def read_metadata(built: Path) -> Message:
    (file,) = built.glob("*.whl")
    with zipfile.ZipFile(file) as wheel:
        return message_from_bytes(wheel.read(f"tpuherd-{__version__}.dist-info/METADATA"))


def test_the_wheel_has_every_source_and_nothing_else(built: Path) -> None:
    about = f"tpuherd-{__version__}.dist-info"
    sources = {str(f.relative_to(ROOT / "src")) for f in tracked() if ROOT / "src" in f.parents}
    made = {f"{about}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt")}
    odd = wheel_names(built) ^ (sources | made | {f"{about}/licenses/LICENSE"})
    assert not odd, f"the wheel and src/ differ by {sorted(odd)}; see [tool.hatch] of pyproject"
    for one in (  # what is loaded by name, and so is missed only by users
        "tpuherd/web/static/index.html",
        "tpuherd/remote/bootstrap.sh",
        "tpuherd/catalogue/tables/zones.csv",
        "tpuherd_host/agent/main.py",
        "tpuherd_sim/hosts/rootfs_files/etc/profile",
    ):
        assert one in sources, f"src/{one} is loaded by name and is gone; name its place of today"


def test_a_machine_given_by_via_gets_the_same_files(built: Path) -> None:
    """`herd context install` packs the running package by itself."""
    packed = {name for name in wheel_names(built) if ".dist-info/" not in name}
    odd = sorted(set(source_files()) ^ packed)
    assert not odd, f"cli/wheel.py and the built wheel differ by {odd}; correct source_files()"


def test_the_source_archive_has_what_is_needed_to_build(built: Path) -> None:
    (file,) = built.glob("*.tar.gz")
    with tarfile.open(file) as archive:
        names = {Path(one.name).parts[1] for one in archive}
    wanted = {"src", "README.md", "CHANGELOG.md", "LICENSE", "pyproject.toml", "PKG-INFO"}
    odd = sorted((names - {".gitignore"}) ^ wanted)
    assert not odd, f"the source archive differs by {odd}; see [tool.hatch] in pyproject.toml"


def test_the_metadata_says_what_it_is_and_needs(built: Path) -> None:
    found = read_metadata(built)
    assert (found["Name"], found["Version"]) == ("tpuherd", __version__)
    assert found["Requires-Python"] == ">=3.11"
    assert found["License-Expression"] == "Apache-2.0"
    assert str(found.get_payload()).startswith("# tpuherd")
    needs = [one for one in found.get_all("Requires-Dist", []) if "extra ==" not in one]
    assert len(needs) <= CORE_MAX, f"pyproject.toml: more than {CORE_MAX} packages; make extras"


def test_the_page_about_installing_names_every_extra_and_package(built: Path) -> None:
    page = (ROOT / "docs" / "howto" / "install.md").read_text()
    declared = project()["project"]
    extras = set(declared["optional-dependencies"]) - {"dev", "site"}
    odd = set(re.findall(r"tpuherd\[(\w+)\]", page)) ^ extras
    assert not odd, f"docs/howto/install.md and the extras of pyproject.toml differ by {odd}"
    packages = {re.split(r"[>=<]", one)[0] for one in declared["dependencies"]}
    versions = re.findall(r"Python :: (3\.\d+)", " ".join(declared["classifiers"]))
    lost = [one for one in (*packages, *versions) if one not in page]
    assert lost == [], f"docs/howto/install.md does not name {lost}; add them"


def test_the_version_is_in_one_place() -> None:
    assert VERSION.fullmatch(__version__)
    assert project()["project"]["dynamic"] == ["version"]
    quoted = re.compile(rf"version\s*[=:]\s*[\"']{re.escape(__version__)}[\"']", re.I)
    places = [f for f in tracked() if f.suffix in {".py", ".toml", ".txt"} or f.name == "Makefile"]
    found = [str(f.relative_to(ROOT)) for f in places if quoted.search(f.read_text())]
    assert found == [], f"{found} repeat the version; take it from src/tpuherd/_version.py"
    assert f'__version__ = "{__version__}"' in (ROOT / "src/tpuherd/_version.py").read_text()


def test_the_changelog_has_unreleased_first_and_then_falling_versions() -> None:
    titles = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert titles[0] == "Unreleased", "CHANGELOG.md: begin with `## Unreleased`"
    released = [re.fullmatch(r"(\S+) \((\d{4}-\d\d-\d\d)\)", title) for title in titles[1:]]
    assert all(released), "CHANGELOG.md: write the title of a release so: ## 1.2.3 (2026-01-31)"
    numbers = [tuple(map(int, one[1].split(".")[:3])) for one in released if one]
    assert numbers == sorted(set(numbers), reverse=True), "CHANGELOG.md: put newer releases first"
    ours = tuple(int(one) for one in VERSION.fullmatch(__version__).groups()[:3])  # type: ignore[union-attr]
    assert not numbers or ours >= numbers[0], "_version.py is before the last release; raise it"
