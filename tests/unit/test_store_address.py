"""Which servers of a store must prove their name."""

from pathlib import Path

import pytest

from tpuherd.settings.store_address import parse_store_url

HERE = ("", "localhost", "127.0.0.1", "127.9.9.9", "[::1]")


@pytest.mark.parametrize("host", HERE)
def test_a_server_of_this_machine_needs_no_tls(host: str, tmp_path: Path) -> None:
    url = f"postgresql://ann@{host}/herd"
    assert parse_store_url(url, {"HOME": str(tmp_path)}, origin="x").url == url
    url = f"{url}?host=/run/postgresql"
    assert parse_store_url(url, {"HOME": str(tmp_path)}, origin="x").url == url


@pytest.mark.parametrize(
    ("rest", "environ"),
    [
        ("db.example.org/herd", {}),
        ("127.0.0.1.example.org:5432/herd", {}),
        ("localhost,db/herd", {}),
        ("/herd?host=db", {}),
        ("localhost/herd?hostaddr=10.0.0.2", {}),
        ("/herd", {"PGHOST": "db"}),
    ],
)
def test_a_server_elsewhere_proves_its_name(
    rest: str, environ: dict[str, str], tmp_path: Path
) -> None:
    home = {"HOME": str(tmp_path), **environ}
    found = parse_store_url(f"postgresql://ann@{rest}", home, origin="x").url
    assert found.endswith("sslmode=verify-full&sslrootcert=system")
    assert "@" + rest in found
    (tmp_path / ".postgresql").mkdir()
    (tmp_path / ".postgresql/root.crt").touch()
    found = parse_store_url(f"postgresql://ann@{rest}", home, origin="x").url
    assert found.endswith("sslmode=verify-full"), "by the user's own roots"


def test_what_the_user_says_of_tls_counts(tmp_path: Path) -> None:
    home, url = {"HOME": str(tmp_path)}, "postgresql://ann@db/herd"
    for said in ("?sslmode=require", "?service=lab"):
        assert parse_store_url(url + said, home, origin="x").url == url + said
    assert parse_store_url(url, {**home, "PGSSLMODE": "disable"}, origin="x").url == url
    found = parse_store_url(f"{url}?sslrootcert=/ca.crt", home, origin="x").url
    assert found == f"{url}?sslrootcert=/ca.crt&sslmode=verify-full"
