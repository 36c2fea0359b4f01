"""The gcloud lines of the five seed documents, run by the real gcloud against running hosts."""

import re
import subprocess
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conformance.login import Login, logged_in
from tests.conformance.world import CLIENTS, ROOT, client, run, started

SEEDS = ROOT.parent / "shared" / "seeds"
SCENES = yaml.safe_load((Path(__file__).parent / "clients" / "seeds.yaml").read_text())
LINES = {
    f"{scene['seed']}-{number}-{place}": (number, place)
    for number, scene in enumerate(SCENES)
    for place, _ in enumerate(scene["lines"])
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
def test_every_line_of_the_seeds_is_tested() -> None:
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
    login: Login
    folder: Path

    def type(self, command: str, stdin: str) -> "subprocess.CompletedProcess[str]":
        for word, meant in self.what.get("words", {}).items():
            command = command.replace(word, meant.format(folder=self.folder))
        env = self.login.env | self.what.get("env", {})
        return run(["bash", "-c", command], env, cwd=self.folder, input=stdin)

    def everywhere(self, command: str) -> list[str]:
        """Do something on every host of the first node; what went wrong."""
        name = next(iter(self.what["nodes"]))
        inside = CLIENTS / self.what.get("offer", "")
        command = command.replace("{folder}", str(self.folder)).replace("{inside}", str(inside))
        said = [
            run([*self.login.ssh(ip), command], self.login.env)
            for ip in self.login.addresses(self.what["zone"], name)
        ]
        return [f"{command}: {done.stderr}" for done in said if done.returncode]

    def faults(self, line: Mapping[str, Any]) -> list[str]:
        """Type one line; what is not as it should be."""
        found = self.everywhere(line["before"]) if "before" in line else []
        done = self.type(line["run"], line.get("types", "") + "\n")
        said = done.stdout + done.stderr
        fine = (done.returncode != 0) == ("fails" in line) and line.get("fails", "") in said
        wanted = line.get("says", {})
        counts = {text: said.count(text) for text in wanted}
        if not fine or counts != wanted:
            found.append(f"exit {done.returncode}, {counts}: {said}")
        return found + (self.everywhere(line["after"]) if "after" in line else [])


def play(what: Mapping[str, Any], folder: Path) -> list[list[str]]:
    """The faults of each line of a scene."""
    for name, text in what.get("files", {}).items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    project = ["--project", what["project"]] if "project" in what else []
    offer = ["--offer", str(client(what["offer"]).parents[1])] if "offer" in what else []
    options = ("--no-internet", "--time-scale", "600", *project, *offer)
    with started(*options) as world, logged_in(world) as login:
        keys = {"ssh-keys": login.line}
        for name, kind in what.get("nodes", {}).items():
            world.node(what["zone"], name, acceleratorType=kind, metadata=keys)
        scene = Scene(what, login, folder)
        return [scene.faults(line) for line in what["lines"]]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list["Future[list[list[str]]]"]]:
    with ThreadPoolExecutor(len(SCENES)) as pool:  # gcloud mostly waits
        yield [pool.submit(play, what, tmp_path_factory.mktemp("seed")) for what in SCENES]


@pytest.mark.needs("gcloud", "ssh", "scp", "ssh-agent")
@pytest.mark.parametrize(("scene", "place"), LINES.values(), ids=LINES)
def test_a_line_as_written(played: list["Future[list[list[str]]]"], scene: int, place: int) -> None:
    assert played[scene].result()[place] == []
