"""Reads the curves below a slot's timeline, its step rate and losses, and its latest step."""

from collections.abc import Mapping, Sequence

from tpuherd.accounting.goodput import SlotAccount
from tpuherd.errors import HerdError
from tpuherd.model.samples import STEP, STEP_RATE
from tpuherd.store.database import Database
from tpuherd.store.sample_store import SampleStore
from tpuherd.views.slot_pictures import CURVES_MAX, Curve

POINTS = 480  #: of each curve, about twice as many as a wide terminal has columns
#: Values that scripts report, as they usually call them, in the order in which they are shown.
LOSSES = ("loss", "train_loss", "train/loss", "eval_loss", "eval/loss", "val_loss", "val/loss")
NAMES = (STEP, STEP_RATE, *LOSSES)


def slot_curves(
    store: Database, accounts: Mapping[str, SlotAccount], slots: Sequence[str]
) -> dict[str, list[Curve]]:
    """Return the curves of each slot; none if there are too many slots, or no samples."""
    known = [accounts[slot] for slot in slots if slot in accounts]
    if len(known) > CURVES_MAX:
        return {}
    samples = SampleStore(store.folder)
    try:
        return {account.slot: read_curves(samples, account) for account in known}
    except HerdError:
        return {}  # the file is damaged or of a newer version: the engine says so
    finally:
        samples.close()


def read_curves(samples: SampleStore, account: SlotAccount) -> list[Curve]:
    found = samples.read_series(
        account.job, NAMES, since=account.start, until=account.end, points=POINTS, of=account.slot
    )
    by_name = {series.name.name: series for series in found if not series.name.host}
    return [
        Curve(name=name, points=tuple((point.at, point.mean) for point in by_name[name].points))
        for name in NAMES
        if name in by_name
    ]
