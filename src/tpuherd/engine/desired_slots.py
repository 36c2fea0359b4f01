"""From the wishes that are kept to the slots that the engine fills, and what runs on them."""

from collections.abc import Mapping

from tpuherd.engine.desired import Desired
from tpuherd.jobfile import read_job
from tpuherd.jobfile.expand_slots import expand, order_of
from tpuherd.jobfile.grants import Allowed
from tpuherd.jobfile.launch_spec import launch_of
from tpuherd.model.node_spec import LaunchOrder, Order
from tpuherd.model.slots_and_plan import Slot, Wishes
from tpuherd.model.stored_job import Wish
from tpuherd.settings import project_settings
from tpuherd.settings.project_access import Place
from tpuherd.sync.snapshot_store import Archive, archived
from tpuherd_host.agent.snapshots_rows import parsed


def of_place(rows: Mapping[str, Wish], place: Place, *, owner: str) -> Desired:
    """By what is configured for a place, as it stands in the file now."""
    where, world, project = place.folders.config, place.world, place.project
    return desired(
        rows,
        project_settings.allowed(where, world=world, project=project),
        owner=owner,
        adopted=project_settings.adopted(where, world=world, project=project),
        archive=archived(place.folders.state),
    )


def desired(
    rows: Mapping[str, Wish],
    allowed: Allowed,
    *,
    owner: str,
    adopted: frozenset[str] = frozenset(),
    archive: Archive | None = None,
) -> Desired:
    """Of all wishes. One in words of a newer herd is left out, and what it has is left alone."""
    jobs = {name: job for name, wish in rows.items() if (job := understood(wish))}
    slots = [slot for name, job in jobs.items() for slot in expand(job, rows[name], allowed)]

    def order(slot: Slot) -> Order:
        return order_of(jobs[slot.job], slot)

    def launch(slot: Slot) -> LaunchOrder:
        wish = rows[slot.job]
        return launch_of(jobs[slot.job], slot, wish, files(archive, wish.snapshot))

    return Desired(
        wishes=Wishes(
            slots={slot.name: slot for slot in slots},
            owner=owner,
            creates_per_min=allowed.creates_per_min,
            hedge=allowed.hedge,
            adopted=adopted,
        ),
        order=order,
        launch=launch,
        rows=dict(rows),
        sweeps={name: job.sweep for name, job in jobs.items() if job.sweep},
    )


def understood(wish: Wish) -> read_job.Job | None:
    """The job of a wish as it is kept; None where its words are not ours."""
    found = read_job.checked(wish.document)
    return found if isinstance(found, read_job.Job) else None


def files(archive: Archive | None, snapshot: str) -> Mapping[str, str] | None:
    """The content id of each of its files; None where they are not here."""
    rows = archive.rows(snapshot) if archive and snapshot else None
    if rows is None:
        return None
    return {one.path.decode(errors="replace"): one.id.hex() for one in map(parsed, rows)}
