"""One folder on all hosts of a pod, by commands and by a job; the kernel's part has a stand-in."""

import json
from collections.abc import Iterator
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from json_schemas import SCHEMAS

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


def nfs(user: Owner, *words: str, status: int = 0) -> list[str]:
    done = user.herd("nfs", *words)
    assert done.returncode == status, done.stdout + done.stderr
    return [*done.stdout.splitlines(), *done.stderr.splitlines()]


def shown(user: Owner, status: int = 0) -> Any:
    done = user.herd("nfs", "status", "pod", "--json")
    assert done.returncode == status, done.stdout + done.stderr
    found = json.loads(done.stdout)
    jsonschema.validate(found, SCHEMAS["herd nfs status TARGET --json"])
    return {one["host"]: one for one in found}


def root(user: Owner, host: str, shell: str) -> str:
    done = user.herd("exec", host, "-c", f"sudo sh -c '{shell}'")
    assert done.returncode == 0, done.stderr
    return done.stdout


def addresses(user: Owner) -> list[str]:
    hosts = json.loads(user.herd("hosts", "pod", "--json").stdout)
    return [one["internal_ip"] for one in hosts]


def test_a_folder_of_the_first_host_and_back(user: Owner) -> None:
    before = root(user, "pod/w1", "cat /etc/fstab")
    first, second = addresses(user)
    shares, mounted, warning = nfs(user, "mount", "pod", "/data")
    assert shares.startswith("pod-0/w0: shares /data to pod-0/w1, ")
    assert mounted.startswith(f"pod-0/w1: mounted {first}:/data on /data, ")
    assert warning.startswith("/data is on the disk of pod-0/w0 and deleted with the node, which")
    assert nfs(user, "mount", "pod", "/data")[1].startswith("pod-0/w1: already mounted ")
    found = shown(user)
    assert found["pod-0/w0"]["exports"][0]["clients"] == [second]
    (row,) = found["pod-0/w1"]["folders"]
    assert (row["source"], row["state"], row["ours"]) == (f"{first}:/data", "mounted", True)
    assert root(user, "pod/w0", "stat -c %U /data").split()[-1] != "root", "it is the login's"

    (busy,) = nfs(user, "mount", "pod/w1", "/data", "--server", f"{first}:/nothing", status=1)
    assert f"pod-0/w1: {first}:/nothing can't be mounted on /data: No such file or dir" in busy
    (row,) = shown(user)["pod-0/w1"]["folders"]
    assert (row["source"], row["state"]) == (f"{first}:/data", "mounted"), "the earlier one is back"
    (shared,) = nfs(user, "mount", "pod/w0", "/data", "--server", f"{second}:/x", status=1)
    assert shared == "pod-0/w0: this host shares /data itself: unmount that first"
    (there,) = nfs(user, "mount", "pod/w1", "/x", "--server", f"{second}:/data", status=1)
    assert "Connection refused; is the server up, and may this host reach its TCP port" in there

    undone = nfs(user, "unmount", "pod")
    assert undone == [
        f"pod-0/w1: unmounted {first}:/data from /data",
        "pod-0/w0: shares /data no more, and keeps its files",
    ]
    assert nfs(user, "unmount", "pod") == ["nothing to unmount"]
    assert root(user, "pod/w1", "cat /etc/fstab; ls -d /data || true") == before
    (closed,) = nfs(user, "mount", "pod/w1", "/data", "--server", f"{first}:/data", status=1)
    assert "the server must export this very path" in closed


def test_what_is_the_users_own_is_not_touched(user: Owner) -> None:
    first, _ = addresses(user)
    root(user, "pod/w1", "mkdir /full; touch /full/precious; mkdir -p /kept;"
         " mount -t tmpfs 10.9.9.9:/kept /kept; echo 10.9.9.9:/line /line nfs defaults 0 0 >>"
         " /etc/fstab")  # fmt: skip
    for folder, said in (
        ("/full", "/full has files on this host, which a mount would hide: move them"),
        ("/kept", "10.9.9.9:/kept is mounted on /kept, and herd did not mount it: choose another"),
        ("/line", "/etc/fstab has a line for /line that is not herd's"),
    ):
        (line,) = nfs(user, "mount", "pod/w1", folder, "--server", f"{first}:/data", status=1)
        assert line.startswith(f"pod-0/w1: {said}")
    assert nfs(user, "unmount", "pod") == ["nothing to unmount"]
    root(user, "pod/w1", "test -e /full/precious && umount /kept && rm -r /full")


