"""Recording the client's traffic: what gets into the file, and that it never gets in the way."""

import json
import stat
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.simulated.cloud_user import ZONE, User, live
from tests.simulated.in_process_world import START
from tpuherd.cloud.record_traffic import TrafficRecorder
from tpuherd.errors import HerdError, InvalidInput, NotFound, NotReached
from tpuherd.settings import recordings
from tpuherd.settings.recordings import Recording, load_recording, start_recording, stop_recording

CANARY = "canary-bird"
Work = Callable[[User], Awaitable[Any]]


def begin(folder: Path, now: float = START, seconds: float = 1e6) -> Path:
    """Start a recording; its flag."""
    flag = folder / "config" / "recordings" / "p.json"
    start_recording(flag, folder / "t.jsonl", cloud={"cloud": "world"}, now=now, seconds=seconds)
    return flag


def record(flag: Path, work: Work) -> list[dict[str, Any]]:
    """Let a recorded user do something; the lines of the transcript."""

    async def recorded(user: User) -> None:
        user.cloud.rest.recorder = TrafficRecorder(flag, user.clock)
        await work(user)

    live(recorded)
    return lines(flag.parents[2] / "t.jsonl")


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines() if line]


async def birdcage(user: User) -> None:
    """A node full of canaries, seen by every call that commands and engines make."""
    more: dict[str, Any] = {
        "labels": {f"{CANARY}-key": CANARY},
        "metadata": {"ssh-keys": f"{CANARY}:ssh-ed25519 AAAA{CANARY} x@{CANARY}.org", CANARY: "1"},
        "description": f"the {CANARY} of {CANARY}@lab.org",
        "tags": [CANARY],
        "serviceAccount": {"email": f"{CANARY}@demo.iam.gserviceaccount.com", "scope": []},
        "networkConfig": {"network": CANARY, "subnetwork": CANARY, "enableExternalIps": True},
    }
    await user.node(CANARY, **more)
    await user.publish(CANARY, 0, f"AAAAC3Nza{CANARY}")
    await user.cloud.list_nodes()
    await user.cloud.get_node(ZONE, CANARY)
    await user.cloud.get_guests(ZONE, CANARY)
    await user.cloud.install_key(ZONE, CANARY, CANARY, f"ssh-ed25519 AAAA{CANARY}")
    await user.cloud.write_card(ZONE, CANARY, json.dumps({"job": CANARY}))
    for path in (f"projects/demo/locations/{ZONE}/operations", f"projects/{CANARY}/locations"):
        try:
            await user.cloud.rest.call_tpu("GET", path)
        except HerdError:
            pass
    try:
        await user.cloud.check_runtime(ZONE, CANARY)
        await user.cloud.get_bucket_location(CANARY)
    except HerdError:
        pass
    await user.weather("http-error", http=503, message=f"the {CANARY} is dead", times=1)
    with pytest.raises(HerdError):
        await user.cloud.list_nodes()


def test_no_canary_gets_into_a_transcript(tmp_path: Path) -> None:
    found = record(begin(tmp_path), birdcage)
    text = (tmp_path / "t.jsonl").read_text()
    assert len(found) >= 12
    for bird in ("canary", "demo", "AAAA", "lab.org", "127.64", "10.1", "123456789012"):
        assert bird not in text, [line for line in text.splitlines() if bird in line]
    states = [one["reply"].get("state") for one in found if "reply" in one]
    assert "READY" in states
    assert ZONE in text


