"""`herd metrics JOB`: what was kept as tables, CSV and JSON, and what it says without any."""

import csv
import io
import json
import math
from pathlib import Path
from time import time

import jsonschema  # type: ignore[import-untyped]
import pytest
from json_schemas import SCHEMAS

from tests.simulated.conftest import Herd
from tests.simulated.test_sample_store import sample, value
from tpuherd.model.samples import Series, SeriesName, SeriesPoint
from tpuherd.model.slots_and_plan import Goal
from tpuherd.model.stored_job import StoredJob
from tpuherd.settings import project_access
from tpuherd.store.database import Database
from tpuherd.store.sample_store import SampleStore
from tpuherd.views.series_table import series_text


@pytest.fixture(autouse=True)
def job_with_samples(world: Path, tmp_path: Path) -> None:
    """Store an hour of samples of gpt."""
    scope = project_access.resolve_scope({"HOME": str(tmp_path)}, world=world)
    now = time()
    store = Database(scope.store_folder, now)
    store.put_job(
        StoredJob(job="gpt", goal=Goal.IDLE, document={"name": "gpt"}, made_at=now, changed_at=now)
    )
    store.close()
    samples = SampleStore(scope.store_folder)
    for row in range(60):
        at = now - 3600.0 + 60.0 * row
        loss = math.nan if row == 59 else 10.0 / (row + 1)
        names = [value("loss", at, loss), value("a\x1b[31mb", at, 1.0)]
        samples.put_samples([sample(at, chips=2)], names)
    samples.close()


def test_values_of_scripts_are_shown_first(herd: Herd) -> None:
    status, text, _ = herd("metrics", "gpt")
    assert status == 0
    heading, *rows = text.splitlines()
    assert heading.split() == "OF NAME LAST LOWEST MEAN HIGHEST OVER TIME".split()
    assert [row.split()[0] for row in rows] == ["gpt-0", "gpt-0"]
    assert "\x1b" not in text
    (loss,) = [row for row in rows if " loss " in row]
    assert "nan" in loss and " 10 " in loss


def test_values_of_chips_have_units(herd: Herd) -> None:
    status, text, _ = herd("metrics", "gpt", "duty", "hbm_used", "--since", "30m")
    assert status == 0
    assert len(text.splitlines()) == 5
    assert "91.0 %" in text and "2.15 GB" in text


def test_csv_and_json_have_every_point(herd: Herd) -> None:
    status, text, _ = herd("metrics", "gpt-0", "loss", "--csv")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert (status, len(rows)) == (0, 60)
    assert (rows[0]["slot"], rows[0]["mean"], rows[-1]["mean"]) == ("gpt-0", "10.0", "nan")
    status, text, _ = herd("metrics", "gpt", "loss", "cpu", "--json")
    content = json.loads(text, parse_constant=lambda word: pytest.fail(word))
    jsonschema.validate(content, SCHEMAS["herd metrics NAME --json"])
    assert [(one["host"], len(one["points"])) for one in content] == [
        ("", 60), ("gpt-0-g1-me/w0", 60),
    ]  # fmt: skip
    assert content[0]["points"][-1][1:] == [None, None, None]


def test_one_point_is_no_curve() -> None:
    name = SeriesName(job="gpt", slot="gpt-0", name="loss")
    found = [Series(name=name, points=(SeriesPoint(1.0, 2.0, 2.0, 2.0),))]
    assert series_text(found, colour=False, width=None).splitlines()[1].split() == [
        "gpt-0", "loss", "2", "2", "2", "2", "-",
    ]  # fmt: skip
