"""Expand stored jobs into the slots that the engine fills, and what runs on them."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from itertools import islice

from tpuherd.engine.desired import DesiredState
from tpuherd.jobfile import read_job
from tpuherd.jobfile.code_calls import PROGRAM, CodeCalls, count_calls
from tpuherd.jobfile.environment_key import ReadText
from tpuherd.jobfile.expand_slots import build_node_spec, expand_slots
from tpuherd.jobfile.grants import Allowance
from tpuherd.jobfile.launch_spec import build_launch_spec
from tpuherd.model.lab_shares import NO_SHARES, LabShares
from tpuherd.model.node_spec import LaunchSpec, NodeSpec
from tpuherd.model.slots_and_plan import DesiredSlots, Slot
from tpuherd.model.stored_job import StoredJob
from tpuherd.planner import fair_share
from tpuherd.settings import project_settings
from tpuherd.settings.project_access import ProjectAccess
from tpuherd.sync.snapshot_store import Archive, open_archive
from tpuherd_host.agent.snapshots.blobs import CorruptBlob
from tpuherd_host.agent.snapshots.manifest import parse_row


def load_desired_state(
    rows: Mapping[str, StoredJob],
    place: ProjectAccess,
    *,
    owner: str,
    shares: LabShares = NO_SHARES,
) -> DesiredState:
    """Expand stored jobs with the project's current configuration."""
    where, world, project = place.folders.config, place.world, place.project
    return build_desired_state(
        rows,
        project_settings.load_allowance(where, world=world, project=project),
        owner=owner,
        adopted=project_settings.adopted_owners(where, world=world, project=project),
        archive=open_archive(place.folders.state),
        shares=shares,
    )


def build_desired_state(
    rows: Mapping[str, StoredJob],
    allowed: Allowance,
    *,
    owner: str,
    adopted: frozenset[str] = frozenset(),
    archive: Archive | None = None,
    shares: LabShares = NO_SHARES,
) -> DesiredState:
    """The slots of all jobs. A job of a newer herd is skipped, and its nodes are left alone."""
    jobs = {name: job for name, stored_job in rows.items() if (job := parse_stored_job(stored_job))}
    slots = [slot for name, job in jobs.items() for slot in expand_slots(job, rows[name], allowed)]

    def order(slot: Slot) -> NodeSpec:
        return build_node_spec(jobs[slot.job], slot)

    def launch(slot: Slot) -> LaunchSpec:
        stored_job = rows[slot.job]
        files = snapshot_files(archive, stored_job.snapshot)
        calls = None if files is None else count_snapshot_calls(archive, stored_job.snapshot)
        return build_launch_spec(
            jobs[slot.job], slot, stored_job, files, read_snapshot_texts(archive, files), calls
        )

    return DesiredState(
        desired_slots=DesiredSlots(
            slots={slot.name: slot for slot in slots},
            owner=owner,
            creates_per_min=allowed.creates_per_min,
            hedge=allowed.hedge,
            shares=shares_with_grants(shares, allowed),
            adopted=adopted,
        ),
        order=order,
        launch=launch,
        rows=dict(rows),
        sweeps={name: job.sweep for name, job in jobs.items() if job.sweep},
    )


def shares_with_grants(shares: LabShares, allowed: Allowance) -> LabShares:
    """The users' own quotas, or those of the grants that say how many chips there are."""
    if shares.quotas:
        return shares
    return replace(shares, quotas=fair_share.shared_quotas(allowed.grants))


def parse_stored_job(stored_job: StoredJob) -> read_job.JobSpec | None:
    """Parse a stored job; None if this herd does not understand it."""
    found = read_job.read_fields(stored_job.document)
    return found if isinstance(found, read_job.JobSpec) else None


def read_snapshot_texts(archive: Archive | None, files: Mapping[str, str] | None) -> ReadText:
    """A function that returns the text of a file of the code; "" if its content is not here."""

    def read(path: str) -> str:
        if archive is None or files is None or path not in files:
            return ""
        archive.blobs.reload_indexes()
        with suppress(CorruptBlob):
            pieces = archive.blobs.read_pieces(bytes.fromhex(files[path]))
            return b"".join(islice(pieces, 1)).decode(errors="replace")
        return ""

    return read


@lru_cache(maxsize=100)
def count_snapshot_calls(archive: Archive | None, snapshot: str) -> CodeCalls:
    """What the code of a snapshot calls; reading all of its programs takes a while."""
    files = snapshot_files(archive, snapshot) or {}
    return count_calls(map(read_snapshot_texts(archive, files), filter(PROGRAM.fullmatch, files)))


def snapshot_files(archive: Archive | None, snapshot: str) -> Mapping[str, str] | None:
    """The content id of each of its files; None if the snapshot is not on this machine."""
    rows = archive.load_rows(snapshot) if archive and snapshot else None
    if rows is None:
        return None
    return {one.path.decode(errors="replace"): one.id.hex() for one in map(parse_row, rows)}
