"""Shards in a bucket are read like files, and the local copies never exceed their limit."""

import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.world import World, started
from tpuherd_host.train import Batches, Shards, Split
from tpuherd_host.train.sample_split import InvalidSetup
from tpuherd_host.train.storage import Place, place

COUNTS = (5, 9, 0, 7, 6)

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with started("--time-scale", "60") as found:
        found.ask("POST", "storage/v1/b?project=demo", {"name": "shards", "location": "US"})
        yield found


@pytest.fixture
def bucket(world: World, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Place:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", world.url)
    found = place(f"gs://shards/{request.node.name}")
    for number, many in enumerate(COUNTS):
        found.write(f"{number}.tar", [tar(number, many)])
    return found


def tar(number: int, many: int) -> bytes:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as archive:
        for at in range(many):
            content = f"{number}.{at}".encode() * 100
            entry = tarfile.TarInfo(f"{number}-{at}.txt")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return whole.getvalue()


def keys(sample: dict[str, str | bytes]) -> tuple[str, str | bytes]:
    return str(sample["__url__"]), sample["txt"]


def read(shards: Shards, streams: int = 0) -> list[tuple[str, bytes]]:
    """All that two hosts read in an epoch."""
    found = []
    for host in range(2):
        split = Split(sizes=shards.sizes, batch=4, host=host, hosts=2, tail="wrap", streams=streams)
        batches = Batches(shards, split, decode=keys, collate=list)
        # Two threads read the same at once, as a loader's may.
        found += [sample for step, _ in batches.ahead(0, split.steps) for sample in batches[step]]
    return found


@pytest.mark.parametrize("streams", [0, 4])
def test_every_sample_of_a_bucket(bucket: Place, tmp_path: Path, streams: int) -> None:
    sizes = {f"{number}.tar": many for number, many in enumerate(COUNTS)}
    bucket.write("sizes.json", [json.dumps(sizes).encode()])
    shards = Shards(bucket.location, cache=str(tmp_path / "kept"), room=20_000)
    assert not (tmp_path / "kept").exists(), "nothing is brought before it is wanted"
    wanted = {
        (f"{bucket.location}/{number}.tar", f"{number}.{at}".encode() * 100)
        for number, many in enumerate(COUNTS)
        for at in range(many)
    }
    assert set(read(shards, streams)) == wanted
    here = list((tmp_path / "kept").iterdir())
    assert sum(file.stat().st_size for file in here) <= 20_000
    assert len(here) < len(COUNTS)


def test_uncounted_shards_are_counted(
    bucket: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [f"{bucket.location}/{number}.tar" for number in (1, 3)]
    shards = Shards(paths, cache=str(tmp_path))
    assert shards.sizes == (9, 7)
    assert capsys.readouterr().err == (
        "herd: no sizes.json has 2 of the shards: every host brings and counts them\n"
    )
    again = Shards(paths, cache=str(tmp_path))
    assert again[1][6]["txt"] == b"3.6" * 100


def test_missing_and_short_shards(bucket: Place, tmp_path: Path) -> None:
    with pytest.raises(InvalidSetup, match=r"there is no gs://shards/.*/7\.tar"):
        Shards([f"{bucket.location}/7.tar"])
    with pytest.raises(InvalidSetup, match=r"there is no \*\.tar in gs://shards/nothing"):
        Shards("gs://shards/nothing")
    assert Shards(f"{bucket.location}/[34]*.tar", cache=str(tmp_path)).sizes == (7, 6)
    bucket.write("sizes.json", [b'{"1.tar": 8}'])
    shards = Shards([f"{bucket.location}/1.tar"], cache=str(tmp_path))
    with pytest.raises(InvalidSetup, match=r"1\.tar has 9 samples, but sizes\.json says 8"):
        shards[0][0]
