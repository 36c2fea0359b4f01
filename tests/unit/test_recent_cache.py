"""What is cached about hosts is bounded, and expires."""

from tpuherd.sync.recent_cache import RecentCache


def test_an_entry_expires() -> None:
    seen: RecentCache[str, int] = RecentCache(60.0)
    seen.put("a", 1, 0.0)
    seen.put("b", 2, 30.0)
    assert [seen.get(key, 59.0) for key in "abc"] == [1, 2, None]
    assert [seen.get(key, 60.0) for key in "ab"] == [None, 2]
    assert list(seen.iter_recent(60.0)) == ["b"]
    seen.put("b", 3, 80.0)
    assert seen.get("b", 130.0) == 3
    seen.remove("b")
    assert list(seen.iter_recent(80.0)) == []


def test_the_oldest_entry_is_evicted() -> None:
    seen: RecentCache[int, None] = RecentCache(60.0, most=3)
    for number in (1, 2, 3, 1, 4):
        seen.put(number, None, float(number))
    assert sorted(seen.iter_recent(5.0)) == [1, 3, 4]
