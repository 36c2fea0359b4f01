"""Learns from each round of a shipment which nodes reach each other, and plans the next one."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import combinations

from tpuherd.sync.recent_cache import APART
from tpuherd.sync.relay_tree import (
    DIRECT_AFTER,
    NodePair,
    RelayHost,
    RelayTree,
    detour_reasons,
    plan_relays,
)


class RelayRounds:
    """What the rounds of one shipment have shown."""

    def __init__(self, nodes: Mapping[str, str], *, relay: bool, copies: bool) -> None:
        self._nodes = nodes  #: by host
        self._relay = relay  #: hosts may pass it on
        self._copies = copies  #: they keep nothing that they could pass on later
        #: By host: rounds in which another host of its node had it.
        self._tries: Counter[str] = Counter()
        #: By node: rounds after which none of its hosts had it.
        self._misses: Counter[str] = Counter()
        self._apart: set[NodePair] = set()  #: pairs of nodes that could not reach each other
        self._unreachable: set[str] = set()  #: nodes that other nodes could not reach

    @property
    def has_failures(self) -> bool:
        """Whether an earlier round left hosts without it."""
        return bool(self._tries or self._misses)

    def plan_round(
        self, waiting: Sequence[RelayHost], whole: Sequence[str], now: float
    ) -> list[RelayTree]:
        """Return the trees of the next round; `whole` are hosts that have it."""
        sources = {self._nodes[name]: name for name in reversed(whole)}
        spent = {node for node in self._misses if self._misses[node] >= 2 * DIRECT_AFTER}
        spent |= sources.keys() if self._copies else set()
        spent |= set() if self._relay else set(self._nodes.values())
        return plan_relays(
            waiting,
            {} if self._copies else sources,
            alone={
                one.name
                for one in waiting
                if self._tries[one.name] >= DIRECT_AFTER or one.node in spent
            },
            unreachable={
                *self._unreachable,
                *(n for n in self._misses if self._misses[n] >= DIRECT_AFTER),
            },
            apart=self._apart.union(APART.iter_recent(now)),
        )

    def record_lost(self, lost: str, by: str) -> None:
        """A host could not pass it on to another."""
        nodes = (self._nodes[lost], self._nodes[by])
        if nodes[0] != nodes[1]:
            self._unreachable.add(nodes[0])
            self._apart.add(frozenset(nodes))

    def record_late(self, name: str) -> None:
        """A host took too long: it gets it directly next time."""
        self._tries[name] = DIRECT_AFTER

    def record_round(
        self, left: Sequence[str], ready: Collection[str], trees: Sequence[RelayTree]
    ) -> None:
        """Count the round for the hosts that are left without it."""
        reached = {self._nodes[name] for name in ready}
        self._tries.update(name for name in left if self._nodes[name] in reached)
        missed = {self._nodes[name] for name in left} - reached
        fed = missed & {self._nodes[tree.host] for tree in trees}
        self._misses.update([*missed, *fed])  # counts twice if we sent it ourselves

    def detour_reasons(self, tree: RelayTree) -> dict[str, str]:
        """Hosts of the tree that got it in another way than planned."""
        if not self._relay:
            return {}
        node = self._nodes[tree.host]
        return detour_reasons(
            tree, unreachable=node in self._unreachable, again=self._misses[node] > 0
        )

    def remember_apart(self, ready: Collection[str], now: float) -> None:
        """Remember for later shipments which nodes can't reach each other."""
        reached = {self._nodes[name] for name in ready}
        # Pairs that were not tried are likely apart too.
        lone = map(frozenset, combinations(sorted(self._unreachable), 2))
        for pair in {*self._apart, *lone}:
            if pair <= reached:
                APART.put(pair, None, now)
