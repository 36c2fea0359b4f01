"""Storms over days, in small: `python -m tests.simulated.engine_months --days 31` has a month."""

from tests.simulated.engine_months import Calendar, live_through

SHORT = Calendar(day_s=4 * 3600.0, endless=1, held=1, daily=1)


def test_every_day_of_a_storm_is_as_it_must_be() -> None:
    days: list[str] = []
    assert live_through(1, 2, SHORT, days.append) == []
    assert len(days) == 2
