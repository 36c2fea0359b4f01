"""Which host receives a snapshot from which: properties for any nodes and any knowledge of them."""

import itertools
import random

import pytest

from tpuherd.sync.relay_tree import (
    FANOUT,
    NODES,
    NodePair,
    RelayHost,
    RelayTree,
    build_tree,
    plan_relays,
)


def hosts(node: str, many: int) -> list[RelayHost]:
    return [
        RelayHost(name=f"{node}/w{n}", address="", port=n, token=f"{node}{n}", node=node)
        for n in range(many)
    ]


def edges(feed: RelayTree, node: str) -> list[tuple[str, str, RelayHost]]:
    """From which host of which node to whom."""
    found: list[tuple[str, str, RelayHost]] = []
    todo = [(feed.host, node, child) for child in feed.children]
    while todo:
        found.append(todo[-1])
        _, _, child = todo.pop()
        todo.extend((child.name, child.node, below) for below in child.children)
    return found


@pytest.mark.parametrize("many", [0, 1, 2, 5, 23, 256])
def test_a_tree_has_all_hosts_is_narrow_and_shallow(many: int) -> None:
    def depth(child: RelayHost) -> int:
        return 1 + max(map(depth, child.children), default=0)

    trees = build_tree(hosts("a", many))
    assert sorted(one.port for tree in trees for one in tree.iter_subtree()) == list(range(many))
    assert all(len(one.children) <= FANOUT for tree in trees for one in tree.iter_subtree())
    assert max(map(depth, trees), default=0) <= 4  # 4 + 16 + 64 + 256


@pytest.mark.parametrize("seed", range(60))
def test_relay_tree_properties(seed: int) -> None:
    dice = random.Random(seed)
    names = [f"n{n}" for n in range(dice.randrange(1, 20))]
    pods = {name: hosts(name, dice.randrange(1, 9)) for name in names}
    sources = {name: f"{name}/w0" for name in names if dice.random() < 0.3}
    waiting = [
        one
        for name in names
        for one in pods[name]
        if one.name not in sources.values() and dice.random() < 0.8
    ]
    alone = {one.name for one in waiting if dice.random() < 0.1}
    unreachable = {name for name in names if dice.random() < 0.2}
    apart: set[NodePair] = {
        frozenset(two) for two in itertools.combinations(names, 2) if dice.random() < 0.2
    }
    feeds = plan_relays(waiting, sources, alone=alone, unreachable=unreachable, apart=apart)
    nodes = {one.name: one.node for pod in pods.values() for one in pod}
    ups = [feed for feed in feeds if feed.up and not feed.alone]

    filled = [one.name for feed in feeds for one in feed.iter_descendants()]
    filled += [feed.host for feed in feeds if feed.up]
    assert sorted(filled) == sorted(one.name for one in waiting), "each gets it once"
    assert {feed.host for feed in feeds if feed.alone} == alone
    assert all(not feed.children for feed in feeds if feed.alone)
    assert {feed.host for feed in feeds if not feed.up} <= set(sources.values())

    entered = [nodes[feed.host] for feed in ups]
    for feed in feeds:
        for parent, node, child in edges(feed, nodes[feed.host]):
            if child.node == node:
                continue
            entered.append(child.node)
            assert frozenset((node, child.node)) not in apart, f"{parent} can't reach {child.name}"
            assert child.node not in unreachable
    assert len(entered) == len(set(entered)), "each node is entered once"
    assert not set(entered) & set(sources), "and not at all where a host has it"
    for one, other in itertools.combinations(ups, 2):
        two = {nodes[one.host], nodes[other.host]}
        assert two & unreachable or apart, "one stream up where all meet"


def test_one_upload_if_all_nodes_are_connected_and_one_per_node_if_not() -> None:
    names = [f"n{n}" for n in range(16)]
    waiting = [one for name in names for one in hosts(name, 4)]
    (feed,) = plan_relays(waiting, {})
    assert (feed.host, feed.up) == ("n0/w0", True)
    assert len(feed.children) == NODES + 3
    assert {child.node for child in feed.children[NODES:]} == {"n0"}
    apart = {frozenset(two) for two in itertools.combinations(names, 2)}
    feeds = plan_relays(waiting, {}, apart=apart)
    assert [feed.host for feed in feeds] == [f"{name}/w0" for name in names]
    assert all(len(list(feed.iter_descendants())) == 3 for feed in feeds)
    assert feeds == plan_relays(waiting, {}, unreachable=names)


def test_a_node_is_filled_by_its_own_ready_host() -> None:
    waiting = [*hosts("a", 4)[1:], *hosts("b", 4)[2:], *hosts("c", 2)]
    feeds = plan_relays(waiting, {"a": "a/w0", "b": "b/w1"}, apart={frozenset("ac")})
    assert [(feed.host, feed.up) for feed in feeds] == [("a/w0", False), ("b/w1", False)]
    assert {one.name for one in feeds[0].iter_descendants()} == {"a/w1", "a/w2", "a/w3"}
    assert {one.name for one in feeds[1].iter_descendants()} == {"b/w2", "b/w3", "c/w0", "c/w1"}
