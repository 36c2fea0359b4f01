"""What is remembered of hosts is bounded, and is not believed for ever."""

from tpuherd.sync.recent_cache import Recent


def test_what_was_seen_is_forgotten_after_its_time() -> None:
    seen: Recent[str, int] = Recent(60.0)
    seen.note("a", 1, 0.0)
    seen.note("b", 2, 30.0)
    assert [seen.get(key, 59.0) for key in "abc"] == [1, 2, None]
    assert [seen.get(key, 60.0) for key in "ab"] == [None, 2]
    assert list(seen.all(60.0)) == ["b"]
    seen.note("b", 3, 80.0)
    assert seen.get("b", 130.0) == 3
    seen.forget("b")
    assert list(seen.all(80.0)) == []


def test_the_oldest_goes_where_there_are_too_many() -> None:
    seen: Recent[int, None] = Recent(60.0, most=3)
    for number in (1, 2, 3, 1, 4):
        seen.note(number, None, float(number))
    assert sorted(seen.all(5.0)) == [1, 3, 4]
