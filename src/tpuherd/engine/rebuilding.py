"""A store that knows of nothing, though our name is on what the cloud shows: it was lost."""

from collections.abc import Callable

from tpuherd.catalogue import zones
from tpuherd.core.adopt import adopted
from tpuherd.engine import look
from tpuherd.engine.parts import Parts
from tpuherd.engine.past import Past
from tpuherd.ports import HerdError, Survey

SILENT_S = 300.0  #: a zone that does not answer is waited for: what it has would be strays
EVERYWHERE = frozenset(zones())  #: what was forgotten may be anywhere


def rebuilt(
    parts: Parts, past: Past, survey: Survey, since: float, shout: Callable[[str], None]
) -> bool:
    """Adopt all jobs at once; false: not yet."""
    now = parts.clock.now()
    if EVERYWHERE - survey.zones and now < since + SILENT_S:
        return False
    found = adopted(look.owned(survey, parts.owner), {}, now, parts.who)
    try:
        # In one transaction: a wish without its bids would ask for them anew, and a store
        # that knows some jobs would leave the others to be strays.
        if past.blank():  # else somebody has wished meanwhile: herd adopt does it
            parts.store.adopt(found.wishes, found.events)
    except HerdError as error:
        shout(error.sentence)
        return False
    for bid in found.unknown:
        shout(f"{bid} bears our name and tells nothing of its job: herd gc shows it")
    return True
