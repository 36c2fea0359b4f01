"""Plans which host passes a snapshot on to which. Pure."""

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tpuherd.ports import Host

FANOUT = 4
NODES = 8  #: nodes that a host sends to; many, because failed attempts take a while
DIRECT_AFTER = 2  #: rounds without success through other hosts, after which we send directly

NodePair = frozenset[str]  #: two node keys


@dataclass(frozen=True, kw_only=True, slots=True)
class RelayHost:
    """A host that listens for a snapshot, and the hosts that it passes it on to."""

    name: str
    address: str
    port: int
    token: str  #: authenticates both ends
    node: str = ""  #: its node's key
    children: tuple["RelayHost", ...] = ()

    def iter_subtree(self) -> Iterator["RelayHost"]:
        """Itself and all its descendants."""
        yield self
        for child in self.children:
            yield from child.iter_subtree()

    def descendant_names(self) -> set[str]:
        return {child.name for child in self.iter_subtree()} - {self.name}

    def to_json(self) -> list[Any]:
        """The form that agents expect."""
        below = [child.to_json() for child in self.children]
        return [self.address, self.port, self.token, below]


def build_tree(hosts: Sequence[RelayHost], fanout: int = FANOUT) -> tuple[RelayHost, ...]:
    """Arrange hosts in a balanced tree with at most `fanout` additional children each."""
    branches = (hosts[start::fanout] for start in range(min(fanout, len(hosts))))
    return tuple(
        replace(first, children=(*build_tree(rest, fanout), *first.children))
        for first, *rest in branches
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class RelayTree:
    """A tree of hosts with the host at its top."""

    host: str
    up: bool  #: we send it over the user's uplink; else the host has it and passes it on
    children: tuple[RelayHost, ...] = ()
    alone: bool = False  #: relaying to it failed: this is its last try

    def iter_descendants(self) -> Iterator[RelayHost]:
        """All hosts that get it from other hosts."""
        for child in self.children:
            yield from child.iter_subtree()


def plan_relays(
    waiting: Sequence[RelayHost],
    sources: Mapping[str, str],
    *,
    alone: Container[str] = (),
    unreachable: Container[str] = (),
    apart: Container[NodePair] = (),
) -> list[RelayTree]:
    """Which host gets it from which. Within a node, hosts get it from the source, a host of the
    node that has it, else from the node's first host. The first host gets it from another node, or
    over the user's uplink if the node is unreachable for others, or for these (`apart`)."""
    trees = [RelayTree(host=one.name, up=True, alone=True) for one in waiting if one.name in alone]
    nodes: dict[str, list[RelayHost]] = {}
    for one in waiting:
        if one.name not in alone:
            nodes.setdefault(one.node, []).append(one)
    for top, *others in reachable_groups(list(nodes), list(sources), unreachable, apart):
        heads = [rooted_at_first(nodes[node]) for node in others]
        inside = nodes.get(top, [])
        if top not in sources:
            first = rooted_at_first(inside)
            children = (*build_tree(heads, NODES), *first.children)
            trees.append(RelayTree(host=first.name, up=True, children=children))
        elif heads or inside:
            children = (*build_tree(heads, NODES), *build_tree(inside))
            trees.append(RelayTree(host=sources[top], up=False, children=children))
    return trees


def rooted_at_first(hosts: Sequence[RelayHost]) -> RelayHost:
    """The hosts of a node as a tree below its first host."""
    first, *others = hosts
    return replace(first, children=build_tree(others))


def reachable_groups(
    nodes: Sequence[str],
    sources: Sequence[str],
    unreachable: Container[str],
    apart: Container[NodePair],
) -> list[list[str]]:
    """Groups of nodes that may reach each other; the first of each has it or gets it first."""
    groups = [[source] for source in sources]
    for node in nodes:
        if node in sources:
            continue
        fits = (
            group
            for group in groups
            if node not in unreachable and not any(frozenset((node, one)) in apart for one in group)
        )
        group = next(fits, None)
        if group is None:
            groups.append([node])
        else:
            group.append(node)
    return groups


def detour_reasons(tree: RelayTree, *, unreachable: bool, again: bool) -> dict[str, str]:
    """Hosts that get it in another way than planned, with a description of that way."""
    if not tree.up:
        return {one.name: f"from {tree.host}, at a later try" for one in tree.iter_descendants()}
    if tree.alone:
        return {tree.host: "over its own link"}
    if unreachable:
        return {tree.host: "over its own link: other nodes can't reach its node"}
    return {tree.host: "sent again over its own link"} if again else {}


def node_key(host: Host) -> str:
    """Identifies the node of a host; a recreated node gets another key."""
    return f"{host.zone}/{host.node} {host.incarnation}"
