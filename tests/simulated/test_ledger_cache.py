"""The cached ledger: equal to reading the whole log, and discarded where it does not fit."""

from pathlib import Path
from random import Random

import pytest

from tests.unit.event_stories import nonsense
from tpuherd.accounting.accounts import build_accounts, current_accounts
from tpuherd.jobs import ledger_cache
from tpuherd.model.slots_and_plan import HistoryEvent
from tpuherd.store.database import Database

NOW = 1_800_000_000.0


def story(seed: int, many: int) -> list[HistoryEvent]:
    chance = Random(seed)
    return [nonsense(chance, NOW + 3 * n) for n in range(many)]


@pytest.mark.parametrize("seed", range(10))
def test_reading_in_steps_equals_reading_at_once(tmp_path: Path, seed: int) -> None:
    store = Database(tmp_path, NOW)
    told = story(seed, 300)
    now = NOW
    for begin in range(0, 300, 37):
        store.append_events(told[begin : begin + 37])
        now = NOW + 3 * (begin + 37)
        kept = ledger_cache.load_ledger(store, keep=20)
        assert (
            current_accounts(kept, now)
            == current_accounts(kept, now)
            == build_accounts(told[: begin + 37], now)
        )
        assert (tmp_path / ledger_cache.NAME).stat().st_mode & 0o777 == 0o600
    copy = ledger_cache.read_cached_ledger(store)
    assert copy is not None
    assert current_accounts(copy, now) != {}
    store.close()


def spoilt(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-9])


def empty(file: Path) -> None:
    file.write_bytes(b"")


def absent(file: Path) -> None:
    file.unlink()


@pytest.mark.parametrize("harm", [spoilt, empty, absent])
def test_an_unreadable_cache_is_ignored(tmp_path: Path, harm: object) -> None:
    assert callable(harm)
    store = Database(tmp_path, NOW)
    told = story(1, 100)
    store.append_events(told)
    ledger_cache.write_cached_ledger(store, ledger_cache.load_ledger(store))
    harm(tmp_path / ledger_cache.NAME)
    assert ledger_cache.read_cached_ledger(store) is None
    assert current_accounts(ledger_cache.load_ledger(store), NOW + 300) == build_accounts(
        told, NOW + 300
    )
    store.close()


def test_a_cache_of_another_store_is_ignored(tmp_path: Path) -> None:
    one, other = Database(tmp_path / "one", NOW), Database(tmp_path / "other", NOW)
    one.append_events(story(1, 100))
    ledger_cache.write_cached_ledger(one, ledger_cache.load_ledger(one))
    other.append_events(story(2, 200))
    (tmp_path / "one" / ledger_cache.NAME).rename(tmp_path / "other" / ledger_cache.NAME)
    assert ledger_cache.read_cached_ledger(other) is None
    one.close()
    other.close()


def test_a_cache_ahead_of_its_store_is_ignored(tmp_path: Path) -> None:
    store = Database(tmp_path, NOW)
    store.append_events(story(1, 100))
    kept = ledger_cache.load_ledger(store)
    kept.seq = 101
    ledger_cache.write_cached_ledger(store, kept)
    assert ledger_cache.read_cached_ledger(store) is None
    store.close()
