"""Who passes a snapshot on to whom. Pure."""

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tpuherd.ports import Host

FANOUT = 4
NODES = 8  #: other nodes that a host feeds: wide, for each is tried, and trying takes a while
DIRECT_AFTER = 2  #: rounds in which nothing came through the other hosts

Pair = frozenset[str]  #: of nodes


@dataclass(frozen=True, kw_only=True, slots=True)
class Child:
    """A host that listens, and to whom it passes on."""

    name: str
    address: str
    port: int
    token: str  #: by which both ends know each other
    node: str = ""  #: of which creation
    children: tuple["Child", ...] = ()

    def all(self) -> Iterator["Child"]:
        """Itself, and all that are below it."""
        yield self
        for child in self.children:
            yield from child.all()

    def names(self) -> set[str]:
        """Of those below it."""
        return {child.name for child in self.all()} - {self.name}

    def json(self) -> list[Any]:
        """As the agents take it."""
        below = [child.json() for child in self.children]
        return [self.address, self.port, self.token, below]


def grown(hosts: Sequence[Child], fanout: int = FANOUT) -> tuple[Child, ...]:
    """Hosts as a tree: at most `fanout` more below each, all branches of about the same depth."""
    branches = (hosts[start::fanout] for start in range(min(fanout, len(hosts))))
    return tuple(
        replace(first, children=(*grown(rest, fanout), *first.children))
        for first, *rest in branches
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Feed:
    """A tree of hosts, and the one at its top."""

    host: str
    up: bool  #: it gets it over the user's uplink; else it has it, and passes it on
    children: tuple[Child, ...] = ()
    alone: bool = False  #: nothing came to it through others: this is its last try

    def below(self) -> Iterator[Child]:
        """All that get it through others."""
        for child in self.children:
            yield from child.all()


def planned(
    waiting: Sequence[Child],
    sources: Mapping[str, str],
    *,
    alone: Container[str] = (),
    strays: Container[str] = (),
    apart: Container[Pair] = (),
) -> list[Feed]:
    """Who gets it from whom. Within a node always from a host of that node: from its source, else
    from its first, which alone gets it from outside: from another node, unless they are known not
    to meet or its node is a stray; then over the user's uplink."""
    feeds = [Feed(host=one.name, up=True, alone=True) for one in waiting if one.name in alone]
    nodes: dict[str, list[Child]] = {}
    for one in waiting:
        if one.name not in alone:
            nodes.setdefault(one.node, []).append(one)
    for top, *others in crowds(list(nodes), list(sources), strays, apart):
        heads = [headed(nodes[node]) for node in others]
        inside = nodes.get(top, [])
        if top not in sources:
            first = headed(inside)
            children = (*grown(heads, NODES), *first.children)
            feeds.append(Feed(host=first.name, up=True, children=children))
        elif heads or inside:
            children = (*grown(heads, NODES), *grown(inside))
            feeds.append(Feed(host=sources[top], up=False, children=children))
    return feeds


def headed(hosts: Sequence[Child]) -> Child:
    """The hosts of a node, below its first."""
    first, *others = hosts
    return replace(first, children=grown(others))


def crowds(
    nodes: Sequence[str],
    sources: Sequence[str],
    strays: Container[str],
    apart: Container[Pair],
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


def detours(feed: Feed, *, stray: bool, again: bool) -> dict[str, str]:
    """Who gets it another way than it should, and which."""
    if not feed.up:
        return {one.name: f"from {feed.host}, at another try" for one in feed.below()}
    if feed.alone:
        return {feed.host: "over its own link"}
    if stray:
        return {feed.host: "over its own link: the hosts of other nodes don't reach its node"}
    return {feed.host: "sent once more over its own link"} if again else {}


def node_of(host: Host) -> str:
    """The node of a host: a recreated one is another."""
    return f"{host.zone}/{host.node} {host.incarnation}"
