"""Parses targets such as `gpt`, `gpt-[0-3]` or `gpt/w0`, and folds many names into one."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from tpuherd.near_names import near_names

MANY = 65_536  #: names in one target
BRACKET = re.compile(r"\[([^\[\]]*)\]")
RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
CODE_ROOT = "herd"  #: relative to the login's home
NAME = re.compile(r"[A-Za-z0-9_.~+%-]+")
WORKER = re.compile(r"w([0-9]{1,9})")
NO_WORDS: Mapping[str, str] = {}
LISTED_MAX = 60  #: characters of a list of nodes in a sentence
MANY_NODES = "no node has a similar name"
#: `<slot>-g<generation>-<owner>`, with `-<i>` for each node of a multislice run. Strict, as anybody
#: may write such a name into the metadata of a node.
OURS = re.compile(
    r"(?P<slot>[a-z][a-z0-9-]{0,99}-[0-9]{1,9})-g(?P<generation>[0-9]{1,9})-(?P<owner>[a-z0-9]{1,40})"
    r"(?:-(?P<part>[0-9]{1,9}))?"
)
DIGITS = re.compile(r"([0-9]{1,9})")  #: longer ones are treated as text


NumberBox = tuple[frozenset[str], ...]  #: for each position in a name, its numbers


#: A host in short, such as gpt-0/w3, and no path.
HOST_NAME = re.compile(r"[^./][^/]*/w[0-9]+")


def is_path(word: str) -> bool:
    """Whether a word names a file, if it may be one or a job, slot or host."""
    return ("/" in word and HOST_NAME.fullmatch(word) is None) or word in (".", "..")


class BadTarget(ValueError):
    """A target that can't be parsed, described in one sentence."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BidName:
    """The parts of a node's name."""

    slot: str  #: gpt-0
    generation: int
    owner: str
    part: int | None = None  #: which node of a multislice run

    @property
    def job(self) -> str:
        """gpt"""
        return self.slot.rpartition("-")[0]

    @property
    def code_folder(self) -> str:
        """Where the job's code is on its hosts, relative to the login's home."""
        return f"{CODE_ROOT}/{self.job}"

    @property
    def title(self) -> str:
        """The name for users: gpt-0, or gpt-0.1 for the second node of a multislice run."""
        return self.slot if self.part is None else f"{self.slot}.{self.part}"


@dataclass(frozen=True, kw_only=True, slots=True)
class TargetName:
    """One name of a target, with brackets expanded."""

    name: str  #: a node, a slot or a job
    zone: str | None = None
    worker: int | None = None  #: None: all


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownNode:
    name: str
    zone: str
    workers: int
    state: str = "READY"  #: as the cloud calls it
    foreign: bool = False  #: another owner's node: only its full name selects it
    bid: str = ""  #: the bid of a node whose own name does not tell it

    @property
    def bid_name(self) -> BidName | None:
        """The parts of its bid's name; None if it is not one of herd's."""
        return split_bid_name(self.bid or self.name)

    @property
    def title(self) -> str:
        """The name for users."""
        return self.name if self.foreign else node_title(self.name)


@dataclass(frozen=True, kw_only=True, slots=True)
class ChosenWorkers:
    """The workers that a target selects."""

    workers: tuple[tuple[KnownNode, int], ...]  #: in the target's order, without duplicates
    missing: tuple[str, ...]  #: a sentence for each name that selects nothing


def split_bid_name(node: str) -> BidName | None:
    """Parse a node's name; None if it is not one of herd's."""
    found = OURS.fullmatch(node)
    if found is None:
        return None
    part = found["part"]
    return BidName(
        slot=found["slot"],
        generation=int(found["generation"]),
        owner=found["owner"],
        part=None if part is None else int(part),
    )


def find_bid_name(node: str, request: str) -> str:
    """Return the bid of a node: the request that created it, else its own name; "" if that is not
    exactly a bid's."""
    name = request or node
    found = split_bid_name(name)
    exact = found and name == f"{found.slot}-g{found.generation}-{found.owner}"
    return name if exact else ""


def node_title(node: str) -> str:
    """Return the slot of a node's name, or else the name."""
    slot = split_bid_name(node)
    return slot.title if slot else node


def is_foreign(node: str, owners: Collection[str]) -> bool:
    """Whether a node's name has the mark of a herd owner other than these."""
    slot = split_bid_name(node)
    return slot is not None and slot.owner not in owners


def worker_labels(
    workers: Sequence[tuple[str, str, int]], foreign: Collection[str] = frozenset()
) -> list[str]:
    """Label (zone, node, worker) by slot, node or zone: the shortest form that is unique.

    `foreign` nodes keep their full names, because slots are the user's own.
    """
    names = [
        [f"{node if node in foreign else node_title(node)}/w{at}" for _, node, at in workers],
        [f"{node}/w{worker}" for _, node, worker in workers],
        [f"{zone}/{node}/w{worker}" for zone, node, worker in workers],
    ]
    shared = [{name for name, many in Counter(way).items() if many > 1} for way in names[:2]]
    return [
        short if short not in shared[0] else node if node not in shared[1] else full
        for short, node, full in zip(*names, strict=True)
    ]


