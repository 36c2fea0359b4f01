"""The five seed documents' own gcloud lines, run by the real gcloud against real hosts."""

import re
import subprocess
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conformance.login import Login, logged_in
from tests.conformance.world import ROOT, World, run, started

SEEDS = ROOT.parent / "shared" / "seeds"
SCENES = yaml.safe_load((Path(__file__).parent / "clients" / "seeds.yaml").read_text())
LINES = {
    f"{scene['seed']}-{number}-{place}": (number, line)
    for number, scene in enumerate(SCENES)
    for place, line in enumerate(scene["lines"])
}
CALL = re.compile(r"^(gcloud|gloud)\b")

pytestmark = pytest.mark.real


def calls(text: str) -> Iterator[str]:
    """The commands of a document that begin a line with gcloud, to the end of their last line."""
    command = ""
    for line in text.splitlines():
        command = f"{command}\n{line}" if command else line if CALL.match(line) else ""
        whole = not command.endswith("\\") and not command.count("'") % 2
        if command and whole and not command.count('"') % 2:
            yield command
            command = ""


@pytest.mark.skipif(not SEEDS.exists(), reason="the seed documents are not beside this checkout")
def test_no_line_of_the_seeds_was_forgotten() -> None:
    listed = [
        (scene["seed"], line["run"])
        for scene in SCENES
        for line in scene["lines"]
        if not line.get("again")
    ]
    found = [
        (file.name[:3], command)
        for file in sorted(SEEDS.glob("*.txt"))
        for command in calls(file.read_text())
    ]
    assert sorted(listed) == sorted(found)


@dataclass(frozen=True)
class Scene:
    """A world with what the lines of one document presuppose."""

    what: Mapping[str, Any]
    world: World
    login: Login
    folder: Path

    def type(self, command: str, stdin: str | None) -> "subprocess.CompletedProcess[str]":
        for word, meant in self.what.get("words", {}).items():
            command = command.replace(word, meant)
        env = self.login.env | self.what.get("env", {})
        given = stdin + "\n" if stdin else ""
        return run(["bash", "-c", command], env, cwd=self.folder, input=given)

    def everywhere(self, command: str) -> None:
        """Do something on every host of the first node."""
        name = next(iter(self.what["nodes"]))
        ips = self.login.addresses(self.what["zone"], name)
        with ThreadPoolExecutor() as pool:
            for done in pool.map(
                lambda ip: run([*self.login.ssh(ip), command], self.login.env), ips
            ):
                assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def scene(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scene]:
    what = SCENES[request.param]
    folder = tmp_path_factory.mktemp("seed")
    for name, text in what.get("files", {}).items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    project = what.get("project", "demo")
    options = ("--no-internet", "--time-scale", "600", "--project", project)
    with started(*options) as world, logged_in(world) as login:
        for name, kind in what.get("nodes", {}).items():
            world.node(what["zone"], name, acceleratorType=kind)
        yield Scene(what, world, login, folder)


@pytest.mark.needs("gcloud", "ssh", "scp", "ssh-agent")
@pytest.mark.parametrize(("scene", "line"), LINES.values(), ids=LINES, indirect=["scene"])
def test_a_line_as_written(scene: Scene, line: Mapping[str, Any]) -> None:
    if "before" in line:
        scene.everywhere(line["before"])
    done = scene.type(line["run"], line.get("types"))
    if "fails" in line:
        assert done.returncode != 0
        assert line["fails"] in done.stderr
    else:
        assert done.returncode == line.get("exits", 0), done.stderr
    for text, times in line.get("says", {}).items():
        assert (done.stdout + done.stderr).count(text) == times, done.stdout + done.stderr
    if "after" in line:
        scene.everywhere(line["after"])
