"""What a world keeps on disk: wherever it is cut off, the same world returns."""

import json
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.hostile_words import mutate
from tests.simulated.test_world_runtime import NODE, NODES, START, StandingClock, ask, fresh
from tpuherd.errors import HerdError
from tpuherd.settings.project_access import read_world_facts
from tpuherd_sim import persistence as states
from tpuherd_sim import state_dir
from tpuherd_sim.handle import advance_world
from tpuherd_sim.live_world import LiveWorld
from tpuherd_sim.model.world_codec import world_digest
from tpuherd_sim.persistence import WorldStore
from tpuherd_sim.state_dir import WorldError, read_world_info

WEATHER: tuple[tuple[str, str, Any], ...] = (
    ("POST", f"{NODES}?nodeId=a", NODE),
    ("POST", f"{NODES}?nodeId=b", {**NODE, "schedulingConfig": {"spot": True}}),
    ("POST", "/sim/v1/weather/http-error", {"http": 503, "share": 0.5, "times": 20}),
    *((("GET", NODES, None),) * 20),
    ("POST", "/sim/v1/weather/clear", {"rule": "all"}),
    ("POST", "/sim/v1/weather/preempt", {"target": "b"}),
    ("PATCH", f"{NODES}/a?updateMask=labels", {"labels": {"ü": "x"}}),
    ("DELETE", f"{NODES}/a", None),
    ("POST", f"{NODES}?nodeId=c", b"\xff\xfe not JSON at all"),
    ("POST", f"{NODES}?nodeId=d", NODE),
)


def lived(state: WorldStore) -> LiveWorld:
    """A desk at which a lot was asked for over an hour."""
    clock = StandingClock(START)
    live_world = LiveWorld(fresh(), clock, state)
    state.save(live_world.world)
    for method, path, body in WEATHER:
        clock.at += 111.1
        ask(live_world, method, path, body)
    return live_world


def later(state: WorldStore) -> str:
    """The digest of the loaded world at the end of that hour."""
    assert state.world is not None
    advance_world(state.world, START + 4000)
    return world_digest(state.world)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path


def test_the_journal_rebuilds_the_same_world(place: Path) -> None:
    live_world = lived(WorldStore(place))
    advance_world(live_world.world, START + 4000)
    again = WorldStore(place)
    recovered = again.load()
    assert recovered is not None
    assert not recovered.torn
    assert recovered.entries == len(WEATHER)  # the GETs too: a rule was in force
    assert later(again) == world_digest(live_world.world)


def test_a_snapshot_rebuilds_the_same_world(place: Path) -> None:
    state = WorldStore(place)
    live_world = lived(state)
    state.save(live_world.world)
    advance_world(live_world.world, START + 4000)
    again = WorldStore(place)
    recovered = again.load()
    assert recovered is not None
    assert recovered.entries == 0
    assert later(again) == world_digest(live_world.world)


def test_reads_are_not_recorded_in_fine_weather(place: Path) -> None:
    state = WorldStore(place)
    live_world = LiveWorld(fresh(), StandingClock(START), state)
    state.save(live_world.world)
    for _ in range(5):
        ask(live_world, "GET", NODES)
    assert not list(place.glob("journal-*"))


def test_a_journal_cut_anywhere_is_read_up_to_there(place: Path) -> None:
    state = WorldStore(place)
    lived(state)
    [journal] = place.glob("journal-*")
    whole = journal.read_bytes()
    lines = whole.count(b"\n")
    last = whole.rindex(b"\n", 0, -1) + 1
    for cut in (last, last + 1, len(whole) - 1):
        journal.write_bytes(whole[:cut])
        recovered = WorldStore(place).load()
        assert recovered is not None
        assert recovered.entries == lines - 1
        assert recovered.torn is (cut != last)
        assert ("incomplete" in recovered.sentence) is (cut != last)


