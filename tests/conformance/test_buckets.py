"""Objects in buckets: with Google's own client, and as our checkpoints are written and read."""

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
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


def test_objects_made_of_others(storage: Any, bucket: Any, errors: Any, tmp_path: Path) -> None:
    """Metadata, copies, compositions, parallel transfers, batches as Google's client has them."""
    manager = pytest.importorskip("google.cloud.storage.transfer_manager")
    blob = bucket.blob("a")
    blob.metadata, blob.cache_control = {"k": "v"}, "no-store"
    blob.upload_from_string(LONG, content_type="image/png")
    found = bucket.get_blob("a")
    assert (found.content_type, found.metadata, found.cache_control) == (
        "image/png", {"k": "v"}, "no-store",
    )  # fmt: skip
    found.metadata = {"k": None, "l": "w"}
    found.patch()
    found.update_storage_class("NEARLINE")
    assert (found.metadata, bucket.get_blob("a").storage_class) == ({"l": "w"}, "NEARLINE")
    bucket.copy_blob(found, bucket, "b")
    bucket.rename_blob(bucket.blob("b"), "c")
    whole = bucket.blob("whole")
    whole.compose([bucket.blob("a"), bucket.blob("c")])
    file = tmp_path / "whole"
    manager.download_chunks_concurrently(
        bucket.get_blob("whole"), str(file), chunk_size=1 << 19, worker_type=manager.THREAD
    )
    assert file.read_bytes() == LONG * 2
    parts = bucket.blob("parts")
    manager.upload_chunks_concurrently(
        str(file), parts, chunk_size=1 << 20, worker_type=manager.THREAD
    )
    assert parts.download_as_bytes() == LONG * 2
    assert sorted(one.name for one in bucket.list_blobs(match_glob="[aw]*")) == ["a", "whole"]
    generation = bucket.get_blob("c").generation
    bucket.delete_blob("c")
    assert bucket.restore_blob("c", generation=generation).size == len(LONG)
    with storage.batch():
        bucket.delete_blob("parts")
        found.patch()
    assert bucket.get_blob("parts") is None
    with pytest.raises(errors.NotFound, match="No such object"), storage.batch():
        bucket.delete_blob("parts")
        bucket.delete_blob("whole")
    assert bucket.get_blob("whole") is None


