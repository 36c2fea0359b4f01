"""Checks for what would fail on the hosts, before a node is paid for."""

import posixpath
import re
import sys
import warnings
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from tpuherd.catalogue import runtimes
from tpuherd.engine.desired_slots import read_snapshot_texts, snapshot_files
from tpuherd.errors import HerdError, InvalidInput, NotFound
from tpuherd.jobfile.environment_key import (
    PROJECT,
    PROJECT_FILE,
    MissingFile,
    ReadText,
    needed_files,
)
from tpuherd.jobfile.expand_slots import exact_node_names
from tpuherd.jobfile.nfs_folders import find_nfs_folder
from tpuherd.jobfile.read_job import JobSpec
from tpuherd.jobfile.run_script import (
    find_script,
    find_setup_files,
    is_run_by_image_python,
    shell_operator,
)
from tpuherd.jobfile.yaml_with_lines import YamlDocument
from tpuherd.jobs import via_parcel
from tpuherd.jobs.image_python import minor_of
from tpuherd.jobs.open_project import Session
from tpuherd.model.slots_and_plan import Offer
from tpuherd.settings import project_access
from tpuherd.sync.snapshot_store import Archive
from tpuherd.targets import split_bid_name
from tpuherd_host.agent.snapshots.manifest import parse_row

#: Setup steps that may mount a folder that all hosts share.
MOUNTS = re.compile(r"\b(mount|gcsfuse|sshfs|s3fs|rclone|lustre|nfs)\b")


async def check_job(
    job: JobSpec,
    offers: Sequence[Offer],
    page: YamlDocument,
    base: Path,
    here: Session,
    adopting: Collection[str] = (),
) -> None:
    """Report each mistake on the page; nodes of the names in `adopting` may exist."""
    await check_runtimes(job, offers, page, here)
    await check_node_names(job, offers, page, here, adopting)
    if job.requirements and job.workdir and not via_parcel.carried_snapshot(here.prompter.environ):
        check_requirements_file(job, page, base)
    if job.run is None:
        return
    check_checkpoint(job, offers, page)
    if not isinstance(job.run, str) and (word := shell_operator(job.run)):
        page.add_mistake(
            ("run",), f"{word} is for a shell, and a list of words has none: write one line of text"
        )
    if not job.repo and not via_parcel.carried_snapshot(here.prompter.environ):
        check_script(job, page, base, here)
        check_setup_files(job, page, base)
        check_syntax(job, offers, page, base)


async def check_runtimes(
    job: JobSpec, offers: Sequence[Offer], page: YamlDocument, here: Session
) -> None:
    """If the cloud answers, it must know a runtime that the catalogue lacks."""
    for version in dict.fromkeys(one.runtime for one in offers):
        if version in runtimes():
            continue
        zone = next(one.zone for one in offers if one.runtime == version)
        try:
            await (await here.cloud()).check_runtime(zone, version)
        except NotFound:
            page.add_mistake(
                ("runtime",),
                f"{zone} has no runtime {version}: omit it to get the default, or"
                " see: gcloud compute tpus tpu-vm versions list",
            )
        except HerdError:
            continue  # no answer from the cloud: reported elsewhere


async def check_node_names(
    job: JobSpec,
    offers: Sequence[Offer],
    page: YamlDocument,
    here: Session,
    adopting: Collection[str] = (),
) -> None:
    """The exact names must be free, or belong to nodes of this job."""
    if not job.node_name:
        return
    for name, stored in here.store.stored_jobs().items():
        if name != job.name and stored.document.get("node_name") == job.node_name:
            page.add_mistake(
                ("node_name",), f"job {name} uses the name {job.node_name}: `herd down {name}`"
            )
            return
    try:
        nodes = (await (await here.cloud()).list_nodes()).nodes
    except HerdError:
        return  # no answer from the cloud: reported elsewhere
    zones = {one.zone for one in offers}
    wanted = set(exact_node_names(job)).difference(adopting)
    owners = project_access.own_owner_ids(here.place)
    for node in nodes:
        if node.name in wanted and node.zone in zones:
            whose = node_holder(node.bid, job.name, owners)
            if whose:
                page.add_mistake(
                    ("node_name",),
                    f"a node {node.name} already exists in {node.zone}, and {whose}",
                )
                return


def node_holder(bid: str, job: str, owners: Collection[str]) -> str:
    """Return whose node it is, with what to do; "" if it is the job's own."""
    found = split_bid_name(bid)
    if found is None:
        return "herd did not create it: `herd engine adopt` takes it over, or choose another name"
    if found.owner not in owners:
        return "it belongs to another herd user: choose another name"
    return "" if found.job == job else f"it belongs to job {found.job}: `herd down {found.job}`"


