"""Whether anything has happened since an engine ended with nothing left to do."""

from tpuherd.ports import Store
from tpuherd.store.event_table import CHANGE_KINDS
from tpuherd.store.set_aside import SET_ASIDE

STARTED, STOPPED, REST = "engine.started", "engine.stopped", "rest"
LIFE_KINDS = (*CHANGE_KINDS, STARTED, STOPPED, SET_ASIDE)


def is_at_rest(store: Store) -> bool:
    """Whether the last engine ended with nothing left to do, and nothing has happened since.

    A job may be submitted while an engine ends: after its last plan, and before the event of its
    end. That event says how far the engine had read.
    """
    for _, event in store.read_events(kinds=LIFE_KINDS, limit=1, newest=True):
        if event.kind != STOPPED or event.facts.get("code") != REST:
            return False
        read = event.facts.get("read")
        unread = isinstance(read, int) and any(
            store.read_events(after=read, kinds=CHANGE_KINDS, limit=1)
        )
        return not unread
    return False