def test_a_mount_that_is_lost_is_shown_and_a_job_mounts_it_again(user: Owner) -> None:
    assert user.herd("set", "pod", "nfs={/data: w0}", "--yes").returncode == 0

    def is_mounted() -> bool:
        return [one["state"] for one in shown_anyhow(user)] == ["mounted"]

    until(is_mounted, "the folder", seconds=60)
    root(user, "pod/w1", "umount /data")
    (row,) = shown(user, status=1)["pod-0/w1"]["folders"]
    assert (row["state"], row["ours"]) == ("not mounted", True)
    user.world.ask("POST", "sim/v1/weather/reboot", {"target": "pod-0-*/w1"})
    until(is_mounted, "the folder after a reboot", seconds=60)


def shown_anyhow(user: Owner) -> list[Any]:
    done = user.herd("nfs", "status", "pod", "--json")
    found = json.loads(done.stdout or "[]")
    return [row for one in found if one["host"] == "pod-0/w1" for row in one["folders"]]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("mount", "pod", "/usr/x"), "hosts need /usr/x themselves: choose another folder, such"),
        (("mount", "pod", "data"), "'data' is not a folder's full path, such as /data"),
        (("mount", "pod", "/d", "--server", "x:y"), "'x:y' is not a server and its path, such as"),
        (("mount", "pod", "/d", "--server", "pod"), "pod has 2 hosts, and one must serve: pod/w0"),
        (("unmount", "pod", "data"), "'data' is not a folder's full path, such as /data"),
    ],
)
def test_bad_input_is_one_sentence(user: Owner, words: tuple[str, ...], sentence: str) -> None:
    (line,) = nfs(user, *words, status=2)
    assert line.startswith(f"herd nfs {words[0]}: {sentence}")


def test_an_unknown_server_says_how_a_file_server_is_written(user: Owner) -> None:
    (line,) = nfs(user, "mount", "pod", "/d", "--server", "filer", status=4)
    assert line.startswith("herd nfs mount: there is no filer: the nodes are pod-0; a file server")


@pytest.mark.heavy
def test_the_real_programs_take_what_herd_writes() -> None:
    """Debian's packages are installed, exportfs takes the exports, and mount.nfs takes the line of
    fstab up to the kernel, which has no NFS here."""
    with owner() as user:
        user.herd("up", "--name", "pod", "--accelerator", "v4-16", "--yes")
        assert user.herd("wait", "pod", "--timeout", "60s").returncode == 0
        done = user.herd("nfs", "mount", "pod", "/data", seconds=600)
        if "can't be installed" in done.stderr:
            pytest.skip("no packages can be had")
        if done.returncode == 0:
            pytest.skip("this kernel has NFS, and mounted it")
        assert done.stdout.startswith("pod-0/w0: shares /data to no other host, ")
        assert "can't be mounted on /data: No such device; this host's kernel has no" in done.stderr
        second = addresses(user)[1]
        options = "rw,sync,no_subtree_check,root_squash,all_squash,anonuid=1001,anongid=1001"
        line = f"/data {second}({options})"
        root(user, "pod/w0", f'echo "{line}" > /etc/exports.d/x.exports; exportfs -ra')
        (listed,) = root(user, "pod/w0", "exportfs -s").splitlines()
        assert f"/data  {second}(sync,wdelay,hide,no_subtree_check,anonuid=1001" in listed
        root(user, "pod/w0", 'echo "/data *(nonsense)" > /etc/exports.d/x.exports')
        again = user.herd("nfs", "mount", "pod", "/data", seconds=600)
        assert again.returncode == 1
        assert "exportfs: " in again.stderr
        assert "nonsense" in again.stderr
