"""The job field `nfs`: which folders and servers it accepts."""

import pytest

from tests.unit.test_jobfile_fields import job
from tpuherd.jobfile.fields import FIELDS, ChangeImpact
from tpuherd.jobfile.nfs_folders import find_nfs_folder
from tpuherd.jobfile.read_job import read_fields
from tpuherd.views.nfs_table import login_lines, own_disk_lines, status_table

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


def answer(uid: int, *, writable: bool = True) -> dict[str, object]:
    return {"uid": uid, "gid": uid, "writable": writable}


def test_logins_of_other_ids_are_named() -> None:
    alike = {"gpt-0/w1": answer(1001), "gpt-0/w2": answer(1001)}
    assert login_lines(alike, "/data", "gpt-0/w0", 1001) == []
    assert login_lines(alike, "/data", "10.0.0.2:/x", None) == []
    mixed = {**alike, "gpt-0/w3": answer(1002)}
    (line,) = login_lines(mixed, "/data", "gpt-0/w0", 1001)
    assert line.startswith("gpt-0/w3: your login has uid 1002 there and 1001 on gpt-0/w0: you can")
    (line,) = login_lines(mixed, "/data", "10.0.0.2:/x", None)
    assert line.startswith("your login's uid differs: 1001 on gpt-0/w[1-2]; 1002 on gpt-0/w3.")
    closed = {"gpt-0/w1": answer(1001, writable=False)}
    (line,) = login_lines(closed, "/data", "10.0.0.2:/x", None)
    assert line.startswith("gpt-0/w1: your login can't write in /data: its owner on the server")


def test_equal_hosts_share_a_line_of_the_table() -> None:
    size = {"total": 2_000_000_000_000, "free": 81_000_000_000, "writable": True}
    row = {"folder": "/data", "source": "10.0.0.2:/data", "type": "nfs4", "ours": True, **size}
    server = {"folder": "/data", "clients": ["10.0.0.3", "10.0.0.4"], "state": "shared", **size}
    table = status_table({
        "gpt-0/w0": {"folders": [], "exports": [server]},
        "gpt-0/w1": {"folders": [{**row, "state": "mounted"}], "exports": []},
        "gpt-0/w2": {"folders": [{**row, "state": "mounted"}], "exports": []},
        "gpt-0/w3": {"folders": [{**row, "state": "stale"}], "exports": []},
    })  # fmt: skip
    assert [line.split() for line in table.splitlines()[1:]] == [
        ["gpt-0/w0", "/data", "own", "disk", "shared", "to", "2", "81", "GB", "2.0", "TB", "yes"],
        ["gpt-0/w[1-2]", "/data", "10.0.0.2:/data", "mounted", "81", "GB", "2.0", "TB", "yes"],
        ["gpt-0/w3", "/data", "10.0.0.2:/data", "stale", "-", "-", "-"],
    ]
