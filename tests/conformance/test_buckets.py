"""What is in buckets: with Google's own client, and as our checkpoints are written and read."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from tests.conformance.world import World
from tpuherd_host.train.places import Bucket, Unreachable

pytestmark = pytest.mark.filterwarnings("ignore")  # the client's own, not ours
LONG = bytes(range(256)) * 4096


@pytest.fixture
def bucket(storage: Any) -> Iterator[Any]:
    made = storage.create_bucket(f"b-{uuid4().hex[:8]}", location="us-central2")
    yield made
    made.delete(force=True)


def test_objects_come_back_as_they_were(bucket: Any) -> None:
    bucket.blob("a/b c/ü.bin").upload_from_string(LONG)
    blob = bucket.get_blob("a/b c/ü.bin")
    assert (blob.size, blob.name) == (len(LONG), "a/b c/ü.bin")
    assert blob.download_as_bytes() == LONG
    assert blob.download_as_bytes(start=1000, end=1999) == LONG[1000:2000]
    assert bucket.get_blob("a") is None


def test_a_long_one_in_parts(bucket: Any) -> None:
    blob = bucket.blob("long")
    blob.chunk_size = 256 << 10
    with blob.open("wb") as stream:
        for _ in range(3):
            stream.write(LONG)
    assert bucket.blob("long").download_as_bytes() == LONG * 3


def test_lists_by_prefix_and_delimiter(bucket: Any) -> None:
    for name in ("x/1", "x/2", "x/y/3", "z"):
        bucket.blob(name).upload_from_string(name)
    assert [blob.name for blob in bucket.list_blobs()] == ["x/1", "x/2", "x/y/3", "z"]
    pages = bucket.list_blobs(prefix="x/", delimiter="/", page_size=1)
    assert [blob.name for blob in pages] == ["x/1", "x/2"]
    assert pages.prefixes == {"x/y/"}


def test_conditions_and_what_is_not_there(bucket: Any, errors: Any) -> None:
    blob = bucket.blob("once")
    blob.upload_from_string("first", if_generation_match=0)
    with pytest.raises(errors.PreconditionFailed):
        blob.upload_from_string("second", if_generation_match=0)
    assert blob.download_as_bytes() == b"first"
    with pytest.raises(errors.Conflict, match="not empty"):
        bucket.delete()
    blob.delete()
    with pytest.raises(errors.NotFound, match="No such object"):
        blob.download_as_bytes()


def test_a_place_for_checkpoints(world: World, bucket: Any) -> None:
    place = Bucket(f"gs://{bucket.name}/run/1", {"STORAGE_EMULATOR_HOST": world.url})
    place.write("step-1/part-0", [LONG[:100], memoryview(LONG)])
    place.write("step-1/whole.json", [b"{}"])
    assert place.names("step-") == ["step-1/part-0", "step-1/whole.json"]
    assert place.read("step-1/part-0", 90, 20) == LONG[90:100] + LONG[:10]
    assert place.read("step-1/part-0") == LONG[:100] + LONG
    place.remove("step-1/")
    assert place.names() == []
    with pytest.raises(FileNotFoundError):
        place.read("step-1/part-0")
    with pytest.raises(Unreachable, match="bucket does not exist"):
        Bucket("gs://nobody-has-this/x", {"STORAGE_EMULATOR_HOST": world.url}).names()
