"""Scenario files: each mistake is reported with its line and field; the rest becomes steps."""

from pathlib import Path

import pytest

from tpuherd_sim.weather import arguments, scenario, traces
from tpuherd_sim.weather.scenario import Scenario, ScenarioError
from tpuherd_sim.weather.traces import Trace

SAMPLES = Path(__file__).parents[1] / "scenarios" / "weather"
BAD = sorted((SAMPLES / "bad").glob("*.yaml"))


def parsed(file: Path) -> Scenario:
    return scenario.parse_scenario(
        file.read_text(encoding="utf-8"), read=lambda path: (file.parent / path).read_text()
    )


@pytest.mark.parametrize("file", BAD, ids=lambda file: file.stem)
def test_a_bad_scenario_is_refused_with_its_line(file: Path) -> None:
    expected = file.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")
    with pytest.raises(ScenarioError) as caught:
        parsed(file)
    assert str(caught.value) == expected


def test_a_scenario_with_every_section_becomes_ordered_steps() -> None:
    steps = scenario.scenario_steps(parsed(SAMPLES / "good" / "everything.yaml"))
    assert [step["at_s"] for step in steps] == sorted(step["at_s"] for step in steps)
    calm = [step for step in steps if step["at_s"] == 0.0][:5]
    assert [
        (step["do"], step.get("zone"), step.get("type"), step.get("nodes")) for step in calm
    ] == [
        ("capacity", "us-central2-b", "v4-8", 4),
        ("capacity", "us-central2-b", "*", 6),
        ("capacity", "us-east1-d", "*", 2),
        ("http-error", None, None, None),
        ("slow-keys", None, None, None),
    ]
    assert {
        "at_s": 3600.0,
        "every_s": 3600.0,
        "until_s": 86400.0,
        "do": "crash",
        "target": "gpt-*",
        "pick": 1,
    } in steps
    assert {
        "at_s": 5400.0,
        "do": "drought",
        "zone": "us-central2-*",
        "type": "*",
        "for": 7200.0,
    } in steps
    assert any(step.get("zone") == "us-west4-a" for step in steps), "the storm is there"


def test_every_step_can_be_sent_again_as_it_is() -> None:
    for step in scenario.scenario_steps(parsed(SAMPLES / "good" / "everything.yaml")):
        said = {
            name: step[name] for name in step if name not in ("at_s", "every_s", "until_s", "do")
        }
        arguments.fill_arguments(arguments.find_kind(step["do"]), said)


def test_a_trace_changes_at_times_chosen_by_its_seed() -> None:
    levels = (2, 2, 2, 0, 0, 1)
    trace = Trace(zone="us-central2-b", type="v4-8", gap_s=300.0, levels=levels, start_s=60.0)
    first, dry, again = traces.trace_steps(trace, seed=3)
    assert (first["at_s"], first["nodes"]) == (60.0, 2)
    assert dry["nodes"] == 0 and 60.0 + 2 * 300.0 < dry["at_s"] <= 60.0 + 3 * 300.0
    assert again["nodes"] == 1 and 60.0 + 4 * 300.0 < again["at_s"] <= 60.0 + 5 * 300.0
    assert [first, dry, again] == list(traces.trace_steps(trace, seed=3))
    assert [first, dry, again] != list(traces.trace_steps(trace, seed=4))


def test_an_offset_skips_the_beginning_of_a_trace() -> None:
    trace = Trace(zone="us-central2-b", type="*", gap_s=300.0, levels=(5, 5, 0, 3), offset_s=650.0)
    assert [step["nodes"] for step in traces.trace_steps(trace, seed=0)] == [0, 3]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[]", "it must be JSON"),
        ("{", "it must be JSON"),
        ('{"metadata": {}, "data": []}', "it must be JSON"),
        ('{"metadata": {"gap_seconds": 0}, "data": [1]}', "gap_seconds must be a number above 0"),
        ('{"metadata": {"gap_seconds": true}, "data": [1]}', "gap_seconds must be a number"),
        ('{"metadata": {"gap_seconds": 9}, "data": []}', "its data must be a list"),
        ('{"metadata": {"gap_seconds": 9}, "data": [1, -1]}', r"data\[1\] must be a whole number"),
        ('{"metadata": {"gap_seconds": 9}, "data": [1, 1.5]}', r"data\[1\] must be a whole"),
    ],
)
def test_invalid_traces_are_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        traces.parse_trace(text)


@pytest.mark.parametrize(
    ("said", "seconds"),
    [(90, 90.0), (1.5, 1.5), ("90", 90.0), ("90s", 90.0), ("10m", 600.0), ("1h30m", 5400.0),
     ("1.5h", 5400.0), ("2d", 172800.0), ("250ms", 0.25), ("", None), ("soon", None), ("-3", None),
     (-3, None), (True, None), (None, None), ("3 s", None), ("nan", None), ([], None)],
)  # fmt: skip
def test_durations(said: object, seconds: float | None) -> None:
    assert arguments.read_duration(said) == seconds