def parse_target_names(text: str) -> tuple[TargetName, ...]:
    """Parse `gpt-[0-3]/w0,other` into names, in order, without duplicates."""
    found: dict[TargetName, None] = {}
    for item in split_items(text):
        for plain in expand_brackets(item, text):
            found[parse_name(plain, text)] = None
    return tuple(found)


def split_items(text: str) -> list[str]:
    """Split at the commas outside brackets."""
    parts = [part.strip() for part in re.split(r",(?![^\[]*\])", text)]
    if not all(parts):
        raise BadTarget(
            f"{text!r} is not a target: a name is missing; write gpt, gpt-[0-3] or gpt/w0"
        )
    return parts


def expand_brackets(item: str, text: str) -> Iterator[str]:
    """Yield every name that an item stands for."""
    pieces = BRACKET.split(item)
    if any("[" in plain or "]" in plain for plain in pieces[::2]):
        raise BadTarget(f"{text!r} is not a target: a bracket is not closed; write gpt-[0-3]")
    choices = [
        expand_numbers(piece, text) if index % 2 else [piece] for index, piece in enumerate(pieces)
    ]
    count = 1
    for choice in choices:
        count *= len(choice)
    if count > MANY:
        raise BadTarget(f"{text!r} stands for {count} names; the limit is {MANY}")
    return ("".join(words) for words in product(*choices))


def expand_numbers(inside: str, text: str) -> list[str]:
    """Expand `0,2-5` into numbers, keeping leading zeros."""
    found: list[str] = []
    for part in inside.split(","):
        match = RANGE.fullmatch(part.strip())
        if match is None:
            raise BadTarget(f"{text!r} is not a target: [{inside}] should be like [0-3] or [0,2-5]")
        first, last = match[1], match[2] or match[1]
        if int(last) < int(first):
            raise BadTarget(f"{text!r} is not a target: {first}-{last} is in reverse order")
        if int(last) - int(first) >= MANY:
            raise BadTarget(f"{text!r} stands for too many names; the limit is {MANY}")
        width = len(first) if is_padded(first) else 0
        found += [f"{number:0{width}d}" for number in range(int(first), int(last) + 1)]
    return found


def parse_name(plain: str, text: str) -> TargetName:
    """Parse zone/node/w0, node/w0, zone/node or node."""
    parts = plain.split("/")
    worker = None
    if len(parts) > 1 and (match := WORKER.fullmatch(parts[-1])):
        worker = int(match[1])
        parts.pop()
    if len(parts) > 2 or not all(NAME.fullmatch(part) for part in parts):
        raise BadTarget(
            f"{text!r} is not a target: write NODE, NODE/w0 or ZONE/NODE/w[0-3], not {plain!r}"
        )
    return TargetName(name=parts[-1], zone=parts[0] if len(parts) == 2 else None, worker=worker)


def choose_workers(
    wanted: Sequence[TargetName], there: Iterable[KnownNode], without: Mapping[str, str] = NO_WORDS
) -> ChosenWorkers:
    """Return the selected workers, and a sentence for each name that selects nothing.

    `without` has the sentences for jobs and slots that have no node ({} stands for the name).
    """
    nodes = sorted(there, key=lambda node: (natural_key(node.name), node.zone))
    by_name = index_nodes(nodes)
    chosen: dict[tuple[KnownNode, int], None] = {}
    missing: dict[str, list[str]] = {}  #: names by their sentence
    for one in wanted:
        found = [
            node for node in by_name.get(one.name, ()) if one.zone is None or one.zone == node.zone
        ]
        if not found:
            says = without.get(one.name) or missing_name_message(one, nodes, by_name)
            missing.setdefault(says, []).append(one.name)
        for node in found:
            workers = range(node.workers) if one.worker is None else (one.worker,)
            chosen.update(((node, at), None) for at in workers if at < node.workers)
            if not node.workers:
                says = f"{{}} has no hosts yet: it is {node.state}"
                missing.setdefault(says, []).append(node.title)
            elif workers and workers[-1] >= node.workers:
                there_is = fold_names(f"w{at}" for at in range(node.workers))
                says = f"{{}} has no worker {one.worker}: it has {there_is}"
                missing.setdefault(says, []).append(one.name)
    sentences = tuple(says.replace("{}", fold_names(names)) for says, names in missing.items())
    return ChosenWorkers(workers=tuple(chosen), missing=sentences)


def index_nodes(nodes: Sequence[KnownNode]) -> Mapping[str, list[KnownNode]]:
    """Index nodes by slot, else by job, else by name.

    Slots and jobs are the user's own: another owner's nodes are found by full name only, and a
    node that anybody named like a slot or job does not take its place.
    """
    named: dict[str, list[KnownNode]] = {}
    bids: dict[tuple[str, str, int | str | None], list[KnownNode]] = {}
    for node in nodes:
        named.setdefault(node.name, []).append(node)
        slot = node.bid_name
        if slot is not None and not node.foreign:
            part = node.name if node.bid else slot.part
            bids.setdefault((slot.slot, slot.owner, part), []).append(node)
    slots: dict[str, list[KnownNode]] = {}
    jobs: dict[str, list[KnownNode]] = {}
    for (name, _, _), rivals in bids.items():
        node = min(rivals, key=lambda one: (one.state != "READY", node_generation(one)))
        slots.setdefault(name, []).append(node)
        jobs.setdefault(name.rpartition("-")[0], []).append(node)
    return {**named, **jobs, **slots}


