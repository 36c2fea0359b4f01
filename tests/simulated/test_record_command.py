"""`herd record`: start, stop, status and show, as typed."""

import json
from collections.abc import Callable
from pathlib import Path

import jsonschema  # type: ignore[import-untyped]
import pytest
from json_schemas import SCHEMAS

from tpuherd.cli.main import run

Herd = Callable[..., tuple[int, str, str]]
LINES = (
    {"kind": "exchange", "id": "a-1", "at": 1.5, "took_s": 0.2, "method": "GET",
     "path": "v2/x/nodes", "query": {"pageSize": "500"}, "status": 200,
     "reply": {"state": {"state": "ACTIVE"}}},
    {"kind": "exchange", "id": "a-2", "at": 2, "method": "GET", "path": "v2/x", "status": 404,
     "reply": {"error": {"status": "NOT_FOUND", "message": "Resource '<name>' was not found"}}},
    {"kind": "repeat", "of": "a-1", "at": 3.0},
    {"kind": "host", "at": 4, "type": "v4-8", "runtime": "tpu-ubuntu2204-base"},
    {"kind": "news"},
)  # fmt: skip


@pytest.fixture
def herd(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Herd:
    """A command's status, and what it says, for a user of a world."""
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    world = tmp_path / "world"
    world.mkdir()
    facts = {"project": "demo", "url": "http://x", "ssh_port": 22, "pid": 1, "time_scale": 30.0}
    (world / "world.json").write_text(json.dumps(facts))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HERD_WORLD", str(world))
    monkeypatch.chdir(tmp_path)

    def herd(*words: str) -> tuple[int, str, str]:
        status = run(words)
        said = capfd.readouterr()
        return status, said.out, said.err

    return herd


def test_a_recording_from_start_to_stop(herd: Herd, tmp_path: Path) -> None:
    file = tmp_path / "herd-transcript.jsonl"
    assert herd("record", "status") == (0, "This project is not being recorded.\n", "")
    status, said, _ = herd("record", "start")
    assert (status, said.split(" to ")[1]) == (0, f"{file} for 12h\n")
    with file.open("a") as stream:
        stream.writelines(f"\n{json.dumps(one)}" for one in LINES)
        stream.write('\n{"torn')
    assert herd("record", "status")[1].startswith(f"Recording to {file}: 0.")
    shown = json.loads(herd("record", "status", "--json")[1])
    jsonschema.validate(shown, SCHEMAS["herd record status --json"])
    assert (shown["recording"], shown["bytes"]) == (True, file.stat().st_size)
    rows = herd("record", "show")[1].splitlines()
    assert [row.strip() for row in rows] == [
        f"recorded by herd {json.loads(file.read_text().splitlines()[1])['herd']}"
        " from a simulated world",
        "1.5 s  200  GET     v2/x/nodes?pageSize=500  ACTIVE",
        "2.0 s  404  GET     v2/x  NOT_FOUND: Resource '<name>' was not found",
        "3.0 s  the same reply as in a-1",
        "4.0 s  a host of v4-8 with tpu-ubuntu2204-base",
        "unknown record",
    ]
    status, said, advice = herd("record", "stop")
    assert (status, said.endswith(f"to {file}\n")) == (0, True)
    assert f"herd record show {file}" in advice
    assert f"herd sim compare {file}" in advice
    assert json.loads(herd("record", "status", "--json")[1])["recording"] is False


def test_the_header_names_the_speed_of_the_world(herd: Herd, tmp_path: Path) -> None:
    herd("record", "start", "t")
    header = json.loads((tmp_path / "t").read_text())
    assert (header["cloud"], header["time_scale"]) == ("world", 30.0)


@pytest.mark.parametrize(
    ("words", "status", "sentence"),
    [
        (("stop",), 4, "nothing is being recorded"),
        (("start", "--for", "soon"), 2, "'soon' is not a duration of at most 30 days"),
        (("start", "--for", "31d"), 2, "'31d' is not a duration"),
        (("start", "world/world.json"), 2, "world.json exists"),
        (("start", "absent/t"), 1, "absent/t can't be written (No such file or directory)"),
        (("show",), 4, "there is no transcript"),
        (("show", "world/world.json"), 2, "world.json is not a transcript"),
        (("show", "/dev/zero"), 4, "there is no transcript /dev/zero"),
        (("hosts", "gpt"), 2, "this project is not being recorded"),
    ],
)
def test_mistakes_are_one_sentence(
    herd: Herd, words: tuple[str, ...], status: int, sentence: str
) -> None:
    code, _, said = herd("record", *words)
    assert (code, said.count("\n")) == (status, 1)
    assert sentence in said


def test_a_file_that_is_gone_is_said(herd: Herd, tmp_path: Path) -> None:
    herd("record", "start", "t")
    (tmp_path / "t").unlink()
    assert "is gone" in herd("record", "status")[1]
    assert herd("record", "stop")[0] == 0
