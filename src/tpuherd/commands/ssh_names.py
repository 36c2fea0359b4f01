"""Adds the names of a project's hosts to ssh's configuration, and removes them."""

import os
import pwd
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tpuherd.commands.console import Console
from tpuherd.errors import HerdError
from tpuherd.model.stored_job import StoredJob
from tpuherd.remote.client_key import key_pair
from tpuherd.remote.resolve_hosts import RemoteSession, known_node
from tpuherd.settings import contexts_file, project_access
from tpuherd.settings.folders import home_folder, resolve_folders
from tpuherd.ssh_config import ssh_projects
from tpuherd.ssh_config.config_text import (
    NamePlan,
    SshFiles,
    SshProject,
    plan_names,
    require_plain_words,
    write_config,
)
from tpuherd.ssh_config.host_names import list_job_names, list_node_names
from tpuherd.ssh_config.user_file import UserConfig
from tpuherd.store.moved_marker import read_moved_marker
from tpuherd.store.open_database import open_database
from tpuherd.targets import fold_names

if TYPE_CHECKING:
    from tpuherd.commands.host_access import HostAccess


async def describe_project(
    console: Console, home: "HostAccess", herd: tuple[str, ...]
) -> SshProject:
    """Return the current project, with the names of its jobs and nodes."""
    place, reach = await home.open_remote(console)
    user = project_access.get_user_name(place.folders.config, console.environ)
    jobs = load_jobs(place, reach.clock.now())
    others = {one.job for one in jobs if one.user not in ("", user)}
    nodes = await list_known_nodes(reach, console, others)
    key_pair(place.folders.config)
    files = ssh_projects.ssh_files(place.folders.config)
    content = contexts_file.load_contexts(place.folders.config)
    context = contexts_file.current_name(content, console.environ)
    key = place.logs_folder.name
    wanted = place.world.name if place.world else place.project
    projects = ssh_projects.load_projects(files)
    project = SshProject(
        suffix=ssh_projects.choose_suffix(context or wanted, key, projects),
        key=key,
        title=place.title,
        herd=herd,
        login=place.login,
        environ=ssh_projects.project_environment(console.environ, place.world, context),
        jobs=list_job_names(one for one in jobs if one.job not in others),
        nodes=nodes,
    )
    require_plain_words(project, files)
    return project


def load_jobs(place: project_access.ProjectScope, now: float) -> Sequence[StoredJob]:
    """Return the jobs in this machine's store; none if they are on another one."""
    if not place.has_store or read_moved_marker(place.store_folder) is not None:
        return ()
    store = open_database(place, now)
    try:
        return tuple(store.stored_jobs().values())
    finally:
        store.close()


async def list_known_nodes(
    reach: RemoteSession, console: Console, others: Collection[str]
) -> tuple[str, ...]:
    """Return the names of existing nodes but those of others' jobs; none if the cloud does not
    answer."""
    owners = reach.owners()
    try:
        survey = await reach.directory.list_nodes()
    except HerdError as error:
        await console.print_notice(f"herd ssh --config: {error.sentence}; only jobs have names now")
        return ()
    return list_node_names((known_node(node, owners) for node in survey.nodes), others)


def user_config(console: Console) -> UserConfig:
    return UserConfig(home_folder(console.environ))


def preview_config(project: SshProject, console: Console) -> str:
    """Return the configuration that `install_names` would write."""
    files = ssh_projects.ssh_files(folders_config(console))
    others = [one for one in ssh_projects.load_projects(files) if one.suffix != project.suffix]
    projects = sorted([*others, project], key=lambda one: one.suffix)
    return write_config(projects, plan_names(projects, user_config(console).host_names()), files)


def install_names(project: SshProject, console: Console) -> list[str]:
    """Write our configuration and include it in the user's; return what to tell."""
    files, user = ssh_projects.ssh_files(folders_config(console)), user_config(console)
    with ssh_projects.edit_projects(files):
        user.read()  # raises before anything is written
        ssh_projects.save_project(files, project)
        plan = ssh_projects.write_all(files, user)
        backup = user.include(files.config)
    return [
        *describe_names(project, plan),
        *describe_change(user, backup),
        *describe_home(user, files),
    ]


def remove_names(console: Console) -> list[str]:
    """Remove this project's names, and with the last project all of ours."""
    scope = project_access.resolve_scope(console.environ, world=console.said.world)
    files, user = ssh_projects.ssh_files(scope.folders.config), user_config(console)
    with ssh_projects.edit_projects(files):
        projects = ssh_projects.load_projects(files)
        mine = [project for project in projects if project.key == scope.logs_folder.name]
        if not mine and projects:
            return [f"{scope.title} has no names for ssh"]
        for project in mine:
            ssh_projects.remove_project(files, project.suffix)
        if len(mine) < len(projects):
            ssh_projects.write_all(files, user)
            stay = ", ".join(project.title for project in projects if project not in mine)
            return [f"Removed the names of {scope.title}; those of {stay} stay"]
        backup = user.include(None)
        files.config.unlink(missing_ok=True)
    what = f"Removed the names of {scope.title}" if mine else f"{scope.title} has no names for ssh"
    return [what, *describe_change(user, backup)]


def folders_config(console: Console) -> Path:
    return resolve_folders(console.environ).config


def describe_names(project: SshProject, plan: NamePlan) -> Iterator[str]:
    """Yield which names work now, and which do not."""
    names = [name for name in plan.names[project.suffix] if name in project.names]
    if names:
        yield f"ssh knows {fold_names(names)}"
    if len(plan.names) > 1 and project.names:
        example = f"{project.names[0]}.{project.suffix}"
        yield f"Each name of {project.title} also works with its suffix: {example}"
    if not project.names:
        yield f"{project.title} has no hosts yet; new jobs have their names at once"
    shared = [name for name in plan.shared if name in project.names]
    if shared:
        choice = " or ".join(f"{shared[0]}.{suffix}" for suffix in plan.shared[shared[0]])
        yield f"Another project has {fold_names(shared)}, too: write {choice}"
    taken = [name for name in plan.taken if name in project.names]
    if taken:
        yield f"{fold_names(taken)}: left to your own configuration of ssh"


def describe_change(user: UserConfig, backup: Path | None) -> Iterator[str]:
    if backup is not None:
        before = f"; as it was: {backup}" if backup.exists() else ""
        yield f"Changed herd's lines in {user.path}{before}"


def describe_home(user: UserConfig, files: SshFiles) -> Iterator[str]:
    """Say so where ssh reads another file: it does not heed HOME."""
    try:
        real = Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        return
    if real != user.home:
        yield f"ssh does not heed HOME and reads {real}/.ssh/config: use ssh -F {user.path}"
