"""All mistakes of a job file are reported at once, each with its line and a correction."""

import re
from itertools import combinations

import pytest

from tpuherd.jobfile.fields import ALSO, FIELDS
from tpuherd.jobfile.read_job import JobSpec, Mistake, read_fields, read_job

LEAST = {"name": "gpt", "accelerator": "v4-32"}

#: A line of a job file, and the sentence that it earns.
WRONG = {
    "acelerator: v4-8": "acelerator: unknown field: did you mean accelerator?",
    "command: x": "command: unknown field: did you mean run?",
    "xyzzy: 1": "xyzzy: unknown field: docs/reference/job.md lists all fields",
    "runtime: v2-alpha-tpuv5": "runtime: v2-alpha-tpuv5 cannot run on v4-32: use"
    " tpu-ubuntu2204-base, tpu-vm-v4-base, v2-alpha-tpuv4",
    "zones: us-west4-a": "zones: us-west4-a has no v4-32: use us-central2-b",
    "tier: sport": "tier: 'sport' is not allowed: did you mean spot?",
    "tier: ondemand": "tier: 'ondemand' is not allowed: did you mean on-demand?",
    "deadline: soon": "deadline: 'soon' is not a deadline: write 2026-11-27T18:00Z,"
    " 2026-11-27T18:00+01:00, or 48h after its submission",
    "deadline: 2026-11-27T18:00": "deadline: '2026-11-27T18:00' is not a deadline with a time and a"
    " time zone: write 2026-11-27T18:00Z, 2026-11-27T18:00+01:00, or 48h after its submission",
    "deadline: 2026-02-30T18:00Z": "deadline: '2026-02-30T18:00Z' is not a deadline: write"
    " 2026-11-27T18:00Z, 2026-11-27T18:00+01:00, or 48h after its submission",
    "deadline: 5s": "deadline: '5s' is out of range: at least a minute, at most ten years",
    "deadline: 48h": "deadline: needs nodes that are not taken away: write tier: [spot, on-demand],"
    " and max_cost if there is a limit",
    "copies: 0": "copies: 0 is out of range: use 1 to 10000",
    "copies: two": "copies: should be a whole number, not 'two'",
    "slices: true": "slices: should be a whole number, not true",
    "setup: [echo, no]": "setup[1]: should be a command, not false (put it in quotes if you mean"
    " the word)",
    "tier: []": "tier: should be one to 1000 values, not 0",
    "run: []": "run: a list should be a program and its arguments",
    "run:": "run: has no value",
    "env: {HERD_X: 1}": "env.HERD_X: is set by herd",
    "env: {RUN_ID: a/b}": "env.RUN_ID: 'a/b' can't be the name of a folder: use a-z, 0-9, _ and -",
    "env: {1X: 1}": "env.1X: '1X' is not a variable's name",
    "env: {X: }": 'env.X: has no value: write "" for an empty value',
    "env: {X: [1]}": "env.X: should be text, not [1]",
    "env: hello": "env: should map names to values, not 'hello'",
    "secrets: {X: {vault: y}}": "secrets.X.vault: not a known source: use one of env, file,"
    " command",
    "secrets: {X: y}": "secrets.X: write where it comes from: {env: NAME}, {file: PATH} or"
    " {command: TEXT}",
    "secrets: {X: {env: 1}}": "secrets.X.env: should be text, not 1",
    "secrets: [a-b]": "secrets.a-b: 'a-b' is not a variable's name",
    "python: 3.10": "python: write the version in quotes, such as '3.11': YAML reads 3.10 as 3.1",
    "python: '4'": "python: '4' is not a version of Python 3 such as '3.11' or '3.11.9'",
    "python: 3": "python: 3 is not a version of Python 3 such as '3.11' or '3.11.9'",
    "requirements: r.txt": "requirements: is a file of the shipped code: set workdir, such as"
    " workdir: .",
    "requirements: /etc/r.txt": "requirements: '/etc/r.txt' is not a file in the shipped folder,"
    " such as requirements.txt",
    "cluster: ray": "cluster: is started for a command: set run, such as run: python3 train.py",
    "cluster: slurm": "cluster: 'slurm' is not allowed: use one of ray",
    "checkpoint: bucket/x": "checkpoint: 'bucket/x' is not a place such as gs://bucket/path",
    "outputs: [/etc]": "outputs[0]: '/etc' is not a path relative to the command's folder",
    "retry: {failurs: 1}": "retry.failurs: unknown field: did you mean failures?",
    "retry: 3": "retry: should contain failures and preemptions and stalls, not 3",
    "retry: {stalls: -1}": "retry.stalls: -1 is out of range: use 0 to 1000000",
    "stall: 5": "stall: 5 is out of range: at least 10s",
    "stall: soon": "stall: 'soon' is not a duration: write 30s, 90m, 2h or 3d, or never",
    "max_lifetime: 99999d": "max_lifetime: '99999d' is out of range: at most ten years",
    "max_cost: nothing": "max_cost: 'nothing' is not an amount: write 12.50, in dollars",
    "max_cost: 0": "max_cost: 0 is out of range: it must be more than 0",
    "node: {done: burn}": "node.done: 'burn' is not a duration: write 30s, 90m, 2h or 3d, or"
    " delete, or keep",
    "request: queue": "request: 'queue' is not allowed: did you mean queued?",
    "exact: 1": "exact: should be true or false, not 1",
    "node_name: My_TPU": "node_name: 'My_TPU' is not a node's name: a-z, 0-9 and -",
    "node_name: gpt-0-g1-7kq": "node_name: gpt-0-g1-7kq is a name that herd itself gives: choose"
    " another",
    "reservation: r1": "reservation: requires tier: reserved",
    "service_account: me": "service_account: 'me' is not an account's e-mail address",
    "labels: {Team: x}": "labels.Team: 'Team' is not a label's name",
    "data_disks: d": "data_disks: 'd' is not a disk such as projects/P/zones/Z/disks/D",
    "data_disks: projects/p/zones/us-central2-b/disks/d": "data_disks: exists only in"
    " us-central2-b: set zones: us-central2-b",
    "metadata: {ssh-keys: x}": "metadata.ssh-keys: is set by herd",
    "tags: [a, a]": "network.tags: 'a' is listed twice",
}
#: Lines that can stand beside each other.
PAIRS = [
    pair
    for pair in combinations(list(WRONG)[::3], 2)
    if pair[0].partition(":")[0] != pair[1].partition(":")[0]
]
#: Other names, types and zones, each with its sentence.
NAMES = {
    "Gpt": "'Gpt' is not a name: a-z, 0-9 and -, a letter first",
    "gpt-1": "'gpt-1' ends in a number, as slot names do: call it gpt or gptx",
    "a" * 41: f"{'a' * 41!r} is longer than 40 characters; node names are derived from it",
}
TYPES = {
    "v4-33": "unknown type v4-33: did you mean v4-16 or v4-32?",
    "v5e-16": "unknown type v5e-16: did you mean v5litepod-16?",
    "V4-32": "unknown type V4-32: did you mean v4-32?",
    "tpu-v4-32": "unknown type tpu-v4-32: did you mean v4-32?",
    "h100": "unknown type h100: types begin with v2, v3, v4, v5litepod, v5p, v6e, such as v4-32",
    "tpu7x-8": "tpu7x-8 is only offered through Kubernetes, not by the Cloud TPU API",
}
ZONES = {
    "us-central2-c": "us-central2-c has no TPUs: try us-central2-b",
    "us-centrl2-b": "unknown zone us-centrl2-b: did you mean us-central2-b or us-central1-b?",
    "antarctica": "'antarctica' is not a zone such as us-central2-b",
}


