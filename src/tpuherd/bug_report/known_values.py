"""Which values of this user a bug report must not contain."""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from tpuherd.settings import contexts_file
from tpuherd.settings.folders import LocalFolders, home_folder
from tpuherd.settings.project_access import ProjectScope, local_user
from tpuherd.transcripts.redact_text import SECRET, KnownValue, is_secret_name

SECRET_BYTES_MAX = 1 << 16
#: Users whose names say nothing about a person.
NOBODY = {"root", "herd", "user", "ubuntu"}


def stored_secrets(folders: LocalFolders) -> Iterator[KnownValue]:
    """Yield the secrets of all jobs and receivers, and our own tokens, of every project."""
    files = [*folders.state.glob("engines/*/secrets/*/*"), *folders.state.glob("**/ui-token")]
    for file in files:
        with suppress(OSError):
            with file.open("rb") as stream:
                text = stream.read(SECRET_BYTES_MAX).decode(errors="replace")
            if file.name == "receivers":  # how people are told: only its texts may be secret
                continue
            yield KnownValue(value=text, kind=SECRET)


def secret_variables(environ: Mapping[str, str]) -> Iterator[KnownValue]:
    """Yield the values of variables whose names say that they are secret."""
    for name, value in environ.items():
        if is_secret_name(name) and not Path(value).is_absolute():
            yield KnownValue(value=value, kind=SECRET)


def personal_names(environ: Mapping[str, str]) -> Iterator[KnownValue]:
    """Yield the names of the user, the home folder and this machine."""
    home = home_folder(environ)
    for path in {str(home), str(home.resolve())}:
        if path != "/":
            yield KnownValue(value=path, kind="home folder", shown="~")
    for name in {environ.get("USER", ""), environ.get("LOGNAME", ""), local_user(), home.name}:
        if name not in NOBODY:
            yield KnownValue(value=name, kind="user name", shown="<user>")
    machine = os.uname().nodename
    for name in {machine, machine.partition(".")[0]} - {"localhost"}:
        yield KnownValue(value=name, kind="machine name", shown="<machine>")


def project_names(scope: ProjectScope | None, folders: LocalFolders) -> Iterator[KnownValue]:
    """Yield the ids of projects, which `--hide-project` hides."""
    names = {scope.project} if scope is not None else set()
    with suppress(Exception):
        content = contexts_file.load_contexts(folders.config)
        names |= set(content["projects"])
        names |= {str(one.get("project", "")) for one in content["contexts"].values()}
    for name in names:
        yield KnownValue(value=name, kind="project id", shown="<project>")