def node_generation(node: KnownNode) -> int:
    slot = node.bid_name
    return slot.generation if slot else 0


def missing_name_message(
    one: TargetName, nodes: Sequence[KnownNode], known: Mapping[str, list[KnownNode]]
) -> str:
    """Return the sentence for an unknown name ({}), with similar names."""
    elsewhere = sorted({node.zone for node in known.get(one.name, ())})
    if one.zone is not None and elsewhere:
        return f"there is no {{}} in {one.zone}: it is in {', '.join(elsewhere)}"
    theirs = [node.name for node in nodes if node.foreign and one.name in slot_and_job(node)]
    if theirs:
        whose = "belongs" if len(theirs) == 1 else "belong"
        return f"you have no {{}}: {fold_names(theirs)} {whose} to another herd user"
    near = near_names(one.name, known)
    slots = [name for name in known if name.startswith(f"{one.name}-") and name not in near]
    foreign = {node.name for node in nodes if node.foreign}
    titles = {name if name in foreign else node_title(name) for name in [*near, *slots]}
    titles -= {name for name in titles if name.rpartition("-")[0] in titles}
    if titles:
        return f"there is no {{}}: did you mean {fold_names(titles)}?"
    if not nodes:
        return "there is no {}: no nodes exist"
    there = fold_names(node.title for node in nodes)
    return (
        f"there is no {{}}: {f'the nodes are {there}' if len(there) <= LISTED_MAX else MANY_NODES}"
    )


def slot_and_job(node: KnownNode) -> tuple[str, ...]:
    """Return the slot and the job of a node."""
    slot = node.bid_name
    return () if slot is None else (slot.slot, slot.job)


def natural_key(name: str) -> tuple[tuple[str, int], ...]:
    """Sort key that puts gpt-10 after gpt-9."""
    words = DIGITS.split(name)
    return tuple(("", int(word)) if at % 2 else (word, 0) for at, word in enumerate(words))


def fold_names(names: Iterable[str]) -> str:
    """Return the shortest bracket form: gpt-0/w0, gpt-0/w1, gpt-1/w0, gpt-1/w1 →
    gpt-[0-1]/w[0-1].
    """
    plain = sorted(set(names), key=natural_key)
    if len(plain) < 2:
        return "".join(plain)
    groups: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for name in plain:
        words = DIGITS.split(name)
        groups.setdefault(tuple(words[::2]), []).append(tuple(words[1::2]))
    return ",".join(text for between, rows in groups.items() for text in fold_rows(between, rows))


def fold_rows(between: Sequence[str], rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Fold names that differ in numbers only, in whichever order gives the shorter result."""
    depth = len(rows[0])
    if depth == 0:
        return ["".join(between)]
    orders = [range(depth), range(depth - 1, -1, -1)]
    forms = [[format_box(between, row) for row in merge_rows(rows, order)] for order in orders]
    return min(forms, key=lambda form: sum(map(len, form)))


def merge_rows(rows: Sequence[tuple[str, ...]], order: Iterable[int]) -> list[NumberBox]:
    """Merge rows into products of number sets, one position after another."""
    boxes: list[NumberBox] = [tuple(frozenset((word,)) for word in row) for row in rows]
    for place in order:
        beside: dict[NumberBox, set[str]] = {}
        for box in boxes:
            beside.setdefault((*box[:place], *box[place + 1 :]), set()).update(box[place])
        boxes = [(*rest[:place], frozenset(words), *rest[place:]) for rest, words in beside.items()]
    return boxes


def format_box(between: Sequence[str], box: NumberBox) -> str:
    """Format a product of number sets, with brackets around several numbers."""
    text = [between[0]]
    for words, after in zip(box, between[1:], strict=True):
        text += [next(iter(words)) if len(words) == 1 else f"[{format_ranges(words)}]", after]
    return "".join(text)


def format_ranges(words: Iterable[str]) -> str:
    """0, 1, 2, 5 → 0-2,5. Zero-padded numbers are grouped by width."""
    runs: list[tuple[str, str]] = []
    for word in sorted(words, key=lambda word: (len(word) if is_padded(word) else 0, int(word))):
        if runs and can_follow(runs[-1][1], word):
            runs[-1] = (runs[-1][0], word)
        else:
            runs.append((word, word))
    return ",".join(first if first == last else f"{first}-{last}" for first, last in runs)


def can_follow(last: str, word: str) -> bool:
    """Whether a range may continue with this number and still be parsed back correctly."""
    return int(word) == int(last) + 1 and (not is_padded(last) or len(last) == len(word))


def is_padded(word: str) -> bool:
    """007"""
    return word[0] == "0" and len(word) > 1