def test_a_transcript_is_private_and_starts_with_its_format(tmp_path: Path) -> None:
    flag = begin(tmp_path)
    header = lines(tmp_path / "t.jsonl")[0]
    assert (header["kind"], header["format"], header["cloud"]) == ("transcript", 1, "world")
    for file in (flag, tmp_path / "t.jsonl"):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    for folder in (flag.parent, flag.parent.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert load_recording(flag) is not None
    key = json.loads(flag.read_text())["key"]
    assert key not in (tmp_path / "t.jsonl").read_text()


async def poll(user: User) -> None:
    for _ in range(3):
        await user.cloud.list_nodes()


def test_an_equal_reply_is_a_short_line(tmp_path: Path) -> None:
    _, first, *rest = record(begin(tmp_path), poll)
    assert (first["kind"], first["method"], first["status"]) == ("exchange", "GET", 200)
    assert [one["kind"] for one in rest] == ["repeat", "repeat"]
    assert {one["of"] for one in rest} == {first["id"]}
    assert all(one["at"] >= 0 and one["took_s"] >= 0 for one in (first, *rest))


def test_without_the_flag_nothing_is_written(tmp_path: Path) -> None:
    flag = begin(tmp_path)
    stop_recording(flag)
    assert len(record(flag, poll)) == 1  # its first line


def test_a_recording_ends_by_itself(tmp_path: Path) -> None:
    assert len(record(begin(tmp_path, now=START - 100, seconds=99), poll)) == 1


async def no_network(user: User) -> None:
    def cut(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("canary.internal refused", request=request)

    user.wire.instead = cut
    with pytest.raises(NotReached):
        await user.cloud.list_nodes()
    user.wire.instead = lambda request: httpx2.Response(200, text="<html>canary</html>")
    with pytest.raises(HerdError):
        await user.cloud.list_nodes()


def test_failures_are_recorded_without_their_texts(tmp_path: Path) -> None:
    _, cut, html = record(begin(tmp_path), no_network)
    assert (cut["status"], cut["failure"]) == (None, "connection failed")
    assert html["status"] == 200
    assert "reply" not in html
    assert "canary" not in (tmp_path / "t.jsonl").read_text()


def take_away(flag: Path) -> None:
    (flag.parents[2] / "t.jsonl").unlink()


def damage_flag(flag: Path) -> None:
    flag.write_text('{"file": 7}')


def forbid(flag: Path) -> None:
    file = flag.parents[2] / "t.jsonl"
    file.unlink()
    file.mkdir()


@pytest.mark.parametrize("harm", [take_away, damage_flag, forbid])
def test_recording_never_disturbs_the_traffic(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    flag = begin(tmp_path)
    harm(flag)

    async def recorded(user: User) -> None:
        user.cloud.rest.recorder = TrafficRecorder(flag, user.clock)
        assert (await user.cloud.list_nodes()).nodes == ()

    live(recorded)
    assert not (tmp_path / "t.jsonl").is_file() or len(lines(tmp_path / "t.jsonl")) == 1


def test_a_torn_line_spoils_only_itself(tmp_path: Path) -> None:
    flag = begin(tmp_path)
    with (tmp_path / "t.jsonl").open("a") as stream:
        stream.write('\n{"kind":"exchange","id":"torn')
    recording = load_recording(flag)
    assert recording is not None
    recordings.append_record(recording, flag, {"kind": "whole"})
    *_, torn, whole = (tmp_path / "t.jsonl").read_text().splitlines()
    assert torn.endswith("torn")
    assert json.loads(whole) == {"kind": "whole"}


def filled(flag: Path, records: int) -> Recording:
    recording = load_recording(flag)
    assert recording is not None
    for number in range(records):
        recordings.append_record(recording, flag, {"kind": "filler", "n": number, "x": "x" * 1000})
    return recording


def test_a_long_transcript_keeps_its_newest_two_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recordings, "PART_BYTES_MAX", 10_000)
    flag = begin(tmp_path)
    recording = filled(flag, 35)
    assert recording.old_part.exists()
    sizes = [file.stat().st_size for file in (recording.file, recording.old_part)]
    assert sum(sizes) < 23_000
    assert stop_recording(flag).file == recording.file
    assert not recording.old_part.exists()
    found = [one["n"] for one in lines(recording.file) if one["kind"] == "filler"]
    assert found == list(range(found[0], 35))
    assert lines(recording.file)[0]["kind"] == "transcript"
    assert stat.S_IMODE(recording.file.stat().st_mode) == 0o600


def test_many_writers_tear_no_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each record is one write to its own descriptor, as from different processes."""
    monkeypatch.setattr(recordings, "PART_BYTES_MAX", 100_000)
    flag = begin(tmp_path)
    with ThreadPoolExecutor(8) as writers:
        list(writers.map(lambda _: filled(flag, 60), range(8)))
    file = stop_recording(flag).file
    found = [one["n"] for one in lines(file) if one["kind"] == "filler"]
    assert 80 < len(found) <= 480
    assert set(found) <= set(range(60))


def test_one_recording_at_a_time_and_no_file_is_overwritten(tmp_path: Path) -> None:
    flag = begin(tmp_path)
    with pytest.raises(InvalidInput, match=r"is being recorded to .*t\.jsonl"):
        begin(tmp_path)
    stop_recording(flag)
    with pytest.raises(InvalidInput, match=r"t\.jsonl exists"):
        begin(tmp_path)
    with pytest.raises(NotFound, match="nothing is being recorded"):
        stop_recording(flag)


def test_a_recording_that_is_over_gives_way(tmp_path: Path) -> None:
    flag = begin(tmp_path, seconds=10)
    (tmp_path / "t.jsonl").rename(tmp_path / "first.jsonl")
    begin(tmp_path, now=START + 11)
    recording = load_recording(flag)
    assert recording is not None
    assert recording.start == START + 11


def test_a_flag_that_can_not_be_written_leaves_no_file(tmp_path: Path) -> None:
    flag = tmp_path / "config/recordings/p.json"
    flag.mkdir(parents=True)
    with pytest.raises(HerdError, match="can't be written"):
        begin(tmp_path)
    assert not (tmp_path / "t.jsonl").exists()


def test_a_missing_folder_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(HerdError, match="can't be written"):
        start_recording(
            tmp_path / "flag.json",
            tmp_path / "no" / "t",
            cloud={"cloud": "world"},
            now=START,
            seconds=9,
        )
