"""The desired state as the engine needs it: slots, and how to create and launch each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tpuherd.model.node_spec import LaunchSpec, NodeSpec
from tpuherd.model.search import Search
from tpuherd.model.slots_and_plan import DesiredSlots, Slot
from tpuherd.model.stored_job import StoredJob


@dataclass(frozen=True, kw_only=True, slots=True)
class DesiredState:
    """Expanded from all jobs whenever one changes."""

    desired_slots: DesiredSlots
    order: Callable[[Slot], NodeSpec]  #: of a node, without its card
    launch: Callable[[Slot], LaunchSpec]
    rows: Mapping[str, StoredJob]  #: by job: the source of the slots
    sweeps: Mapping[str, Search] = field(default_factory=dict)  #: by job, for sweeps only


#: Builds it; an error in a job gives slots without offers, and a message.
JobExpander = Callable[[Mapping[str, StoredJob]], DesiredState]
