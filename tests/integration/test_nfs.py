"""One folder on all hosts of a pod, by a job's field; the kernel's part has a stand-in."""

import json
from collections.abc import Iterator

import pytest

from tests.conformance.world import until
from tests.integration.engines import Owner, owner
from tests.integration.nfs_stand_ins import EXPORTFS, MOUNT_NFS

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def user() -> Iterator[Owner]:
    """A user with a node of two hosts, on which NFS's own programs are replaced."""
    with owner() as found:
        words = ("--name", "pod", "--accelerator", "v4-16", "--yes")
        assert found.herd("up", *words).returncode == 0
        done = found.herd("wait", "pod", "--timeout", "60s")
        assert done.returncode == 0, done.stderr
        for name, text in (("exportfs", EXPORTFS), ("mount.nfs", MOUNT_NFS)):
            place = f"/usr/sbin/{name}"
            shell = f"sudo tee {place} > /dev/null && sudo chmod 755 {place}"
            done = found.herd("exec", "pod", "-c", shell, input=text)
            assert done.returncode == 0, done.stderr
        yield found


def root(user: Owner, host: str, shell: str) -> str:
    done = user.herd("exec", host, "-c", f"sudo sh -c '{shell}'")
    assert done.returncode == 0, done.stderr
    return done.stdout


def addresses(user: Owner) -> list[str]:
    hosts = json.loads(user.herd("hosts", "pod", "--json").stdout)
    return [one["internal_ip"] for one in hosts]


def set_folders(user: Owner, folders: str) -> None:
    done = user.herd("set", "pod", f"nfs={folders}", "--yes")
    assert done.returncode == 0, done.stderr


def find_source(user: Owner, folder: str) -> str:
    """What is mounted there on the second host, as the page about NFS says to look."""
    done = user.herd(
        "exec", "pod/w1", "--", "findmnt", "-n", "-o", "SOURCE", "--mountpoint", folder
    )
    return done.stdout.split()[-1] if done.stdout.strip() else ""


def await_failure(user: Owner, sentence: str) -> str:
    """Return why the hosts can't be prepared, as soon as it is this."""
    until(lambda: sentence in user.herd("why", "pod").stdout, sentence, seconds=60)
    return user.herd("why", "pod").stdout


def test_worker_0_shares_a_folder_also_after_a_reboot(user: Owner) -> None:
    first, second = addresses(user)
    set_folders(user, "{/data: w0}")
    until(lambda: find_source(user, "/data") == f"{first}:/data", "the folder", seconds=60)
    exports = root(user, "pod/w0", "cat /etc/exports.d/tpuherd.exports")
    assert f"/data {second}(rw,sync,no_subtree_check,root_squash,all_squash,anonuid=" in exports
    assert first not in exports
    assert root(user, "pod/w0", "stat -c %U /data").split()[-1] != "root", "it is the login's"
    (line,) = [one for one in root(user, "pod/w1", "cat /etc/fstab").splitlines() if "/data" in one]
    options = "nfsvers=4.2,hard,noatime,nosuid,nodev,_netdev,nofail,x-tpuherd"
    assert line.endswith(f"{first}:/data /data nfs {options} 0 0")
    user.world.ask("POST", "sim/v1/weather/reboot", {"target": "pod-0-*/w1"})
    until(lambda: find_source(user, "/data") == "", "the reboot", seconds=60)
    until(lambda: find_source(user, "/data") == f"{first}:/data", "the folder again", seconds=60)
    assert root(user, "pod/w1", "grep -c /data /etc/fstab").split()[-1] == "1"


def test_what_is_the_users_own_is_not_touched(user: Owner) -> None:
    first, _ = addresses(user)
    root(user, "pod/w1", "mkdir /full; touch /full/precious; mkdir -p /kept;"
         " mount -t tmpfs 10.9.9.9:/kept /kept; echo 10.9.9.9:/line /line nfs defaults 0 0 >>"
         " /etc/fstab")  # fmt: skip
    before = root(user, "pod/w1", "cat /etc/fstab")
    for folder, server, sentence in (
        ("/full", f"{first}:/data", "/full has files on this host, which a mount would hide: move"),
        ("/kept", f"{first}:/data", "10.9.9.9:/kept is mounted on /kept, and herd did not mount"),
        ("/line", f"{first}:/data", "/etc/fstab has a line for /line that is not herd's"),
        ("/new", f"{first}:/nothing", f"{first}:/nothing can't be mounted on /new: No such file or"
         " directory; the server must export this very path to this host"),
    ):  # fmt: skip
        set_folders(user, f"{{{folder}: '{server}'}}")
        assert "pod-0" in await_failure(user, sentence)
        assert root(user, "pod/w1", "cat /etc/fstab") == before
    root(user, "pod/w1", "test -e /full/precious && umount /kept && rm -r /full")


@pytest.mark.heavy
def test_the_real_programs_take_what_herd_writes() -> None:
    """Debian's packages are installed, exportfs takes the exports, and mount.nfs takes the line of
    fstab up to the kernel, which has no NFS here."""
    with owner() as user:
        user.job("pod", "true", accelerator="v4-16", nfs={"/data": "w0"})
        until(lambda: "can't be" in user.herd("why", "pod").stdout, "a failure", seconds=600)
        why = user.herd("why", "pod").stdout
        if "can't be installed" in why:
            pytest.skip("no packages can be had")
        assert "can't be mounted on /data: No such device; this host's kernel has no" in why
        second = addresses(user)[1]
        options = "rw,sync,no_subtree_check,root_squash,all_squash,anonuid=1001,anongid=1001"
        file = "/etc/exports.d/tpuherd.exports"
        assert f"/data {second}({options})" in root(user, "pod/w0", f"cat {file}")
        (listed,) = root(user, "pod/w0", "exportfs -s").splitlines()
        assert f"/data  {second}(sync,wdelay,hide,no_subtree_check,anonuid=1001" in listed