@pytest.mark.needs("gcloud")
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "proxy"])
def test_gcloud_storage(world: World, bucket: Any, tmp_path: Path, tls: bool) -> None:
    """What a user of gcloud types, through the endpoint and through the proxy."""
    small, large = tmp_path / "d" / "small.txt", tmp_path / "d" / "large"
    small.parent.mkdir()
    small.write_text("hello")
    large.write_bytes(LONG * 9)
    there = f"gs://{bucket.name}"

    def gcloud(*words: str | Path, stdin: bytes = b"") -> str:
        done = subprocess.run(
            ["gcloud", "storage", *words],
            env=world.proxy_env if tls else world.env,
            input=stdin,
            capture_output=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    gcloud("cp", small, f"{there}/a/small.txt")
    gcloud("cp", "-", f"{there}/typed", stdin=b"typed")
    gcloud("rsync", "--recursive", small.parent, f"{there}/b")
    assert gcloud("cat", f"{there}/a/small.txt", f"{there}/typed") == "hellotyped"
    gcloud("cp", f"{there}/b/large", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == large.read_bytes()
    gcloud("mv", f"{there}/a/small.txt", f"{there}/c/moved.txt")
    gcloud("objects", "compose", f"{there}/typed", f"{there}/c/moved.txt", f"{there}/both")
    assert gcloud("cat", f"{there}/both") == "typedhello"
    gcloud("objects", "update", f"{there}/both", "--custom-metadata=k=v", "--content-type=text/x")
    assert bucket.get_blob("both").metadata == {"k": "v"}
    assert "crc32c_hash: " in gcloud("hash", f"{there}/both")
    gcloud("buckets", "update", there, "--update-labels=a=b", "--versioning")
    role = ("--member=allUsers", "--role=roles/storage.objectViewer")
    gcloud("buckets", "add-iam-policy-binding", there, *role)
    gcloud("rm", "--recursive", f"{there}/b")
    assert gcloud("ls", "--recursive", f"{there}/**").split() == [
        f"{there}/both", f"{there}/c/moved.txt", f"{there}/typed",
    ]  # fmt: skip
    for version in bucket.list_blobs(versions=True):
        version.delete()


@pytest.mark.needs("gsutil")
def test_gsutil_asks_the_world(world: World, bucket: Any, tmp_path: Path) -> None:
    """It hands its commands to gcloud, also where gcloud has no token yet."""
    (tmp_path / "f").write_text("hello")
    for words, said in (
        (["cp", str(tmp_path / "f"), f"gs://{bucket.name}/d/f"], ""),
        (["cat", f"gs://{bucket.name}/d/f"], "hello"),
        (["label", "ch", "-l", "a:b", f"gs://{bucket.name}"], ""),
    ):
        ran = subprocess.run(
            ["gsutil", *words],
            env=world.env,
            capture_output=True,
            timeout=60,
        )
        assert (ran.returncode, ran.stdout.decode()) == (0, said), ran.stderr.decode()
    bucket.reload()
    assert bucket.labels == {"a": "b"}


def test_a_policy_is_changed_by_googles_client(bucket: Any, errors: Any) -> None:
    assert bucket.iam_configuration.uniform_bucket_level_access_enabled
    policy = bucket.get_iam_policy(requested_policy_version=1)
    policy["roles/storage.objectViewer"].add("allUsers")
    bucket.set_iam_policy(policy)
    assert "allUsers" in bucket.get_iam_policy()["roles/storage.objectViewer"]
    with pytest.raises(errors.PreconditionFailed):
        bucket.set_iam_policy(policy)
    assert bucket.test_iam_permissions(["storage.objects.get"]) == ["storage.objects.get"]


def test_access_lists_of_googles_client(storage: Any, bucket: Any, errors: Any) -> None:
    """Where access is uniform there are none, else `make_public` and its like work."""
    blob = bucket.blob("a")
    blob.upload_from_string("a")
    with pytest.raises(errors.BadRequest, match="Cannot get legacy ACL for an object when"):
        blob.make_public()
    bucket.iam_configuration.uniform_bucket_level_access_enabled = False
    bucket.patch()
    blob.make_public()
    assert {"entity": "allUsers", "role": "READER"} in list(blob.acl)
    blob.acl.all().revoke_read()
    blob.acl.user("ada@example.com").grant_owner()
    blob.acl.save()
    blob.acl.reload()
    assert {"entity": "user-ada@example.com", "role": "OWNER"} in list(blob.acl)
    assert not any(one["entity"] == "allUsers" for one in blob.acl)
    bucket.acl.group("all@example.com").grant_write()
    bucket.acl.save()
    policy = bucket.get_iam_policy()
    assert policy["roles/storage.legacyBucketWriter"] == {"group:all@example.com"}
    bucket.default_object_acl.all().grant_read()
    bucket.default_object_acl.save()
    bucket.blob("b").upload_from_string("b")
    assert {"entity": "allUsers", "role": "READER"} in list(bucket.blob("b").acl)


def test_what_a_project_has_and_had(storage: Any, errors: Any) -> None:
    """A deleted bucket is back with its objects; there is an agent, and no key of HMAC."""
    bucket = storage.create_bucket(f"b-{uuid4().hex[:8]}")
    generation = bucket.generation
    bucket.blob("a").upload_from_string("a")
    bucket.delete(force=True)
    assert bucket.name in [one.name for one in storage.list_buckets(soft_deleted=True)]
    storage.restore_bucket(bucket.name, generation)
    (soft,) = bucket.list_blobs(soft_deleted=True)
    bucket.restore_blob("a", generation=soft.generation)
    assert bucket.blob("a").download_as_bytes() == b"a"
    assert list(bucket.list_notifications()) == []
    assert list(storage.list_hmac_keys()) == []
    assert "@gs-project-accounts.iam." in storage.get_service_account_email()
    with pytest.raises(errors.NotFound):
        storage.create_hmac_key("ada@demo.iam.gserviceaccount.com")
    bucket.delete(force=True)


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
    size = 256 << 10
    for place, body in ((one, b"a" * size), (other, b"b" * size)):
        said = {"Content-Range": f"bytes 0-{size - 1}/*"}
        assert plain.ask("PUT", place, body, **said)[0] == 308
    end = {"Content-Range": f"bytes {size}-{size}/{size + 1}"}
    for place, body, last in ((one, b"A", b"aA"), (other, b"B", b"bB")):
        status, _, answer = plain.ask("PUT", place, body, **end)
        assert status == 200
        assert plain.ask("GET", f"{plain.objects}/part?alt=media")[2][-2:] == last
        assert plain.ask("PUT", place, body, **end)[::2] == (200, answer), "a lost answer"


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
