"""The log of a world that has had more to say than anybody reads."""

from tests.simulated.asking import Asker
from tpuherd_sim.model.world import LOG_LINES_MAX, lines_from, note, written
from tpuherd_sim.model.world_codec import dump, load


def test_of_a_long_log_the_older_half_is_forgotten_and_numbers_stay() -> None:
    asker = Asker()
    for number in range(LOG_LINES_MAX + 5):
        note(asker.world, asker.now, "node.ready", node="z/n", number=number)
    assert written(asker.world) == LOG_LINES_MAX + 5
    assert len(asker.world.log) <= LOG_LINES_MAX
    first, rest = lines_from(asker.world, 0)
    assert rest[0].facts["number"] == first
    assert lines_from(asker.world, first + 7)[1][0].facts["number"] == first + 7
    assert lines_from(asker.world, LOG_LINES_MAX + 5) == (LOG_LINES_MAX + 5, [])
    assert written(load(dump(asker.world))) == written(asker.world)


def test_a_reader_that_is_late_goes_on_where_the_log_begins() -> None:
    asker = Asker()
    for _ in range(LOG_LINES_MAX + 5):
        note(asker.world, asker.now, "node.ready", node="z/n")
    seen, since, more = [], 0, True
    while more:
        page = asker.get(f"/sim/v1/log?since={since}")
        seen += [line["number"] for line in page["lines"]]
        since, more = page["next"], page["more"]
    assert seen == list(range(asker.world.forgotten, written(asker.world)))
