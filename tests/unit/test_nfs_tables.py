"""What herd writes into a host's fstab and exports, and what it reads there."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from tpuherd_host.agent.nfs.nfs_tables import (
    Entry,
    Mount,
    add_clients,
    explain_mount,
    format_exports,
    has_foreign_line,
    is_nfs,
    own_entries,
    parse_exports,
    parse_mounts,
    remove_clients,
    with_entry,
    without_entry,
)

FSTAB = """\
# /etc/fstab: static file system information.
LABEL=cloudimg-rootfs\t/\t ext4\tdiscard,errors=remount-ro\t0 1
10.0.0.9:/old /old nfs defaults 0 0
tmpfs /my\\040tmp tmpfs size=1g 0 0"""
DATA = Entry("10.0.0.2:/share", "/data")
MOUNTS = """\
/dev/root / ext4 rw,relatime 0 0
10.0.0.2:/share/ /data nfs4 rw,noatime,vers=4.2,hard,proto=tcp 0 0
10.0.0.2:/ /all nfs4 rw 0 0
10.0.0.3:/new /data nfs rw 0 0
tmpfs /a\\040b tmpfs rw 0 0
torn
"""


def test_a_line_of_fstab_comes_and_goes_and_all_others_stay() -> None:
    text = with_entry(FSTAB, DATA, "4.2")
    line = (
        "10.0.0.2:/share /data nfs nfsvers=4.2,hard,noatime,nosuid,nodev,_netdev,nofail,x-tpuherd"
    )
    assert text == f"{FSTAB}\n{line} 0 0\n"
    assert own_entries(text) == [DATA]
    assert without_entry(text, "/data") == f"{FSTAB}\n"
    assert without_entry(text, "/old") == text, "a line of the user's is not herd's to remove"
    moved = with_entry(text, Entry("10.0.0.7:/x", "/data"))
    assert own_entries(moved) == [Entry("10.0.0.7:/x", "/data")]
    assert "nfsvers" not in moved, "without a version, both sides choose"


def test_a_folder_of_the_users_own_fstab_is_recognized() -> None:
    text = with_entry(FSTAB, DATA)
    found = {
        folder: has_foreign_line(text, folder) for folder in ("/old", "/my tmp", "/data", "/x")
    }
    assert found == {"/old": True, "/my tmp": True, "/data": False, "/x": False}


def test_of_two_mounts_on_a_folder_the_later_one_is_seen() -> None:
    found = {one.folder: one for one in parse_mounts(MOUNTS)}
    assert found["/data"] == Mount("10.0.0.3:/new", "/data", "nfs")
    assert found["/all"].source == "10.0.0.2:/"
    assert "/a b" in found
    assert [folder for folder, one in found.items() if is_nfs(one)] == ["/data", "/all"]


def test_exports_name_single_addresses_and_write_as_the_login() -> None:
    text = format_exports({"/data": ("10.0.0.3", "10.0.0.4"), "/empty": ()}, 1001, 1002)
    options = "rw,sync,no_subtree_check,root_squash,all_squash,anonuid=1001,anongid=1002"
    assert text.splitlines()[1:] == [f"/data 10.0.0.3({options}) 10.0.0.4({options})"]
    assert "*" not in text
    assert format_exports({"/data": ()}, 1, 1) == "", "without clients there is no file"


addresses = some.lists(some.integers(1, 9).map(lambda last: f"10.0.0.{last}"), max_size=4)
tables = some.dictionaries(some.sampled_from(["/a", "/b"]), addresses.map(tuple))


@given(tables, addresses, addresses)
def test_only_hosts_that_exist_may_mount(
    before: dict[str, tuple[str, ...]], new: list[str], alive: list[str]
) -> None:
    after = add_clients(before, "/a", new, alive)
    assert set(after["/a"]) == set(new) | {
        one for one in before.get("/a", ()) if not alive or one in alive
    }
    assert len(set(after["/a"])) == len(after["/a"])
    ended = remove_clients(after, "", new)
    assert not any(one in new for many in ended.values() for one in many)
    assert remove_clients(after, "/b", new)["/a"] == after["/a"]
    written = {folder: many for folder, many in after.items() if many}
    assert parse_exports(format_exports(after, 1001, 1001)) == written


@pytest.mark.parametrize(
    ("output", "sentence"),
    [
        (
            "mount.nfs: access denied by server while mounting 10.0.0.2:/share\n",
            "access denied by server while mounting 10.0.0.2:/share;"
            " the server must export it to this host's internal address",
        ),
        (
            "mount.nfs: mounting 10.0.0.2:/share failed, reason given by server:"
            " No such file or directory",
            "No such file or directory; the server must export this very path to this host",
        ),
        (
            "Created symlink /run/x.\nmount.nfs4: Connection timed out\n\n",
            "Connection timed out; is the server up, and may this host reach its TCP port 2049?",
        ),
        ("mount.nfs: mount(2): No such device\nmount.nfs: No such device", "No such device; this"
         " host's kernel has no NFS for you"),
        ("", "mount failed without a word"),
    ],
)  # fmt: skip
def test_a_failed_mount_says_what_to_do(output: str, sentence: str) -> None:
    found = explain_mount("10.0.0.2:/share", "/data", output)
    assert found == f"10.0.0.2:/share can't be mounted on /data: {sentence}"