def said(found: JobSpec | list[Mistake]) -> list[str]:
    assert isinstance(found, list), found
    return [one.format_line("") for one in found]


def lines(found: JobSpec | list[Mistake]) -> list[tuple[int, str]]:
    assert isinstance(found, list), found
    return [(one.line, one.format_line("f").partition(": ")[2]) for one in found]


@pytest.mark.parametrize("line", WRONG)
def test_each_mistake_is_a_sentence_with_its_line(line: str) -> None:
    assert lines(read_job(f"name: gpt\naccelerator: v4-32\n\n{line}\n")) == [(4, WRONG[line])]


@pytest.mark.parametrize("pair", PAIRS, ids=" ; ".join)
def test_two_mistakes_are_both_reported(pair: tuple[str, str]) -> None:
    found = read_job("name: gpt\naccelerator: v4-32\n" + "\n".join(pair))
    assert lines(found) == [(3, WRONG[pair[0]]), (4, WRONG[pair[1]])]


@pytest.mark.parametrize("name", NAMES)
def test_names(name: str) -> None:
    assert said(read_fields({**LEAST, "name": name})) == [f"name: {NAMES[name]}"]


@pytest.mark.parametrize("type_", TYPES)
def test_types(type_: str) -> None:
    assert said(read_fields({**LEAST, "accelerator": type_})) == [f"accelerator: {TYPES[type_]}"]


