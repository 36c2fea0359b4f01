"""What `herd levanter` does: finds the code, builds the job, and submits it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tpuherd.cli.job_options import JobArguments
from tpuherd.cli.job_session import open_job_session
from tpuherd.cli.submit_job import RunOptions, run_job
from tpuherd.cli.wait import run_wait
from tpuherd.commands.console import Console
from tpuherd.commands.host_access import HostAccess
from tpuherd.compat import levanter
from tpuherd.compat.levanter import CodeAndSetup, Ending, NodeOptions, RemoteCommand
from tpuherd.compat.levanter_config import LevanterConfig, load_config
from tpuherd.errors import HerdError, InvalidInput, NotFound
from tpuherd.jobs.load_history import has_finished
from tpuherd.model.slots_and_plan import Goal
from tpuherd.model.stored_job import StoredJob
from tpuherd.settings import project_access
from tpuherd.sync.snapshot_git import run_git

HERE = Path()
OURS = (levanter.VENV_SETUP, levanter.NFS_SETUP)
SETUP_RETRIES = 4  #: spin-up-vm.sh tries five times
RETRIES = "10"  #: launch.py's default
TIERS = {"best-effort": "spot", "": "on-demand"}


@dataclass(frozen=True, kw_only=True, slots=True)
class SpinUpOptions:
    """The options of spin-up-vm.sh and babysit-tpu-vm.sh."""

    node: NodeOptions
    setup: Path  #: HERE: ours
    branch: str
    repo: str
    retries: int
    yes: bool
    dry: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class RunOnNode:
    name: str
    words: tuple[str, ...]
    follow: bool
    yes: bool
    dry: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchOptions:
    words: tuple[str, ...]
    said: Mapping[str, Any]  #: by the names of launch.py


async def run_babysit(
    asked: SpinUpOptions, words: tuple[str, ...], follow: bool, console: Console, home: HostAccess
) -> int:
    command = levanter.parse_command(words)
    code = find_code(asked, console)
    failures = None if asked.retries < 0 else max(0, asked.retries - 1)
    job = levanter.job_name_for_node(asked.node.name)
    by = "herd levanter babysit"
    run_id = await choose_run_id(job, command, by, console, home)
    document = levanter.build_job(
        asked.node, code, with_nfs(command, console), Ending(failures=failures, keep=False), run_id
    )
    options = run_options(document, by, follow=follow, yes=asked.yes, dry=asked.dry)
    return await run_with_secrets(options, command, console, home)


async def run_spin_up(asked: SpinUpOptions, console: Console, home: HostAccess) -> int:
    """Return when the hosts are prepared."""
    document = levanter.build_job(
        asked.node, find_code(asked, console), None, Ending(failures=SETUP_RETRIES, keep=True), ""
    )
    nfs = with_nfs(RemoteCommand(), console).env
    document |= {"env": nfs} if nfs else {}
    by = "herd levanter spin-up"
    options = run_options(document, by, follow=False, yes=asked.yes, dry=asked.dry)
    status = await run_job(replace(options, goal=Goal.IDLE), console, home)
    if status or asked.dry:
        return status
    status = await run_wait((document["name"],), None, False, console, home)
    if status == 0:
        _, reach = await home.open_remote(console)
        for node in (await reach.cloud.list_nodes()).nodes:
            if node.name == asked.node.name:
                for worker in node.workers:
                    await console.print_text(worker.external_ip or worker.internal_ip)
    return status


async def run_on_node(asked: RunOnNode, console: Console, home: HostAccess) -> int:
    by = "herd levanter run"
    command = levanter.parse_command(asked.words)
    job = levanter.job_name_for_node(asked.name)
    async with open_job_session(console, home, by, begins=False) as here:
        before = here.store.stored_jobs().get(job)
    if before is None or before.document.get("node_name") != asked.name:
        raise NotFound(
            f"there is no {asked.name}", hint=f"herd levanter spin-up {asked.name} -t TYPE makes it"
        )
    known = before.document.get("env", {})
    kept = {name: known[name] for name in levanter.NFS_VARIABLES if name in known}
    run_id = await choose_run_id(job, command, by, console, home)
    document = {
        **before.document,
        "run": levanter.command_text(command.words, in_code=False),
        "env": {**kept, **command.env, "RUN_ID": run_id},
        "secrets": {name: {"env": name} for name in sorted(command.secrets)},
        "retry": {"failures": 0},
        "node": {"done": "keep", "failed": "keep"},
    }
    free = before.goal is Goal.IDLE  # so nothing ends that the user should be asked about
    options = run_options(document, by, follow=asked.follow, yes=asked.yes or free, dry=asked.dry)
    return await run_with_secrets(options, command, console, home)


async def run_launch(asked: LaunchOptions, console: Console, home: HostAccess) -> int:
    """Flags come before variables of the environment, and those before the file."""
    by, said, environ = "herd levanter launch", asked.said, console.environ
    config = load_config(console.folder)
    found = {name: find_launch_value(name, said, config, environ) for name in (
        "tpu_name", "tpu_type", "zone", "node_count", "version", "capacity_type", "retries",
        "run_id", "project",
    )}  # fmt: skip
    for name in ("tpu_name", "tpu_type"):
        if not found[name]:
            raise InvalidInput(f"give --{name}, or set it in .levanter.yaml")
    check_project(found["project"], console)
    if config.image_keys and console.said.loud >= 0:
        unused = ", ".join(config.image_keys)
        await console.print_notice(f"{by}: no image is built; .levanter.yaml's {unused}: unused")
    words = asked.words[1:] if asked.words[0] == "--" else asked.words
    env = {"WANDB_PROJECT": "levanter", **config.env_for(found["tpu_type"], environ)}
    given = {**env, **find_commit(console), **dict(said["env"])}
    typed = levanter.parse_command(words)
    command = levanter.split_secrets(
        replace(typed, env={**given, **typed.env}, secrets=typed.secrets)
    )
    job = levanter.job_name_for_node(found["tpu_name"])
    run_id = found["run_id"] or await choose_run_id(job, command, by, console, home)
    follow = said["foreground"] or config.is_set("foreground", environ)
    keep = not (said["autodelete"] or config.is_set("autodelete", environ))
    retries = parse_count("retries", found["retries"] or RETRIES)
    ending = Ending(failures=None if retries < 0 else retries, keep=keep)
    code = CodeAndSetup(
        workdir=str(console.folder), setup=levanter.setup_text(levanter.VENV_SETUP), in_code=True
    )
    document = levanter.build_job(launch_node(found, config), code, command, ending, run_id)
    options = run_options(document, by, follow=follow, yes=said["yes"], dry=said["dry"])
    return await run_with_secrets(options, command, console, home)


def find_launch_value(
    name: str, said: Mapping[str, Any], config: LevanterConfig, environ: Mapping[str, str]
) -> str:
    return str(said[name]) if said[name] is not None else config.find_value(name, environ)


def launch_node(found: Mapping[str, str], config: LevanterConfig) -> NodeOptions:
    tier, network = found["capacity_type"], config.values.get("subnetwork", "")
    return NodeOptions(
        name=found["tpu_name"],
        type=found["tpu_type"],
        zone=found["zone"],
        tier=TIERS.get(tier, tier),
        runtime=found["version"],
        subnetwork="" if network == "default" else network,
        slices=parse_count("node_count", found["node_count"] or "1"),
    )


def parse_count(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidInput(f"{name} should be a whole number, not {text!r}") from None


def check_project(project: str, console: Console) -> None:
    """The project of a job is that of the context."""
    place = project_access.resolve_access(console.environ, world=console.said.world)
    if project and project != place.project:
        raise InvalidInput(
            f"the project is {place.project}, not {project}",
            hint="`herd context use NAME` chooses another",
        )


def find_commit(console: Console) -> dict[str, str]:
    """Return GIT_COMMIT of the folder, if git knows one."""
    try:
        words = ("rev-parse", "HEAD")
        commit = run_git(*words, folder=console.folder, environment=console.environ)
    except HerdError:
        return {}
    return {"GIT_COMMIT": commit.decode().strip()}


def find_code(asked: SpinUpOptions, console: Console) -> CodeAndSetup:
    """Return the clone that the folder is in, the repository of --repo, or what a script gets."""
    script = asked.setup
    file = console.folder / script.expanduser()
    if script != HERE and file.is_file():
        content = file.read_text(encoding="utf-8", errors="replace")
        branch = asked.branch or ask_git("rev-parse --abbrev-ref HEAD", console)
        text = levanter.own_setup_text(
            script.name, content, branch=branch, repo=find_repository(asked, console)
        )
        return CodeAndSetup(setup=text)
    if script != HERE and script.name not in OURS:
        raise InvalidInput(f"{script} is not a file; herd's own set-ups are {' and '.join(OURS)}")
    nfs = find_nfs_server(console) if script.name == levanter.NFS_SETUP else {}
    setup = levanter.setup_text(script.name or levanter.VENV_SETUP)
    if asked.branch or asked.repo:
        at = f"@{asked.branch}" if asked.branch else ""
        return CodeAndSetup(repo=f"{find_repository(asked, console)}{at}", setup=setup, nfs=nfs)
    folder = ask_git("rev-parse --show-toplevel", console)
    return CodeAndSetup(workdir=folder, setup=setup, nfs=nfs)


def find_nfs_server(console: Console) -> dict[str, str]:
    """Return the folder to mount and its server, as the user's shell names them."""
    server = console.environ.get("NFS_SERVER")
    if not server:
        raise InvalidInput("set NFS_SERVER in your shell, such as NFS_SERVER=10.0.0.2:/share")
    return {console.environ.get("MOUNT_POINT") or levanter.MOUNT_POINT: server}


