"""The job field `nfs`: which folders and servers it accepts."""

import pytest

from tests.unit.test_jobfile_fields import job
from tpuherd.cli.submit_job import own_disk_lines
from tpuherd.jobfile.fields import FIELDS, ChangeImpact
from tpuherd.jobfile.nfs_folders import find_nfs_folder
from tpuherd.jobfile.read_job import read_fields

GOOD = {"/data": "10.0.0.2:/share", "/home/me/x": "filer.internal:/", "/models": "w0"}
SYSTEM = "hosts need {} themselves: choose another folder, such as /data"
NO_SERVER = (
    "{!r} is not a server and its path, such as 10.0.0.2:/share, or w0 for a folder of worker 0"
)


def mistakes(**fields: object) -> list[str]:
    found = read_fields({"name": "gpt", "accelerator": "v4-32", **fields})
    assert isinstance(found, list), found
    return [f"{one.field}: {one.sentence}" for one in found]


def test_folders_with_their_servers() -> None:
    assert job(nfs=GOOD).nfs == GOOD
    assert job(nfs={"/data": "[fd00::2]:/share"}).nfs == {"/data": "[fd00::2]:/share"}
    assert FIELDS["nfs"].needs is ChangeImpact.ATTEMPT


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("10.0.0.2:/share", "nfs: should map folders to servers, such as {/data: 10.0.0.2:/share},"
         " not '10.0.0.2:/share'"),
        ({}, "nfs: should map folders to servers, such as {/data: 10.0.0.2:/share}, not {}"),
        ({"data": "w0"}, "nfs.data: 'data' is not a folder's full path, such as /data"),
        ({"/data/": "w0"}, "nfs./data/: '/data/' is not a folder's full path, such as /data"),
        ({"/a/../b": "w0"}, "nfs./a/../b: '/a/../b' is not a folder's full path, such as /data"),
        ({"/a b": "w0"}, "nfs./a b: '/a b' is not a folder's full path, such as /data"),
        ({"/": "w0"}, "nfs./: '/' is not a folder's full path, such as /data"),
        ({"/home": "w0"}, f"nfs./home: {SYSTEM.format('/home')}"),
        ({"/etc/x": "w0"}, f"nfs./etc/x: {SYSTEM.format('/etc/x')}"),
        ({"/data": "w1"}, f"nfs./data: {NO_SERVER.format('w1')}"),
        ({"/data": "10.0.0.2:share"}, f"nfs./data: {NO_SERVER.format('10.0.0.2:share')}"),
        ({"/data": "x:/a/../b"}, f"nfs./data: {NO_SERVER.format('x:/a/../b')}"),
        ({"/data": "-o,rw:/x"}, f"nfs./data: {NO_SERVER.format('-o,rw:/x')}"),
        ({"/a": "w0", "/a/b": "w0"}, "nfs./a/b: /a/b is inside /a: choose folders beside each"
         " other"),
    ],
)  # fmt: skip
def test_each_mistake_is_a_sentence(value: object, sentence: str) -> None:
    assert mistakes(nfs=value) == [sentence]


def test_checkpoints_are_not_kept_on_a_node() -> None:
    path = "/models/gpt"
    assert mistakes(nfs={"/models": "w0"}, checkpoint=path) == [
        "checkpoint: /models is on worker 0's disk, which is deleted with the node: use a bucket,"
        " gs://BUCKET/PATH, or a server that stays"
    ]
    assert job(nfs={"/models": "10.0.0.2:/x"}, checkpoint=path).checkpoint == path
    assert job(nfs={"/mod": "w0"}, checkpoint=path).checkpoint == path
    assert find_nfs_folder(GOOD, "/data/x/y") == "/data"
    assert find_nfs_folder(GOOD, "/database") == ""


def test_what_lives_on_a_spot_node_is_said() -> None:
    assert own_disk_lines({"/data": "10.0.0.2:/x"}, ["spot"]) == []
    (line,) = own_disk_lines(GOOD, ["spot", "on-demand"])
    assert line.startswith("/models is on worker 0's disk and deleted with the node, which Google")
    (line,) = own_disk_lines({"/b": "w0", "/a": "w0"}, ["on-demand"])
    assert line.startswith("/a, /b are on worker 0's disk and deleted with the node: keep nothing")
