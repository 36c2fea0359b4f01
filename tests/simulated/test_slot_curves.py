"""The curves below a timeline come from the samples, and nothing else depends on them."""

from math import nan
from pathlib import Path

import pytest

from tests.unit.screen_scenes import build_view
from tpuherd.jobs.slot_curves import slot_curves
from tpuherd.model.samples import SeriesName
from tpuherd.store.database import Database
from tpuherd.store.sample_store import SampleStore
from tpuherd.views.job_rows import job_page
from tpuherd.views.job_screens import latest_step, status_screen
from tpuherd.views.slot_pictures import Curve


def test_losses_and_the_step_rate_are_drawn(tmp_path: Path) -> None:
    view = build_view()
    start = view.accounts["gpt-0"].start
    store, samples = Database(tmp_path, start), SampleStore(tmp_path)
    try:
        for name in ("step_rate", "val_loss", "loss", "lr", "step"):
            series = SeriesName(job="gpt", slot="gpt-0", name=name)
            values = [(series, start + 300 + 10.0 * at, 9.0 - at) for at in range(8)]
            samples.put_samples([], [*values, (series, start + 400, nan)])
        curves = slot_curves(store, view.accounts, ["gpt-0", "gpt-1", "missing"])
    finally:
        samples.close()
        store.close()
    assert [curve.name for curve in curves["gpt-0"]] == ["step", "step_rate", "loss", "val_loss"]
    assert curves["gpt-1"] == []
    page = job_page(view, "gpt", ["gpt-0"])
    text = status_screen(page, view.accounts, curves, colour=False, width=200)
    (loss,) = [line.split() for line in text.splitlines() if line.lstrip().startswith("loss ")]
    picture = loss[1].removesuffix("×")
    assert (loss[0], loss[1][-1], loss[2]) == ("loss", "×", "nan")
    assert (picture[0], picture[-1]) == ("█", "▁")
    assert [*picture] == sorted(picture, reverse=True)
    assert text.count("steps/s") == 1


def test_no_samples_and_damaged_samples_are_no_curves(tmp_path: Path) -> None:
    view = build_view()
    store = Database(tmp_path, 0.0)
    try:
        assert slot_curves(store, view.accounts, ["gpt-0"]) == {"gpt-0": []}
        SampleStore(tmp_path).file.write_bytes(b"no database" * 999)
        assert slot_curves(store, view.accounts, ["gpt-0"]) == {}
        assert slot_curves(store, view.accounts, ["gpt-0"] * 5) == {}
    finally:
        store.close()


@pytest.mark.parametrize(
    ("phase", "points", "step"),
    [
        ("running", ((1.0, 90.0), (2.0, 120.0)), 120),
        ("running", ((1.0, 30.0),), 100),  # repeats what was lost
        ("running", ((1.0, nan),), 100),
        ("running", (), 100),
        ("done", ((1.0, 120.0),), 100),
    ],
)
def test_the_latest_step_is_that_of_a_running_script(
    phase: str, points: tuple[tuple[float, float], ...], step: int
) -> None:
    slot = {"slot": "gpt-0", "phase": phase, "step": 100}
    assert latest_step(slot, {"gpt-0": [Curve(name="step", points=points)]}) == step
    assert latest_step(slot, {}) == 100