def find_repository(asked: SpinUpOptions, console: Console) -> str:
    return levanter.https_address(asked.repo or ask_git("remote get-url origin", console))


def ask_git(words: str, console: Console) -> str:
    """Ask git about the user's clone."""
    try:
        answer = run_git(*words.split(), folder=console.folder, environment=console.environ)
    except HerdError as error:
        raise InvalidInput(
            f"{error.sentence}: run it in your clone of Levanter",
            hint="or give --repo and --branch",
        ) from error
    return answer.decode(errors="replace").strip()


def with_nfs(command: RemoteCommand, console: Console) -> RemoteCommand:
    """Add the variables of the user's shell that say where the file server is."""
    names = levanter.NFS_VARIABLES
    server = {name: console.environ[name] for name in names if console.environ.get(name)}
    return replace(command, env={**server, **command.env})


async def choose_run_id(
    job: str, command: RemoteCommand, by: str, console: Console, home: HostAccess
) -> str:
    """Return RUN_ID as typed, of the environment, of the job while it runs, or a new one."""
    given = command.env.get("RUN_ID") or console.environ.get("RUN_ID")
    if given:
        return given
    async with open_job_session(console, home, by, begins=False) as here:
        before = here.store.stored_jobs().get(job)
        found = stored_run_id(before) if before and not has_finished(here.store, before) else ""
    if found:
        return found
    run_id = levanter.new_run_id()
    if console.said.loud >= 0:
        await console.print_notice(f"{by}: RUN_ID is not set, so it is {run_id}")
    return run_id


def stored_run_id(job: StoredJob) -> str:
    return str(job.document.get("env", {}).get("RUN_ID", ""))


def run_options(
    document: Mapping[str, Any], by: str, *, follow: bool, yes: bool, dry: bool
) -> RunOptions:
    said = JobArguments(file=None, fields={}, document=document)
    return RunOptions(said=said, goal=Goal.RUN, follow=follow, yes=yes, dry=dry, json_=False, by=by)


async def run_with_secrets(
    options: RunOptions, command: RemoteCommand, console: Console, home: HostAccess
) -> int:
    """Submit; the values of secrets that were typed are taken from here."""
    console.environ = {**console.environ, **command.secrets}
    return await run_job(options, console, home)