def test_a_torn_line_does_not_spoil_later_lines(place: Path) -> None:
    lived(WorldStore(place))
    [journal] = place.glob("journal-*")
    journal.write_bytes(journal.read_bytes()[:-9])
    again = WorldStore(place)
    assert again.load() is not None
    assert again.world is not None
    again.save(again.world)
    live_world = LiveWorld(again.world, StandingClock(START + 5000), again)
    ask(live_world, "POST", f"{NODES}?nodeId=e", NODE)
    last = WorldStore(place)
    recovered = last.load()
    assert recovered is not None
    assert (recovered.entries, recovered.torn) == (1, False)
    assert last.world is not None
    assert "us-central2-b/e" in last.world.nodes


def test_a_damaged_line_is_named(place: Path) -> None:
    lived(WorldStore(place))
    [journal] = place.glob("journal-*")
    lines = journal.read_bytes().split(b"\n")
    lines[2] = b"{nonsense"
    journal.write_bytes(b"\n".join(lines))
    with pytest.raises(WorldError, match=rf"{journal.name} is damaged in line 3"):
        WorldStore(place).load()


def test_whatever_a_damaged_file_says_it_is_a_sentence(place: Path) -> None:
    state, dice = WorldStore(place), Random(4)
    state.save(lived(state).world)
    good = json.loads((place / "snapshot.json").read_bytes())
    facts = {"project": "demo", "url": "http://127.0.0.1:9", "ssh_port": 9, "pid": 1}
    for number in range(300):
        (place / "snapshot.json").write_text(json.dumps(mutate(good, dice)))
        (place / "world.json").write_text(
            json.dumps(mutate(facts, dice)) if number else "[" * 9_999
        )
        with suppress(WorldError):
            WorldStore(place).load()
        with suppress(HerdError):
            read_world_facts(place)
        with suppress(WorldError):
            read_world_info(place)


def test_a_long_journal_becomes_a_snapshot(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "JOURNAL_BYTES", 2000)
    state = WorldStore(place)
    live_world = lived(state)
    for number in range(400):
        ask(live_world, "POST", f"{NODES}/nobody:stop", {"number": number, "long": "x" * 400})
    assert state.generation > 1
    assert len(list(place.glob("journal-*"))) == 1
    advance_world(live_world.world, START + 4000)
    again = WorldStore(place)
    again.load()
    assert later(again) == world_digest(live_world.world)


def test_journal_entries_older_than_the_snapshot_are_ignored(place: Path) -> None:
    state = WorldStore(place)
    live_world = lived(state)
    [old] = place.glob("journal-*")
    kept = old.read_bytes()
    state.save(live_world.world)
    old.write_bytes(kept)  # as if we had been killed before it was removed
    recovered = WorldStore(place).load()
    assert recovered is not None
    assert recovered.entries == 0


@pytest.mark.parametrize("name", ["world.json", "snapshot.json"])
def test_another_version_is_refused_with_both_numbers(place: Path, name: str) -> None:
    state = WorldStore(place)
    lived(state)
    (place / name).write_text(json.dumps({"format": 99}))
    with pytest.raises(WorldError, match=r"another version \(format 99, this one reads 1\)"):
        state_dir.read_world_info(place) if name == "world.json" else WorldStore(place).load()


def test_a_folder_belongs_to_one_world_at_a_time(place: Path) -> None:
    assert state_dir.running_world_pid(place) is None
    with state_dir.lock_folder(place):
        assert state_dir.running_world_pid(place) is not None
        with (
            pytest.raises(WorldError, match=r"is in use by the world with pid \d+"),
            state_dir.lock_folder(place),
        ):
            pass
    assert state_dir.running_world_pid(place) is None
    with state_dir.lock_folder(place):
        pass


def test_a_foreign_folder_is_left_alone(place: Path) -> None:
    (place / "thesis.tex").write_text("dear")
    with pytest.raises(WorldError, match="not empty and is not the folder of a world"):
        state_dir.prepare_folder(place)
    assert [one.name for one in place.iterdir()] == ["thesis.tex"]
    state_dir.prepare_folder(place / "new" / "er")
    assert (place / "new" / "er").stat().st_mode & 0o777 == 0o700