@pytest.mark.parametrize("zone", ZONES)
def test_zones(zone: str) -> None:
    assert said(read_fields({**LEAST, "zones": zone})) == [f"zones: {ZONES[zone]}"]


def test_each_of_several_types_needs_one_of_the_zones() -> None:
    types = ["v4-32", "v5litepod-16"]
    assert said(read_fields({"name": "a", "accelerator": types, "zones": "us-central2-b"})) == [
        "accelerator[1]: none of the zones us-central2-b has v5litepod-16"
    ]


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"copies": 2, "slices": 2}, "slices: copies and slices can't be combined"),
        ({"workdir": ".", "repo": "https://e.com/x.git"}, "repo: workdir and repo can't be"),
        ({"slices": 2, "request": "direct"}, "request: slices need a queued resource"),
        ({"env": {"A": "1"}, "secrets": ["A"]}, "secrets.A: is also in env"),
        ({"runtime": "tpu-vm-v4-bass"}, "runtime: unknown runtime tpu-vm-v4-bass: did you"),
    ],
)
def test_fields_that_exclude_each_other(fields: dict[str, object], sentence: str) -> None:
    found = said(read_fields({**LEAST, **fields}))
    assert len(found) == 1
    assert found[0].startswith(sentence)


def test_missing_fields() -> None:
    assert said(read_fields({})) == [
        "name is missing: write name: gpt",
        "accelerator is missing: write accelerator: v4-32",
    ]


@pytest.mark.parametrize("name", LEAST)
def test_a_misspelled_field_is_one_mistake_and_not_also_missing(name: str) -> None:
    """Each letter of it left away, and what other tools call it."""
    worse = {name[:at] + name[at + 1 :] for at in range(len(name))}
    for wrong in sorted(worse | {word for word, ours in ALSO.items() if ours == name}):
        fields = {wrong if field == name else field: value for field, value in LEAST.items()}
        assert said(read_fields(fields)) == [f"{wrong}: unknown field: did you mean {name}?"]


@pytest.mark.parametrize(
    ("text", "line", "sentence"),
    [
        ("", 1, "a job file maps fields"),
        ("- a", 1, "a job file maps fields"),
        ("a: [", 1, "not valid YAML"),
        ("a: b\n\tc: d", 2, "not valid YAML"),
        ("a: &a [*a]", 1, "a value contains itself"),
        ("a: 1\n---\nb: 2", 2, "not valid YAML"),
        ("? [a]\n: b", 1, "a field name must be text"),
        ("name: gpt\naccelerator: v4-8\nname: gpx", 3, "is set twice"),
        ("x" * 1_000_001, 1, "the file is larger than 1 MB"),
        (
            "a: &a [1,2,3,4,5,6,7,8,9,0]\n"
            + "\n".join(
                f"{b}: &{b} [{', '.join([f'*{a}'] * 10)}]"
                for a, b in zip("abcdef", "bcdefg", strict=True)
            ),
            1,
            "the file has more than 20000 values",
        ),
        ("a: \x00", 1, "not valid YAML"),
    ],
    ids=range(11),
)
def test_texts_that_are_no_job(text: str, line: int, sentence: str) -> None:
    found = read_job(text)
    assert isinstance(found, list)
    assert found[0].line == line
    assert sentence in found[0].sentence
    assert len(found) == 1


def test_field_names_of_other_tools_suggest_ours() -> None:
    for word, ours in ALSO.items():
        assert ours in FIELDS
        assert said(read_fields({**LEAST, word: "x"})) == [
            f"{word}: unknown field: did you mean {ours}?"
        ]


def test_every_field_refuses_invalid_values() -> None:
    for name in FIELDS:
        for value in ({"a": {"b": object()}}, [[["x"]]], object(), None):
            found = read_fields({**LEAST, name: value})
            assert isinstance(found, list), (name, value)
            assert re.match(rf"{name}\b", found[0].field), (name, value, found)
