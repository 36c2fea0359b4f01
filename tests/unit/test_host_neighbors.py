"""Who counts as another user on a machine where hosts are processes of their user."""

import pwd
from pathlib import Path

import pytest

from tpuherd_sim.host_options import HostOptions
from tpuherd_sim.hosts.machine_users import home_owners, other_people
from tpuherd_sim.start_hosts import check_other_users
from tpuherd_sim.state_dir import WorldError

ME = 1000


def account(name: str, uid: int, shell: str = "/bin/bash") -> pwd.struct_passwd:
    return pwd.struct_passwd((name, "x", uid, uid, "", f"/home/{name}", shell))


@pytest.mark.parametrize(
    ("accounts", "owners", "people"),
    [
        ([account("me", ME), account("root", 0), account("www-data", 33)], [0, ME], []),
        ([account("me", ME), account("bob", 1002), account("ann", 1001)], [], ["ann", "bob"]),
        ([account("backup", 1500, "/usr/sbin/nologin"), account("x", 1501, "/bin/false")], [], []),
        ([account("nobody", 65534), account("systemd-user", 61000)], [], []),
        ([account("me", ME)], [ME, 4711], ["4711"]),
    ],
    ids=["alone", "two others", "no login", "of systems", "of a directory service"],
)
def test_other_users_are_recognized(
    accounts: list[pwd.struct_passwd], owners: list[int], people: list[str]
) -> None:
    assert other_people(ME, accounts, owners) == people


def test_home_directories_have_owners(tmp_path: Path) -> None:
    (tmp_path / "ann").mkdir()
    assert home_owners([str(tmp_path), str(tmp_path / "nowhere")]) == {tmp_path.stat().st_uid}


def test_hosts_without_isolation_beside_other_users_need_consent() -> None:
    with pytest.raises(WorldError) as refused:
        check_other_users(HostOptions(), ["no namespaces"], ["ann", "bob", "carl", "dora"])
    assert str(refused.value).startswith(
        "Can't isolate hosts here (no namespaces), and others use this machine (ann, bob, carl): "
    )
    assert "To accept that use `--hosts processes`" in str(refused.value)
    check_other_users(HostOptions(), ["no namespaces"], [])
    check_other_users(HostOptions(hosts="processes"), [], ["ann"])
