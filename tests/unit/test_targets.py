"""What users may write for hosts means what it should, and the short form means the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpuherd import targets
from tpuherd.jobs.job_queries import AWAITED, DONE
from tpuherd.near_names import near_names
from tpuherd.targets import (
    BadTarget,
    ChosenWorkers,
    KnownNode,
    TargetName,
    choose_workers,
    fold_names,
    parse_target_names,
    worker_labels,
)


def node(
    name: str,
    zone: str = "us-central2-b",
    workers: int = 4,
    state: str = "READY",
    foreign: bool = False,
) -> KnownNode:
    return KnownNode(name=name, zone=zone, workers=workers, state=state, foreign=foreign)


NODES = [
    node("gpt-0-g4-7kq"),
    node("gpt-1-g2-7kq"),
    node("gpt-10-g1-7kq"),
    node("gpt2", workers=1),
    node("pod", workers=2),
    node("pod", zone="europe-west4-a", workers=2),
]


def names(chosen: ChosenWorkers) -> str:
    return fold_names(f"{there.name}/w{worker}" for there, worker in chosen.workers)


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("gpt", "gpt"),
        ("gpt-[0-3]", "gpt-0 gpt-1 gpt-2 gpt-3"),
        ("gpt-[0,2-3]/w[0-1]", "gpt-0/w0 gpt-0/w1 gpt-2/w0 gpt-2/w1 gpt-3/w0 gpt-3/w1"),
        ("gpt/w0, pod", "gpt/w0 pod"),
        ("gpt,gpt", "gpt"),
        ("us-central2-b/pod", "us-central2-b/pod"),
        ("us-central2-b/pod/w1", "us-central2-b/pod/w1"),
        ("n[08-11]", "n08 n09 n10 n11"),
        ("n[0-1]x[0-1]", "n0x0 n0x1 n1x0 n1x1"),
        ("w0", "w0"),
    ],
)
def test_what_each_target_means(text: str, means: str) -> None:
    plain = [
        "/".join([*([one.zone] if one.zone else []), one.name])
        + (f"/w{one.worker}" if one.worker is not None else "")
        for one in parse_target_names(text)
    ]
    assert plain == means.split()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "a name is missing"),
        ("gpt,", "a name is missing"),
        ("gpt-[0-3", "a bracket is not closed"),
        ("gpt-0]", "a bracket is not closed"),
        ("gpt-[]", "should be like [0-3]"),
        ("gpt-[a-b]", "should be like [0-3]"),
        ("gpt-[3-0]", "is in reverse order"),
        ("gpt-[0-999999]", "the limit is"),
        ("gpt-[0-999]/w[0-999]", "1000000 names"),
        ("a/b/c", "not 'a/b/c'"),
        ("a//w0", "not 'a//w0'"),
        ("my pod", "not 'my pod'"),
        ("gpt/worker0/w1/w2", "write NODE"),
        ("gpt-[²]", "should be like"),
    ],
)
def test_invalid_targets(text: str, says: str) -> None:
    with pytest.raises(BadTarget, match=r".") as caught:
        parse_target_names(text)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("gpt", "gpt-0-g4-7kq/w[0-3],gpt-1-g2-7kq/w[0-3],gpt-10-g1-7kq/w[0-3]"),
        ("gpt/w0", "gpt-0-g4-7kq/w0,gpt-1-g2-7kq/w0,gpt-10-g1-7kq/w0"),
        ("gpt-1", "gpt-1-g2-7kq/w[0-3]"),
        ("gpt-[0-1]/w[2-3]", "gpt-0-g4-7kq/w[2-3],gpt-1-g2-7kq/w[2-3]"),
        ("gpt2", "gpt2/w0"),
        ("gpt-0-g4-7kq/w0", "gpt-0-g4-7kq/w0"),
        ("europe-west4-a/pod", "pod/w[0-1]"),
    ],
)
def test_which_hosts_a_target_selects(text: str, means: str) -> None:
    chosen = choose_workers(parse_target_names(text), NODES)
    assert chosen.missing == ()
    assert names(chosen) == means


def test_the_order_of_the_target_is_kept_and_each_host_appears_once() -> None:
    chosen = choose_workers(parse_target_names("gpt-1/w1,gpt-1,gpt-0/w0"), NODES)
    assert [worker for _, worker in chosen.workers] == [1, 0, 2, 3, 0]


def test_a_name_in_two_zones_means_both() -> None:
    zones = [there.zone for there, _ in choose_workers(parse_target_names("pod/w0"), NODES).workers]
    assert zones == ["europe-west4-a", "us-central2-b"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("pdo", "there is no pdo: did you mean pod?"),
        ("gptt", "there is no gptt: did you mean gpt,gpt2?"),
        ("xyzzy", "there is no xyzzy: the nodes are gpt2,gpt-[0-1,10],pod"),
        ("pod/w7", "pod has no worker 7: it has w[0-1]"),
        ("us-east5-a/pod", "there is no pod in us-east5-a: it is in europe-west4-a, us-central2-b"),
    ],
)
def test_near_misses(text: str, says: str) -> None:
    assert choose_workers(parse_target_names(text), NODES).missing[0] == says


def test_empty_and_not_yet_existing_targets() -> None:
    assert choose_workers(parse_target_names("pod"), []).missing == (
        "there is no pod: no nodes exist",
    )
    young = node("gpt-0-g1-7kq", workers=0, state="CREATING")
    assert choose_workers(parse_target_names("gpt"), [young]).missing == (
        "gpt-0 has no hosts yet: it is CREATING",
    )


def test_of_two_bids_of_a_slot_the_running_one_is_selected() -> None:
    rivals = [
        node("gpt-0-g3-7kq", state="PREEMPTED"),
        node("gpt-0-g5-7kq"),
        node("gpt-0-g6-7kq"),
    ]
    assert names(choose_workers(parse_target_names("gpt-0/w0"), rivals)) == "gpt-0-g5-7kq/w0"


def test_a_node_with_a_name_of_its_own_is_meant_by_job_slot_and_name() -> None:
    there = [
        KnownNode(name="my-tpu-1", zone="z", workers=2, bid="lev-0-g3-7kq"),
        KnownNode(name="theirs", zone="z", workers=1, bid="lev-0-g1-abc", foreign=True),
    ]
    for text in ("lev", "lev-0", "my-tpu-1"):
        assert names(choose_workers(parse_target_names(text), there)) == "my-tpu-1/w[0-1]"
    assert names(choose_workers(parse_target_names("theirs"), there)) == "theirs/w0"
    slices = [
        KnownNode(name=f"big-{part}", zone="z", workers=1, bid="ms-0-g1-7kq") for part in (0, 1)
    ]
    assert names(choose_workers(parse_target_names("ms"), slices)) == "big-[0-1]/w0"


@pytest.mark.parametrize("name", ["gpt", "gpt-0"])
def test_a_node_that_anybody_named_like_a_job_or_slot_does_not_take_its_place(name: str) -> None:
    planted = node(name, workers=1)
    assert names(
        choose_workers(parse_target_names(f"{name}/w0"), [node("gpt-0-g4-7kq"), planted])
    ) == ("gpt-0-g4-7kq/w0")
    assert names(choose_workers(parse_target_names(name), [planted])) == f"{name}/w0"


def test_all_nodes_of_a_multislice_run_are_selected() -> None:
    slices = [node("ms-0-g1-7kq-0", workers=1), node("ms-0-g1-7kq-1", workers=1)]
    assert names(choose_workers(parse_target_names("ms"), slices)) == "ms-0-g1-7kq-[0-1]/w0"
    assert targets.node_title("ms-0-g1-7kq-1") == "ms-0.1"


@pytest.mark.parametrize(
    ("given_", "short"),
    [
        ("gpt-0/w0 gpt-0/w1 gpt-1/w0 gpt-1/w1", "gpt-[0-1]/w[0-1]"),
        ("gpt-0/w0 gpt-0/w1 gpt-1/w0", "gpt-[0-1]/w0,gpt-0/w1"),
        ("a b-2 b-1 b-10 b-9", "a,b-[1-2,9-10]"),
        ("x-01 x-02 x-1", "x-[1,01-02]"),
        ("x-09 x-10", "x-[10,09]"),
        ("v4-pod-1 v4-pod-2", "v4-pod-[1-2]"),
        ("only", "only"),
        ("", ""),
    ],
)
def test_the_short_form(given_: str, short: str) -> None:
    assert fold_names(given_.split()) == short


NAME = st.from_regex(r"[a-z][a-z0-9-]{0,6}(/w(0|[1-9][0-9]?))?", fullmatch=True)


@given(st.lists(NAME, min_size=1, max_size=30))
def test_the_short_form_means_the_same(given_: list[str]) -> None:
    short = fold_names(given_)
    assert len(targets.split_items(short)) <= len(set(given_))
    workers = {(one.name, one.worker) for one in parse_target_names(short)}
    names = {name if worker is None else f"{name}/w{worker}" for name, worker in workers}
    assert names == set(given_)


@given(st.sets(st.tuples(st.integers(0, 12), st.integers(0, 40)), min_size=1))
def test_slots_and_workers_are_shortened(pairs: set[tuple[int, int]]) -> None:
    plain = {f"gpt-{slot}/w{worker}" for slot, worker in pairs}
    assert {f"{one.name}/w{one.worker}" for one in parse_target_names(fold_names(plain))} == plain


@given(st.text(max_size=12))
def test_any_text_is_a_target_or_an_error(text: str) -> None:
    try:
        assert all(isinstance(one, TargetName) for one in parse_target_names(text))
    except BadTarget as error:
        assert len(str(error)) > 10


def test_hosts_are_named_by_their_shortest_unique_name() -> None:
    assert worker_labels([("z", "gpt-0-g1-abc", 0), ("z", "pod", 0), ("y", "pod", 0)]) == [
        "gpt-0/w0",
        "z/pod/w0",
        "y/pod/w0",
    ]
    assert worker_labels([("z", "gpt-0-g1-abc", 0), ("z", "gpt-0-g1-xyz", 0)]) == [
        "gpt-0-g1-abc/w0",
        "gpt-0-g1-xyz/w0",
    ]


@pytest.mark.parametrize(
    ("word", "near"),
    [
        ("gpt-9", ["gpt-0", "gpt-1"]),
        ("tpg", []),
        ("gtp", ["gpt"]),
        ("Resnet", ["resnet50"]),
        ("restnet5", ["resnet50"]),
        ("res", ["resnet50"]),
        ("re", []),
        ("pretrain", []),
        ("train", ["brain"]),
        ("strange", []),
    ],
)
def test_only_near_names_are_suggested(word: str, near: list[str]) -> None:
    known = ["gpt", "gpt-0", "gpt-1", "resnet50", "brain"]
    assert [one for one in near_names(word, known) if word != "gpt-9" or one != "gpt"] == near


def test_many_nodes_are_not_all_listed() -> None:
    many = [node(f"{name}x", workers=1) for name in ("alpha", "beta", "gamma") for _ in range(1)]
    many += [node(f"{'abcdefghij'[at % 10]}{at}z", workers=1) for at in range(250)]
    said = choose_workers(parse_target_names("pretrain"), many).missing
    assert said == ("there is no pretrain: no node has a similar name",)


def test_an_awaited_node_is_not_unknown() -> None:
    without = {
        "late-0": AWAITED, "late-1": AWAITED, "over": DONE, "gpt-0": "never said",
    }  # fmt: skip
    found = choose_workers(parse_target_names("gpt-0,over,late-[0-2],lost-[0-1]"), NODES, without)
    assert found.missing == (
        DONE.replace("{}", "over"),
        "late-[0-1] has no node yet: `herd why` shows what it waits for",
        "there is no late-2,lost-[0-1]: the nodes are gpt2,gpt-[0-1,10],pod",
    )


def test_jobs_and_slots_are_the_users_own_and_full_names_reach_all_nodes() -> None:
    there = [
        node("gpt-0-g1-7kq", workers=1),
        node("gpt-0-g1-abc", workers=1, foreign=True),
        node("bert-0-g2-abc", workers=1, foreign=True),
    ]
    assert names(choose_workers(parse_target_names("gpt"), there)) == "gpt-0-g1-7kq/w0"
    assert names(choose_workers(parse_target_names("gpt-0"), there)) == "gpt-0-g1-7kq/w0"
    assert names(choose_workers(parse_target_names("gpt-0-g1-abc"), there)) == "gpt-0-g1-abc/w0"
    assert choose_workers(parse_target_names("bert,bert-0,brt"), there).missing == (
        "you have no bert,bert-0: bert-0-g2-abc belongs to another herd user",
        "there is no brt: the nodes are bert-0-g2-abc,gpt-0,gpt-0-g1-abc",
    )


@pytest.mark.parametrize(
    ("name", "foreign"),
    [("gpt-0-g1-7kq", False), ("gpt-0-g1-abc", True), ("pod", False), ("gpt-0", False)],
)
def test_a_node_with_another_owners_id_is_foreign(name: str, foreign: bool) -> None:
    assert targets.is_foreign(name, {"7kq"}) is foreign


def test_a_foreign_node_is_called_by_its_full_name() -> None:
    rows = [("z", "gpt-0-g1-7kq", 0), ("z", "gpt-0-g1-abc", 1)]
    assert worker_labels(rows, {"gpt-0-g1-abc"}) == ["gpt-0/w0", "gpt-0-g1-abc/w1"]
