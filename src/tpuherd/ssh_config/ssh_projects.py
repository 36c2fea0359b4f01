"""Keeps a file for each project that has names for ssh; writes ssh's configuration from all."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tpuherd.errors import InvalidInput
from tpuherd.files import atomic_write, file_lock, make_private_folder
from tpuherd.model.stored_job import StoredJob
from tpuherd.settings.folders import home_folder
from tpuherd.settings.project_access import ProjectScope, get_user_name
from tpuherd.ssh_config.config_text import NamePlan, SshFiles, SshProject, plan_names, write_config
from tpuherd.ssh_config.host_names import list_job_names
from tpuherd.ssh_config.user_file import UserConfig

FOLDER = "ssh"
LOCK = "lock"
SUFFIX_MAX = 30
#: What of the environment decides which project and which files a command uses.
ENVIRONMENT = (
    "HOME XDG_CONFIG_HOME XDG_STATE_HOME XDG_CACHE_HOME HERD_WORLD HERD_CONTEXT"
    " GOOGLE_APPLICATION_CREDENTIALS GOOGLE_CLOUD_PROJECT CLOUDSDK_CORE_PROJECT CLOUDSDK_CONFIG"
    " GCE_METADATA_HOST NO_GCE_CHECK"
).split()


def ssh_files(config: Path) -> SshFiles:
    """Return where our files for ssh are, in this configuration folder."""
    return SshFiles(folder=config / FOLDER, key=config / "id_ed25519")


def project_environment(
    environ: Mapping[str, str], world: Path | None, context: str
) -> dict[str, str]:
    """Return the variables by which another process finds the same project."""
    found = {name: environ[name] for name in ENVIRONMENT if environ.get(name)}
    found |= {"HERD_CONTEXT": context}
    found.pop("HERD_WORLD", None)
    return found if world is None else {**found, "HERD_WORLD": str(world)}


def load_projects(files: SshFiles) -> list[SshProject]:
    """Return all projects that have names for ssh, by suffix."""
    return [read_project(file) for file in sorted(files.folder.glob("*.json"))]


def read_project(file: Path) -> SshProject:
    try:
        content = json.loads(file.read_bytes())
        return SshProject(
            suffix=file.stem,
            key=str(content["key"]),
            title=str(content["title"]),
            login=str(content["login"]),
            environ={str(name): str(value) for name, value in content["environ"].items()},
            **{word: tuple(map(str, content[word])) for word in ("herd", "jobs", "nodes")},
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidInput(
            f"{file} can't be used ({type(error).__name__}: {error})",
            hint="delete it, then run herd ssh --config",
        ) from error


def choose_suffix(wanted: str, key: str, projects: Iterable[SshProject]) -> str:
    """Return the project's present suffix, or one that no other project has."""
    suffixes = {project.suffix: project.key for project in projects}
    for suffix, owner in suffixes.items():
        if owner == key:
            return suffix
    plain = re.sub(r"[^a-z0-9]+", "-", wanted.lower()).strip("-")[:SUFFIX_MAX]
    if not re.search(r"[a-z]", plain):
        plain = f"p{plain}"  # gpt-0.1 is a node of a multislice run
    at, suffix = 1, plain
    while suffix in suffixes:
        at += 1
        suffix = f"{plain}-{at}"
    return suffix


@contextmanager
def edit_projects(files: SshFiles) -> Iterator[None]:
    """Hold the lock of all our files for ssh."""
    make_private_folder(files.folder)
    with file_lock(files.folder / LOCK):
        yield


def save_project(files: SshFiles, project: SshProject) -> None:
    content: dict[str, Any] = asdict(project)
    del content["suffix"]
    atomic_write(files.project_file(project.suffix), json.dumps(content, indent=1))


def remove_project(files: SshFiles, suffix: str) -> None:
    for file in (
        files.project_file(suffix),
        files.known_hosts(suffix),
        files.folder / f"{suffix}.lock",
    ):
        file.unlink(missing_ok=True)


def write_all(files: SshFiles, user: UserConfig) -> NamePlan:
    """Write the configuration from all projects; return whose each name is."""
    projects = load_projects(files)
    plan = plan_names(projects, user.host_names())
    text = write_config(projects, plan, files)
    if not files.config.exists() or files.config.read_text() != text:
        atomic_write(files.config, text)
    return plan


def refresh_job_names(
    place: ProjectScope, environ: Mapping[str, str], jobs: Iterable[StoredJob]
) -> None:
    """Change the names of the user's jobs in a project, if it has names for ssh at all."""
    files = ssh_files(place.folders.config)
    if not files.config.exists():
        return
    user = get_user_name(place.folders.config, environ)
    names = list_job_names(one for one in jobs if one.user in ("", user))
    with edit_projects(files):
        for project in load_projects(files):
            if project.key == place.logs_folder.name and project.jobs != names:
                save_project(files, replace(project, jobs=names))
                write_all(files, UserConfig(home_folder(environ)))
