"""What is wished, as the engine needs it: the slots, and how to make and to start each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tpuherd.model.node_spec import LaunchOrder, Order
from tpuherd.model.search import Search
from tpuherd.model.slots_and_plan import Slot, Wishes
from tpuherd.model.stored_job import Wish


@dataclass(frozen=True, kw_only=True, slots=True)
class Desired:
    """Expanded from all wishes, anew whenever one changes."""

    wishes: Wishes
    order: Callable[[Slot], Order]  #: of a node, without its card
    launch: Callable[[Slot], LaunchOrder]
    rows: Mapping[str, Wish]  #: by job: where the slots are from
    sweeps: Mapping[str, Search] = field(default_factory=dict)  #: by job, of those that are one


#: Makes it; an error in one wish is a slot without an offer, and a sentence.
Desire = Callable[[Mapping[str, Wish]], Desired]
