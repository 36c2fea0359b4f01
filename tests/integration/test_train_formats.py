"""Both checkpoint formats behave alike, on several hosts, in a folder and in a bucket."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.world import World, client, started
from tests.integration.test_train_pods import FORMS, Pod, refused, well
from tpuherd_host.train.storage import Bucket, Folder, Place

PROGRAM = Path(__file__).parent / "clients" / "train_forms.py"

pytestmark = [pytest.mark.real]


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with started() as found:
        found.ask("POST", "storage/v1/b?project=demo", {"name": "forms", "location": "US"})
        yield found


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def pod(form: str, tmp_path: Path) -> Pod:
    return Pod(client("train" if form == "orbax" else "inside"), tmp_path / "home", PROGRAM)


@pytest.fixture(params=["folder", "bucket"])
def place(
    request: pytest.FixtureRequest, world: World, form: str, tmp_path: Path
) -> Iterator[tuple[Place, dict[str, Any]]]:
    """Where the checkpoints are, and the variables by which a program finds it."""
    if request.param == "folder":
        yield Folder(str(tmp_path / "saved")), {}
        return
    env = {
        "STORAGE_EMULATOR_HOST": world.url,
        "TENSORSTORE_GCS_HTTP_URL": world.url,
        "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",
    }
    yield Bucket(f"gs://forms/{form}", env), env


def damage(place: Place) -> None:
    """Of steps 2 to 4: flip a bit in the newest, take a piece of the one before, add a torso."""
    pieces = [name for name in place.names("step-00000004/") if not name.endswith("/whole.json")]
    largest = max(pieces, key=lambda name: len(place.read(name)))
    content = bytearray(place.read(largest))
    content[-9] ^= 1
    place.write(largest, [bytes(content)])
    (missing, *_) = [name for name in place.names("step-00000003/") if "whole" not in name]
    place.remove(missing)
    place.write("step-00000005/part-0", [b"half of it"])


def flat(rows: Any) -> list[float]:
    return [number for row in rows for number in row]


COUNT = [number / 7 for number in range(24)]


def test_types_damage_and_commits_on_several_hosts(
    pod: Pod, form: str, place: tuple[Place, dict[str, Any]]
) -> None:
    there, env = place
    saved = pod.run(there.location, form, "save", **env)
    first = well(saved)
    assert [first[name][0] for name in ("rows", "halves", "numbers", "best")] == [
        "float32", "bfloat16", "float32", "float",
    ]  # fmt: skip
    assert {name.partition("/")[0] for name in there.names("step-")} == {
        "step-00000002", "step-00000003", "step-00000004",
    }  # fmt: skip
    damage(there)
    loaded = pod.run(there.location, form, "load", **env)
    said = well(loaded)
    assert "skipped the checkpoint of step 5: its save was cut short" in loaded[0].log
    assert "was changed after it was written" in loaded[0].log
    assert "skipped the checkpoint of step 3: " in loaded[0].log
    assert " is missing" in loaded[0].log
    assert not there.names("step-00000005/")
    for one in loaded:
        assert one.said["start"] == 2
        assert one.said["rows"][0] == "bfloat16"
        assert one.said["halves"][0] == "float32"
        assert one.said["numbers"][0] == "float16"
        assert one.said["step"] == ["int32", 2]
        assert one.said["key"] == first["key"]
        assert one.said["best"] == ["float", 0.5]
    rows = [number for one in loaded for piece in one.said["rows"][1] for number in flat(piece)]
    for numbers in (rows, flat(said["halves"][1]), flat(said["numbers"][1])):
        assert numbers == pytest.approx(COUNT, rel=2**-8)
    (alone,) = pod.run(there.location, form, "load", count=1, chips=4, **env)
    assert alone.said["start"] == 2
    assert [number for piece in alone.said["rows"][1] for number in flat(piece)] == rows


def test_what_stays_and_a_part_of_it_on_several_hosts(
    pod: Pod, form: str, place: tuple[Place, dict[str, Any]]
) -> None:
    there, env = place
    pod = replace(pod, program=PROGRAM.with_name("train_kept.py"))
    saved = pod.run(f"{there.location}/kept", form, "train", **env)
    well(saved)
    steps = {name.split("/")[1] for name in there.names("kept/step-")}
    assert steps == {f"step-{step:08d}" for step in (4, 6, 12, 15, 20)}
    wider = pod.run(f"{there.location}/kept", form, "wider", **env)
    well(wider)
    for one in wider:
        assert one.said["start"] == 20
        assert one.said["leaves"]["['rows']"] == [21.0]
        assert one.said["leaves"]["['added']"] == [7.0]
    assert wider[0].log.count("keeps its initial value") == 2
    assert "keeps its initial value" not in wider[1].log, "one host says it"
    again = pod.run(f"{there.location}/kept", form, "partial", count=1, chips=4, **env)
    assert well(again)["leaves"]["['rows']"] == [22.0]
    assert "loaded 7 of 7 arrays from the checkpoint of step 21" in again[0].log
    typo = pod.run(f"{there.location}/typo", form, "typo", count=1, **env)
    well(typo)
    assert "no checkpoint is the best: run.keep() was never given typo=" in typo[0].log


def test_one_format_is_the_default_everywhere(pod: Pod, form: str, tmp_path: Path) -> None:
    """Whatever is installed."""
    place = Folder(str(tmp_path / "saved"))
    well(pod.run(place.location, "", "save", count=1))
    assert b'"form": "pieces"' in place.read("step-00000004/whole.json")


def test_a_missing_requirement_of_a_format_is_one_sentence(tmp_path: Path) -> None:
    pod = Pod(client("inside"), tmp_path / "home", PROGRAM)
    place = tmp_path / "saved"
    refused(
        pod.run(place, "orbax", "save", count=1),
        "form='orbax' needs orbax.checkpoint here: pip install orbax-checkpoint",
    )
    refused(pod.run(place, "zip", "save"), "form='zip' is neither 'pieces' nor 'orbax'")
