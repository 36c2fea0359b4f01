"""Writes a systemd user unit for the engine."""

import re
import sys
from collections.abc import Mapping
from pathlib import Path

from tpuherd.cli.via_layout import CURRENT, ROOT
from tpuherd.errors import InvalidInput
from tpuherd.settings import project_access

UNIT = """\
[Unit]
Description=tpuherd's engine ({title})
After=network-online.target

[Service]
{environment}
ExecStart={program}
Restart=always
RestartSec=60
KillSignal=SIGTERM
TimeoutStopSec=20
Nice=5

[Install]
WantedBy=default.target
"""
PLAIN_WORD = re.compile(r"[A-Za-z0-9_./:=@+,-]+")
#: Variables that a service does not inherit from the login.
VARIABLES = (
    "PATH", "HERD_WORLD", "HERD_STORE", "XDG_CONFIG_HOME", "XDG_STATE_HOME",
    "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT", "CLOUDSDK_CORE_PROJECT",
    "CLOUDSDK_CONFIG", "GCE_METADATA_HOST", "HOME",
)  # fmt: skip


def unit_text(place: project_access.ProjectAccess, environ: Mapping[str, str]) -> str:
    known = service_variables(place, environ)
    lines = [f'Environment="{name}={quote_value(value)}"' for name, value in sorted(known.items())]
    title = " ".join(place.title.split()).replace("%", "%%")
    return UNIT.format(
        title=title,
        environment="\n".join(lines),
        program=" ".join(map(quote_word, service_command(place))),
    )


def service_variables(
    place: project_access.ProjectAccess, environ: Mapping[str, str]
) -> dict[str, str]:
    known = {name: environ[name] for name in VARIABLES if environ.get(name)}
    if place.world is not None:
        known["HERD_WORLD"] = str(place.world)
    if place.database is not None and place.database.password:
        raise InvalidInput(
            "a service's file is no place for a password",
            hint="put it into ~/.pgpass, and leave it out of HERD_STORE",
        )
    for name, value in known.items():
        if not value.isprintable():
            raise InvalidInput(
                f"{name} has characters that a service's file can't hold: {value!r}",
                hint=f"set {name} to something plain, and install it again",
            )
    return known


def service_command(place: project_access.ProjectAccess) -> list[str]:
    """Return what starts the engine, also after herd was updated."""
    standing = ["--stand-by"] if place.database is not None else []
    python = sys.executable
    root, there, _ = python.partition(f"/{ROOT}/")
    if there:  # the next version has another folder
        python = f"{root}{there}{CURRENT}"
    return [python, "-P", "-m", "tpuherd.launcher", "engine", "run", *standing]


def quote_value(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")


def quote_word(word: str) -> str:
    """Return a word of ExecStart, in which $ would begin a variable."""
    if PLAIN_WORD.fullmatch(word):
        return word
    return f'"{quote_value(word).replace("$", "$$")}"'


def install_unit(
    place: project_access.ProjectAccess, environ: Mapping[str, str]
) -> tuple[Path, str]:
    """Write the unit; return its file and the commands that enable it."""
    home = Path(environ.get("HOME") or Path.home())
    config = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    if ROOT in config.parts:
        config = home / ".config"  # a context's own folder; systemd reads the login's
    name = f"tpuherd-{place.store_folder.name}.service"
    file = config / "systemd/user" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(unit_text(place, environ))
    todo = f"""\
systemctl --user daemon-reload
systemctl --user enable --now {name}
loginctl enable-linger $USER"""
    return file, todo
