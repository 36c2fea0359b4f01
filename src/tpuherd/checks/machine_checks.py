"""The checks of this machine: each reads its facts and lets a pure function judge them."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial

import asyncssh

from tpuherd.checks.check_results import CheckResult
from tpuherd.checks.judge_machine import (
    ALL_WRITE,
    OTHERS_READ,
    judge_daemon,
    judge_disks,
    judge_folder,
    judge_key,
    judge_ssh_client,
    judge_ssh_config,
    judge_versions,
)
from tpuherd.checks.judge_project import (
    EngineFacts,
    judge_context,
    judge_engine,
    judge_store,
)
from tpuherd.checks.machine_facts import (
    ANY_HOST,
    Machine,
    ask_daemon,
    find_ssh,
    list_dead_sockets,
    read_disk,
    read_path,
    read_versions,
    run_program,
)
from tpuherd.checks.run_checks import CheckFunction, describe_error
from tpuherd.errors import HerdError, InvalidInput, NotAllowed
from tpuherd.jobs import engine_control
from tpuherd.remote.client_key import FILE
from tpuherd.settings import contexts_file, project_access
from tpuherd.settings.project_access import ProjectScope
from tpuherd.store.engine_rest import is_at_rest
from tpuherd.store.open_database import open_database
from tpuherd.store.set_aside import read_notices

GOOGLE = "Google Cloud"


def machine_checks(machine: Machine) -> Mapping[str, CheckFunction]:
    """Return the check functions of this machine by their ids."""
    functions = {
        "versions": check_versions,
        "context": check_context,
        "config-folder": check_config_folder,
        "state-folder": check_state_folder,
        "disk": check_disks,
        "store": check_store,
        "engine": check_engine,
        "daemon": check_daemon,
        "ssh-key": check_key,
        "ssh-client": check_ssh_client,
        "ssh-config": check_ssh_config,
    }
    return {check: partial(function, machine) for check, function in functions.items()}


async def check_versions(machine: Machine) -> Sequence[CheckResult]:
    return [judge_versions(read_versions())]


async def check_context(machine: Machine) -> Sequence[CheckResult]:
    environ, title, chooser = machine.environ, GOOGLE, ""
    error: HerdError | None = None
    try:
        chooser = name_chooser(machine)
        title = project_access.resolve_scope(environ, world=machine.world).title
        project_access.resolve_access(environ, world=machine.world)
    except HerdError as refused:
        error = refused
    except OSError as refused:
        error = InvalidInput(describe_error(refused))
    return [judge_context(title, chooser, error)]


def name_chooser(machine: Machine) -> str:
    """Return what chose the cloud; raises InvalidInput if the contexts can't be read."""
    if machine.world is not None:
        return "--world or HERD_WORLD"
    content = contexts_file.load_contexts(machine.folders.config)
    name = contexts_file.current_name(content, machine.environ)
    return f"context {name}" if name else "your environment and Google's own settings"


async def check_config_folder(machine: Machine) -> Sequence[CheckResult]:
    return [judge_folder("config-folder", read_path(machine.folders.config), OTHERS_READ)]


async def check_state_folder(machine: Machine) -> Sequence[CheckResult]:
    return [judge_folder("state-folder", read_path(machine.folders.state), ALL_WRITE)]


async def check_disks(machine: Machine) -> Sequence[CheckResult]:
    folders = machine.folders
    return [judge_disks([read_disk(one) for one in (folders.config, folders.state)])]


def find_scope(machine: Machine) -> ProjectScope | None:
    """Return the project or world that is chosen; None if there is none."""
    try:
        return project_access.resolve_scope(machine.environ, world=machine.world)
    except HerdError:
        return None


async def check_store(machine: Machine) -> Sequence[CheckResult]:
    scope = find_scope(machine)
    if scope is None or not scope.has_store:
        return [judge_store(None, (), None)]
    try:
        with closing(open_database(scope, machine.clock.now())) as store:
            notices = list(read_notices(scope.store_folder).values())
            return [judge_store(len(store.stored_jobs()), notices, None)]
    except HerdError as error:
        return [judge_store(None, (), error)]


async def check_engine(machine: Machine) -> Sequence[CheckResult]:
    scope, now = find_scope(machine), machine.clock.now()
    facts = EngineFacts(holder=None, version="", wanted=False, troubles=())
    if scope is not None and scope.has_store:
        with closing(open_database(scope, now)) as store:
            jobs = store.stored_jobs()
            facts = EngineFacts(
                holder=store.lease_holder(now),
                version=engine_control.engine_version(store),
                wanted=bool(jobs) and not is_at_rest(store),
                troubles=store.troubles.read(),
            )
    return judge_engine(facts, read_versions().herd, now)


async def check_daemon(machine: Machine) -> Sequence[CheckResult]:
    runtime = read_path(machine.folders.runtime)
    dead = list_dead_sockets(machine.folders.runtime)
    status = await ask_daemon(machine.environ) if runtime.exists else None
    return [judge_daemon(status, dead, runtime, read_versions().herd)]


async def check_key(machine: Machine) -> Sequence[CheckResult]:
    file = machine.folders.config / FILE
    facts, mistake = read_path(file), ""
    try:
        if facts.exists:
            asyncssh.import_private_key(file.read_bytes())
    except OSError as error:
        mistake = error.strerror or str(error)
    except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError) as error:
        mistake = f"it is not a private key without a passphrase ({error})"
    return [judge_key(facts, mistake)]


async def check_ssh_client(machine: Machine) -> Sequence[CheckResult]:
    program = find_ssh(machine.environ)
    banner = await run_program([program, "-V"], machine.environ) if program else None
    return [judge_ssh_client(program, banner.err if banner else "")]


async def check_ssh_config(machine: Machine) -> Sequence[CheckResult]:
    file, program = machine.ssh_config, find_ssh(machine.environ)
    facts = read_path(file)
    tried = None
    if facts.exists and program:
        if not facts.writable and not facts.mine:
            raise NotAllowed(f"{file} belongs to another user")
        tried = await run_program([program, "-F", str(file), "-G", ANY_HOST], machine.environ)
    return [judge_ssh_config(facts, read_path(file.parent), tried)]
