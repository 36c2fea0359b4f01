"""Objects in buckets: with Google's own client, and as our checkpoints are written and read."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest

from tests.conformance.world import World
from tpuherd_host.train.storage import Bucket, Unreachable

pytestmark = pytest.mark.filterwarnings("ignore")  # the client's own, not ours
LONG = bytes(range(256)) * 4096


@pytest.fixture
def bucket(storage: Any) -> Iterator[Any]:
    made = storage.create_bucket(f"b-{uuid4().hex[:8]}", location="us-central2")
    yield made
    made.delete(force=True)


def test_objects_are_read_as_written(bucket: Any) -> None:
    bucket.blob("a/b c/ü.bin").upload_from_string(LONG)
    blob = bucket.get_blob("a/b c/ü.bin")
    assert (blob.size, blob.name) == (len(LONG), "a/b c/ü.bin")
    assert blob.download_as_bytes() == LONG
    assert blob.download_as_bytes(start=1000, end=1999) == LONG[1000:2000]
    assert bucket.get_blob("a") is None


def test_a_large_object_is_uploaded_in_parts(bucket: Any) -> None:
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


def test_preconditions_and_missing_objects(bucket: Any, errors: Any) -> None:
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


def test_a_policy_is_changed_by_googles_client(bucket: Any, errors: Any) -> None:
    assert bucket.iam_configuration.uniform_bucket_level_access_enabled
    policy = bucket.get_iam_policy(requested_policy_version=1)
    policy["roles/storage.objectViewer"].add("allUsers")
    bucket.set_iam_policy(policy)
    assert "allUsers" in bucket.get_iam_policy()["roles/storage.objectViewer"]
    with pytest.raises(errors.PreconditionFailed):
        bucket.set_iam_policy(policy)
    assert bucket.test_iam_permissions(["storage.objects.get"]) == ["storage.objects.get"]


def test_a_storage_for_checkpoints(world: World, bucket: Any) -> None:
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


class Plain:
    """Requests without a client library: each gives its status, headers and body."""

    def __init__(self, world: World) -> None:
        name = f"b-{uuid4().hex[:8]}"
        world.ask("POST", "storage/v1/b?project=demo", {"name": name, "location": "US"})
        self.objects = f"storage/v1/b/{name}/o"
        self.url = world.url

    def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> Any:
        url = path if path.startswith("http") else f"{self.url}/{path}"
        request = urllib.request.Request(url, body or None, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, answer.headers, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.headers, error.read()

    def write(self, name: str, body: bytes, conditions: str = "") -> tuple[int, int]:
        """The status, and the object's generation."""
        path = f"upload/{self.objects}?uploadType=media&name={name}{conditions}"
        status, _, said = self.ask("POST", path, body)
        return status, int(json.loads(said)["generation"]) if status == 200 else 0

    def begin(self, name: str) -> str:
        """The address of an upload in parts."""
        _, headers, _ = self.ask("POST", f"upload/{self.objects}?uploadType=resumable&name={name}")
        return str(headers["Location"])


@pytest.fixture
def plain(world: World) -> Plain:
    return Plain(world)


def test_a_read_returns_its_generation(plain: Plain) -> None:
    """TensorStore writes on the condition that the object is unchanged since it read it."""
    _, first = plain.write("manifest", b"one")
    for cut, content in ("bytes=0-", b"one"), ("bytes=1-1", b"n"):
        _, headers, body = plain.ask("GET", f"{plain.objects}/manifest?alt=media", Range=cut)
        assert (int(headers["x-goog-generation"]), body) == (first, content)
        assert headers["x-goog-metageneration"] == "1"
        assert headers["x-goog-stored-content-length"] == "3"
    generations = [plain.write("manifest", b"%d" % number)[1] for number in range(50)]
    assert sorted(set(generations)) == generations, "one that was given twice hides a write"
    assert generations[0] > first
    newest = generations[-1]
    assert plain.write("manifest", b"late", f"&ifGenerationMatch={first}") == (412, 0)
    same = f"{plain.objects}/manifest?alt=media&ifGenerationNotMatch={newest}"
    assert plain.ask("GET", same)[::2] == (304, b"")
    assert plain.write("manifest", b"next", f"&ifGenerationMatch={newest}")[0] == 200
    assert plain.ask("GET", same)[::2] == (200, b"next")


def test_of_many_conditional_writers_one_wins(plain: Plain) -> None:
    with ThreadPoolExecutor(12) as pool:
        for turn in range(8):
            answers = pool.map(
                lambda _, name=f"once-{turn}": plain.write(name, b"mine", "&ifGenerationMatch=0"),
                range(12),
            )
            assert sorted(status for status, _ in answers) == [200] + [412] * 11


def test_two_multipart_uploads_of_one_name_do_not_mix(plain: Plain) -> None:
    one, other = plain.begin("part"), plain.begin("part")
    for place, body in ((one, b"aa"), (other, b"bbb")):
        assert plain.ask("PUT", place, body, **{"Content-Range": "bytes 0-1/*"})[0] == 308
    assert plain.ask("PUT", one, b"A", **{"Content-Range": "bytes 2-2/3"})[0] == 200
    assert plain.ask("GET", f"{plain.objects}/part?alt=media")[2] == b"aaA"
    assert plain.ask("PUT", other, b"B", **{"Content-Range": "bytes 3-3/4"})[0] == 200
    assert plain.ask("GET", f"{plain.objects}/part?alt=media")[2] == b"bbbB"
    assert plain.ask("PUT", one, b"A", **{"Content-Range": "bytes 0-0/1"})[0] == 404


def test_an_object_keeps_what_its_writer_says_about_it(plain: Plain) -> None:
    """By its metadata, pyarrow knows that an empty object stands for a folder."""
    about = {"name": "a/", "metadata": {"arrow/gcsfs": "directory"}}
    body = f"--x\r\n\r\n{json.dumps(about)}\r\n--x\r\n\r\n\r\n--x--\r\n".encode()
    kind = {"Content-Type": "multipart/related; boundary=x"}
    path = f"upload/{plain.objects}?uploadType=multipart&ifGenerationMatch=0"
    assert json.loads(plain.ask("POST", path, body, **kind)[2])["metadata"] == about["metadata"]
    for found in (
        json.loads(plain.ask("GET", f"{plain.objects}/a%2F")[2]),
        *json.loads(plain.ask("GET", plain.objects)[2])["items"],
    ):
        assert (found["name"], found["metadata"]) == ("a/", about["metadata"])
    plain.write("a%2F", b"without")
    assert "metadata" not in json.loads(plain.ask("GET", f"{plain.objects}/a%2F")[2])
    assert plain.ask("POST", path.rpartition("&")[0], body, **kind)[0] == 200
    assert plain.ask("DELETE", f"{plain.objects}/a%2F")[0] == 204
    plain.write("a%2F", b"another")
    assert "metadata" not in json.loads(plain.ask("GET", f"{plain.objects}/a%2F")[2])