def check_checkpoint(job: JobSpec, offers: Sequence[Offer], page: YamlDocument) -> None:
    """The hosts of a node must save to a shared place."""
    hosts = max(one.hosts for one in offers) * job.slices
    if hosts == 1 or not job.checkpoint or job.checkpoint.startswith("gs://"):
        return
    mounted = bool(job.data_disks) or "startup-script" in job.metadata
    mounted = mounted or bool(find_nfs_folder(job.nfs, job.checkpoint))
    if mounted or any(MOUNTS.search(step) for step in job.setup):
        return
    page.add_mistake(
        ("checkpoint",),
        f"{job.checkpoint} is a different folder on each of the {hosts} hosts: use a bucket,"
        " gs://BUCKET/PATH, or mount a shared folder: `nfs`",
    )


def check_requirements_file(job: JobSpec, page: YamlDocument, base: Path) -> None:
    """The file must be in the folder that is shipped; a project of uv has two."""
    folder = base / Path(job.workdir).expanduser()
    wanted = [Path(job.requirements)]
    if wanted[0].name == PROJECT:
        wanted.append(wanted[0].with_name(PROJECT_FILE))
    for file in wanted:
        if not (folder / file).is_file():
            page.add_mistake(("requirements",), f"{file} is not in workdir {job.workdir}")


def check_script(job: JobSpec, page: YamlDocument, base: Path, here: Session) -> None:
    """The script must be in the folder that is shipped."""
    script = find_script(job)
    if not script:
        return
    if job.workdir:
        if not (base / Path(job.workdir).expanduser() / script).exists():
            page.add_mistake(("run",), f"{script} is not in workdir {job.workdir}")
    elif (base / script).exists():
        page.add_mistake(("run",), f"{script} would not be shipped: add --workdir . (workdir: .)")
    elif job.name not in here.store.stored_jobs():  # an existing node may have been set up by hand
        page.add_mistake(
            ("run",), f"new hosts have no {script}: set what to ship with workdir or repo"
        )


def check_setup_files(job: JobSpec, page: YamlDocument, base: Path) -> None:
    """Files that setup steps name must be in the folder that is shipped."""
    for number, path in find_setup_files(job) if job.workdir else ():
        if not (base / Path(job.workdir).expanduser() / path).exists():
            where = ("setup", number) if len(job.setup) > 1 else ("setup",)
            page.add_mistake(where, f"{path} is not in workdir {job.workdir}")


def check_syntax(job: JobSpec, offers: Sequence[Offer], page: YamlDocument, base: Path) -> None:
    """The script must be a program for Python, as far as ours can tell: one that is not older."""
    script = find_script(job) if job.workdir else ""
    if not script.endswith(".py") or not is_run_by_image_python(job):
        return
    known = runtimes()
    versions = [job.python or getattr(known.get(one.runtime), "python", "") for one in offers]
    if not all(versions) or any(minor_of(one) > sys.version_info.minor for one in versions):
        return
    try:
        text = (base / Path(job.workdir).expanduser() / script).read_bytes()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(text, script, "exec", dont_inherit=True)
    except SyntaxError as error:
        at = f"{script}:{error.lineno}" if error.lineno else script
        page.add_mistake(("run",), f"{at}: {error.msg} (Python cannot run it)")
    except (OSError, ValueError, RecursionError, MemoryError):
        return  # not here, or not text: the hosts' Python has the word


def check_shipped_requirements(job: JobSpec, files: Mapping[str, str], read: ReadText) -> None:
    try:
        list(needed_files(posixpath.normpath(job.requirements), files, read))
    except MissingFile as missing:
        named = f", which {missing.by} names," if missing.by else ""
        raise InvalidInput(
            f"requirements: {missing.path}{named} would not be shipped",
            hint="it must be in the workdir, and neither git nor .herdignore may ignore it",
        ) from None


def check_shipped(job: JobSpec, snapshot: str, archive: Archive) -> None:
    """Script and requirements must be in the snapshot: git may ignore them, or a repository lack
    them."""
    files = snapshot_files(archive, snapshot)
    if job.requirements and files is not None:
        check_shipped_requirements(job, files, read_snapshot_texts(archive, files))
    script = find_script(job)
    rows = archive.load_rows(snapshot) if script else None
    if rows is None:
        return
    names = {one.path.decode(errors="replace") for one in map(parse_row, rows)}
    if any(name == script or name.startswith(f"{script}/") for name in names):
        return
    if job.repo:
        raise InvalidInput(f"run: {script} is not in {job.repo}")
    raise InvalidInput(
        f"run: {script} would not be shipped, because git or .herdignore ignores it",
        hint="herd ships what git would: remove it from the ignored files",
    )
