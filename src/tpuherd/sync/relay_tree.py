"""Who passes a snapshot on to whom. Pure."""

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tpuherd.ports import Host

FANOUT = 4
NODES = 8  #: other nodes that a host feeds: wide, for each is tried, and trying takes a while
DIRECT_AFTER = 2  #: rounds in which nothing came through the other hosts

NodePair = frozenset[str]  #: of nodes


@dataclass(frozen=True, kw_only=True, slots=True)
class RelayHost:
    """A host that listens, and to whom it passes on."""

    name: str
    address: str
    port: int
    token: str  #: by which both ends know each other
    node: str = ""  #: of which creation
    children: tuple["RelayHost", ...] = ()

    def iter_subtree(self) -> Iterator["RelayHost"]:
        """Itself, and all that are below it."""
        yield self
        for child in self.children:
            yield from child.iter_subtree()

    def descendant_names(self) -> set[str]:
        """Of those below it."""
        return {child.name for child in self.iter_subtree()} - {self.name}

    def to_json(self) -> list[Any]:
        """As the agents take it."""
        below = [child.to_json() for child in self.children]
        return [self.address, self.port, self.token, below]


def build_tree(hosts: Sequence[RelayHost], fanout: int = FANOUT) -> tuple[RelayHost, ...]:
    """Hosts as a tree: at most `fanout` more below each, all branches of about the same depth."""
    branches = (hosts[start::fanout] for start in range(min(fanout, len(hosts))))
    return tuple(
        replace(first, children=(*build_tree(rest, fanout), *first.children))
        for first, *rest in branches
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class RelayTree:
    """A tree of hosts, and the one at its top."""

    host: str
    up: bool  #: it gets it over the user's uplink; else it has it, and passes it on
    children: tuple[RelayHost, ...] = ()
    alone: bool = False  #: nothing came to it through others: this is its last try

    def iter_descendants(self) -> Iterator[RelayHost]:
        """All that get it through others."""
        for child in self.children:
            yield from child.iter_subtree()


def plan_relays(
    waiting: Sequence[RelayHost],
    sources: Mapping[str, str],
    *,
    alone: Container[str] = (),
    strays: Container[str] = (),
    apart: Container[NodePair] = (),
) -> list[RelayTree]:
    """Who gets it from whom. Within a node always from a host of that node: from its source, else
    from its first, which alone gets it from outside: from another node, unless they are known not
    to meet or its node is a stray; then over the user's uplink."""
    feeds = [RelayTree(host=one.name, up=True, alone=True) for one in waiting if one.name in alone]
    nodes: dict[str, list[RelayHost]] = {}
    for one in waiting:
        if one.name not in alone:
            nodes.setdefault(one.node, []).append(one)
    for top, *others in reachable_groups(list(nodes), list(sources), strays, apart):
        heads = [rooted_at_first(nodes[node]) for node in others]
        inside = nodes.get(top, [])
        if top not in sources:
            first = rooted_at_first(inside)
            children = (*build_tree(heads, NODES), *first.children)
            feeds.append(RelayTree(host=first.name, up=True, children=children))
        elif heads or inside:
            children = (*build_tree(heads, NODES), *build_tree(inside))
            feeds.append(RelayTree(host=sources[top], up=False, children=children))
    return feeds


def rooted_at_first(hosts: Sequence[RelayHost]) -> RelayHost:
    """The hosts of a node, below its first."""
    first, *others = hosts
    return replace(first, children=build_tree(others))


def reachable_groups(
    nodes: Sequence[str],
    sources: Sequence[str],
    strays: Container[str],
    apart: Container[NodePair],
) -> list[list[str]]:
    """Nodes that may reach each other, by crowds; the first of each has it, or gets it first."""
    found = [[source] for source in sources]
    for node in nodes:
        if node in sources:
            continue
        fits = (
            crowd
            for crowd in found
            if node not in strays and not any(frozenset((node, one)) in apart for one in crowd)
        )
        crowd = next(fits, None)
        if crowd is None:
            found.append([node])
        else:
            crowd.append(node)
    return found


def detour_reasons(feed: RelayTree, *, stray: bool, again: bool) -> dict[str, str]:
    """Who gets it another way than it should, and which."""
    if not feed.up:
        return {one.name: f"from {feed.host}, at another try" for one in feed.iter_descendants()}
    if feed.alone:
        return {feed.host: "over its own link"}
    if stray:
        return {feed.host: "over its own link: the hosts of other nodes don't reach its node"}
    return {feed.host: "sent once more over its own link"} if again else {}


def node_key(host: Host) -> str:
    """The node of a host: a recreated one is another."""
    return f"{host.zone}/{host.node} {host.incarnation}"
