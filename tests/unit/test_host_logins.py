"""Who may log in, and with what environment."""

import pytest

from tpuherd_sim.ssh.authorized_keys import (
    accepted_variables,
    find_address,
    is_key_listed,
    key_from_line,
    login_shell,
    parse_environment,
)

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBJz"
OTHER = "ssh-rsa AAAAB3NzaC1yc2E="
NOW = 1_700_000_000.0


def tagged(until: str) -> str:
    return KEY + ' google-ssh {"userName":"a@b.c","expireOn":"' + until + '"}'


@pytest.mark.parametrize(
    ("lines", "allowed"),
    [
        ((), False),
        ((KEY,), True),
        ((f"{KEY} me@home",), True),
        ((OTHER, KEY), True),
        ((OTHER,), False),
        ((f"# {KEY}",), False),
        ((f'no-pty,from="*" {KEY}',), True),
        (("ssh-ed25519 not*base64",), False),
        ((tagged("2120-01-01T00:00:00+0000"),), True),
        ((tagged("2020-01-01T00:00:00+0000"),), False),
        ((tagged("2023-11-14T23:13:21+0100"),), True),
        ((tagged("2023-11-14T23:13:20+0100"),), False),
        ((tagged("soon"),), False),
        ((KEY + " google-ssh {}",), False),
        ((KEY + " google-ssh nonsense",), False),
    ],
)
def test_who_may_log_in(lines: tuple[str, ...], allowed: bool) -> None:
    public = key_from_line(KEY)
    assert public is not None
    assert is_key_listed(lines, public, NOW) is allowed


def test_environment_file() -> None:
    text = "# no\nPATH=\"/a b:/c\"\nexport X='y'\nA=1 # one\nB=x#y\n  C = 3\nnot a line\n9=9\nE=\n"
    assert parse_environment(text) == {"PATH": "/a b:/c", "X": "y", "A": "1", "B": "x#y", "E": ""}


def test_only_the_language_is_accepted_from_the_client() -> None:
    sent = {"LANG": "C", "LC_TIME": "de", "PATH": "/evil", "LD_PRELOAD": "x", "LANGUAGE": "y"}
    assert accepted_variables(sent) == {"LANG": "C", "LC_TIME": "de"}


def test_shells_and_names() -> None:
    passwd = "root:x:0:0::/root:/bin/bash\nann:x:1:1::/home/ann:/usr/bin/zsh\nbo:x:2:2::/h:\nbad\n"
    assert [login_shell(passwd, name) for name in ("ann", "bo", "none")] == [
        "/usr/bin/zsh", "/bin/bash", "/bin/bash",
    ]  # fmt: skip
    hosts = "127.0.0.1 localhost\n::1 localhost\n# 9.9.9.9 t1\n10.0.0.2 T1 t1.internal\n\n"
    assert find_address(hosts, "localhost") == "127.0.0.1"
    assert find_address(hosts, "t1") == "10.0.0.2"
    assert find_address(hosts, "elsewhere") is None
