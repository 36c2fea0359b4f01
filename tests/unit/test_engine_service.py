"""`herd engine install`: the same program and variables for systemd and for launchd."""

import json
import plistlib
import shlex
import sys
from pathlib import Path

from tpuherd.cli.launchd_agent import install_agent
from tpuherd.cli.systemd_unit import install_unit
from tpuherd.settings import project_access

PROGRAM = [sys.executable, "-P", "-m", "tpuherd.launcher", "engine", "run"]


def test_both_services_run_the_same_program(tmp_path: Path) -> None:
    world = tmp_path / "a world"
    environ = {"HOME": str(tmp_path), "PATH": '/a "b":/100%', "SHELL": "/bin/zsh", "HERD_WORLD": ""}
    world.mkdir()
    facts = {"project": "demo", "url": "http://127.0.0.1:1", "ssh_port": 22, "pid": 1}
    (world / "world.json").write_text(json.dumps(facts))
    place = project_access.resolve_access(environ, world=world)
    unit, _ = install_unit(place, environ)
    lines = [line.partition("=") for line in unit.read_text().splitlines()]
    (program,) = [value for name, _, value in lines if name == "ExecStart"]
    assert shlex.split(program) == PROGRAM

    file, todo = install_agent(place, environ)
    name = f"dev.tpuherd.{place.store_folder.name}"
    assert file == tmp_path / f"Library/LaunchAgents/{name}.plist"
    agent = plistlib.loads(file.read_bytes())
    assert agent["ProgramArguments"] == PROGRAM
    assert agent["EnvironmentVariables"] == {
        "HOME": str(tmp_path), "PATH": '/a "b":/100%', "HERD_WORLD": str(world),
    }  # fmt: skip
    assert agent["Label"] == name
    assert (agent["RunAtLoad"], agent["KeepAlive"]) == (True, True)
    assert Path(agent["StandardErrorPath"]).parent.is_dir()
    assert [line.split()[:2] for line in todo.splitlines()] == [
        ["launchctl", "bootout"],
        ["launchctl", "bootstrap"],
    ]
