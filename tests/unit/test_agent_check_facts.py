"""The agent's readings for `herd check`: from samples as files and kernels print them."""

from pathlib import Path

import pytest

from tpuherd_host.agent.host import listeners, login_settings, metadata_identity, python_versions

TCP = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0200000A:211C 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1001        0 41001 1
   1: 0200000A:A3F2 0300000A:211C 01 00000000:00000000 00:00000000 00000000  1001        0 41002 1
   2: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 41003 1
   3: broken
"""
TCP6 = """\
  sl  local_address                         remote_address                        st
   0: 00000000000000000000000000000000:2122 00000000000000000000000000000000:0000 0A 0:0 0:0 0 0 0 7
   1: 0000000000000000FFFF00000300000A:2122 00000000000000000000000000000000:0000 0A 0:0 0:0 0 0 0 8
"""
TRIE = """\
Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 10.0.0.0
        /24 link UNICAST
     |-- 10.0.0.2
        /32 host LOCAL
     |-- 127.0.0.1
        /32 host LOCAL
Local:
     |-- 10.0.0.2
        /32 host LOCAL
"""
TPU_ENV = "ACCELERATOR_TYPE: 'v4-32'\nWORKER_ID: '1'\nUID: 'x'\nbroken\nRUNTIME_VERSION: 'v2'\n"


def test_listeners_are_read_from_the_kernels_tables() -> None:
    assert list(listeners.parse_listeners(TCP)) == [
        ("10.0.0.2", 8476, "41001"), ("0.0.0.0", 22, "41003"),
    ]  # fmt: skip
    assert list(listeners.parse_listeners(TCP6)) == [("::", 8482, "7"), ("10.0.0.3", 8482, "8")]
    assert list(listeners.parse_listeners("")) == []


def test_own_addresses_and_the_tpu_env_are_read() -> None:
    assert set(metadata_identity.parse_addresses(TRIE)) == {"10.0.0.2", "127.0.0.1"}
    assert metadata_identity.parse_tpu_env(TPU_ENV) == {
        "ACCELERATOR_TYPE": "v4-32", "WORKER_ID": "1", "RUNTIME_VERSION": "v2",
    }  # fmt: skip


def test_assignments_are_found_where_logins_set_them(tmp_path: Path) -> None:
    (tmp_path / ".bashrc").write_text(
        "export MEGASCALE_NUM_SLICES=2\n# export MEGASCALE_PORT=1\nSECRET=x\n"
        "  XLA_FLAGS='--a --b'\n"
    )
    found = login_settings.find_settings(str(tmp_path), {"LD_PRELOAD": "/x.so", "HOME": "/"})
    mine = [one for one in found if not one.where.startswith("/etc")]
    file = str(tmp_path / ".bashrc")
    assert mine == [
        ("LD_PRELOAD", "/x.so", "login"),
        ("MEGASCALE_NUM_SLICES", "2", file),
        ("XLA_FLAGS", "--a --b", file),
    ]


@pytest.mark.parametrize(
    ("content", "state"), [(b"\x7fELF...", "fine"), (b"text", "broken"), (None, "missing")]
)
def test_the_state_of_a_preloaded_library(
    tmp_path: Path, content: bytes | None, state: str
) -> None:
    file = tmp_path / "libtcmalloc.so.4"
    if content is not None:
        file.write_bytes(content)
    settings = [login_settings.Setting("LD_PRELOAD", f"{file}", "/etc/environment")]
    rows = login_settings.find_preloads(settings)
    assert [row for row in rows if row["where"] != login_settings.PRELOAD_FILE] == [
        {"file": str(file), "where": "/etc/environment", "state": state}
    ]


@pytest.mark.parametrize(
    ("netrc", "login", "found"),
    [
        ("machine api.wandb.ai\n  login user\n  password SECRET\n", {}, [".netrc"]),
        ("machine github.com login x password SECRET\n", {}, []),
        ("machine w.org login u password S", {"WANDB_BASE_URL": "https://w.org:80/"}, [".netrc"]),
        ("", {"WANDB_API_KEY": "SECRET"}, ["WANDB_API_KEY"]),
        ("", {}, []),
    ],
)  # fmt: skip
def test_a_wandb_login_is_found_and_its_key_never_told(
    tmp_path: Path, netrc: str, login: dict[str, str], found: list[str]
) -> None:
    (tmp_path / ".netrc").write_text(netrc)
    said = login_settings.wandb_logins(str(tmp_path), login)
    assert [place.rpartition("/")[2] for place in said] == found
    assert "SECRET" not in repr(said)
    assert login_settings.has_wandb_key(b"A=1\0WANDB_API_KEY=SECRET\0")
    assert not login_settings.has_wandb_key(b"WANDB_API_KEY=\0")


def test_a_python_that_does_not_work_says_why(tmp_path: Path) -> None:
    broken, login = tmp_path / "venv/bin/python", {"PATH": "/usr/bin:/bin"}
    broken.parent.mkdir(parents=True)
    broken.write_text("#!/bin/sh\necho no such module >&2; exit 3\n")
    broken.chmod(0o755)
    [first, *_] = python_versions.find_pythons(str(tmp_path), login, [])
    assert (first["name"], first["why"]) == ("~/venv", "no such module")
