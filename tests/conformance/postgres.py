"""A PostgreSQL server of our own, as Debian packages it: in a folder, on a Unix socket."""

import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

import pytest

from tpuherd.settings.store_address import StoreAddress, parse_store_url

SERVICE_USER = "postgres"  #: PostgreSQL refuses to run as root


def find_programs() -> Path | None:
    """The folder of the newest PostgreSQL, which Debian keeps out of PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda one: str(one))
    on_path = shutil.which("initdb")
    return found[-1].parent if found else Path(on_path).parent if on_path else None


@dataclass(frozen=True)
class Postgres:
    """A running server."""

    folder: Path
    programs: Path

    def run_program(self, name: str, *words: str, check: bool = True) -> str:
        """Run one of its programs as the user it runs as."""
        command = [str(self.programs / name), *words]
        as_root = os.geteuid() == 0
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            cwd="/",
            user=SERVICE_USER if as_root else None,
            group=pwd.getpwnam(SERVICE_USER).pw_gid if as_root else None,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        assert not check or done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    def start(self) -> None:
        options = f"-k {self.folder} -c listen_addresses='' -c fsync=off -c max_connections=200"
        self.run_program("pg_ctl", "start", "-w", "-D", str(self.folder / "data"),
                         "-o", options, "-l", str(self.folder / "log"))  # fmt: skip

    def stop(self, mode: str = "fast") -> None:
        self.run_program("pg_ctl", "stop", "-w", "-m", mode, "-D", str(self.folder / "data"),
                         check=False)  # fmt: skip

    def url(self, database: str, user: str = SERVICE_USER) -> str:
        return f"postgresql://{user}@/{database}?host={self.folder}"

    def address(self, database: str, user: str = SERVICE_USER) -> StoreAddress:
        return parse_store_url(self.url(database, user), {}, origin="the URL")

    def ask(self, sql: str, database: str = "postgres") -> str:
        """What psql prints for a statement."""
        return self.run_program("psql", "-XtA", "-h", str(self.folder), "-d", database,
                                "-v", "ON_ERROR_STOP=1", "-c", sql).strip()  # fmt: skip

    def create_database(self, name: str) -> StoreAddress:
        self.ask(f"CREATE DATABASE {name}")
        return self.address(name)


@contextmanager
def started_postgres() -> Iterator[Postgres]:
    """Start a server; the test is skipped where PostgreSQL or its user is missing."""
    programs = find_programs()
    if programs is None:
        pytest.skip("needs PostgreSQL (Debian: apt install postgresql)")
    if os.geteuid() == 0:
        try:
            owner = pwd.getpwnam(SERVICE_USER)
        except KeyError:
            pytest.skip(f"needs the user {SERVICE_USER}, as root can't run PostgreSQL")
    folder = Path(mkdtemp(prefix="herd-pg-"))  # short: the path of a socket has at most 107 bytes
    folder.chmod(0o755)
    if os.geteuid() == 0:
        os.chown(folder, owner.pw_uid, owner.pw_gid)
    server = Postgres(folder, programs)
    try:
        server.run_program("initdb", "-D", str(folder / "data"), "-A", "trust", "-U", SERVICE_USER,
                           "-N", "-E", "UTF8", "--locale", "C")  # fmt: skip
        server.start()
        yield server
    finally:
        server.stop("immediate")
        shutil.rmtree(folder, ignore_errors=True)
