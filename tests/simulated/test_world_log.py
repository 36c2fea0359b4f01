"""The log of a world that has grown too long."""

from tests.simulated.in_process_world import Asker
from tpuherd_sim.model.world import LOG_LINES_MAX, log_entries_from, log_event, log_length
from tpuherd_sim.model.world_codec import dump_world, load_world


def test_of_a_long_log_the_older_half_is_dropped_and_numbers_stay() -> None:
    asker = Asker()
    for number in range(LOG_LINES_MAX + 5):
        log_event(asker.world, asker.now, "node.ready", node="z/n", number=number)
    assert log_length(asker.world) == LOG_LINES_MAX + 5
    assert len(asker.world.log) <= LOG_LINES_MAX
    first, rest = log_entries_from(asker.world, 0)
    assert rest[0].facts["number"] == first
    assert log_entries_from(asker.world, first + 7)[1][0].facts["number"] == first + 7
    assert log_entries_from(asker.world, LOG_LINES_MAX + 5) == (LOG_LINES_MAX + 5, [])
    assert log_length(load_world(dump_world(asker.world))) == log_length(asker.world)


def test_a_late_reader_continues_where_the_log_begins() -> None:
    asker = Asker()
    for _ in range(LOG_LINES_MAX + 5):
        log_event(asker.world, asker.now, "node.ready", node="z/n")
    seen, since, more = [], 0, True
    while more:
        page = asker.get(f"/sim/v1/log?since={since}")
        seen += [line["number"] for line in page["lines"]]
        since, more = page["next"], page["more"]
    assert seen == list(range(asker.world.forgotten, log_length(asker.world)))
