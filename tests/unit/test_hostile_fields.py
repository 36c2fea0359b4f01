"""Hostile words in every place of every job field: refused in a sentence, or kept and harmless.

The places come from the table of fields, by its examples: a new field is covered by itself.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.hostile_words import WORDS
from tests.unit.test_printable import acts
from tpuherd.jobfile.fields import FIELDS
from tpuherd.jobfile.job_diff import diff_documents
from tpuherd.jobfile.read_job import JobSpec, job_document, read_fields, read_job
from tpuherd.jobs.secret_values import SecretMissing, decode_secret
from tpuherd.model.slots_and_plan import Goal, HistoryEvent
from tpuherd.model.stored_job import StoredJob
from tpuherd.store.database import Database
from tpuherd.views.printable import json_text, show_lines

SENTENCE_MAX = 1000
LEAST = {"name": "gpt", "accelerator": "v4-32"}
#: What else a field needs.
BESIDE: dict[str, dict[str, Any]] = {
    "requirements": {"workdir": "."}, "reservation": {"tier": "reserved"},
    "data_disks": {"zones": "us-central2-b"}, "sweep": {"run": "true"},
}  # fmt: skip
#: These are never texts that a program or a file could take.
NEVER = ("nul", "half", "bytes")


def hostile_values(value: Any, word: str) -> Iterator[Any]:
    """The value with the word at each place: as a whole, as a part, as a name, as an item."""
    if isinstance(value, dict):
        for name, below in value.items():
            rest = {one: it for one, it in value.items() if one != name}
            yield from ({**value, name: odd} for odd in hostile_values(below, word))
            yield {**rest, word: below}
    elif isinstance(value, list):
        for at, below in enumerate(value):
            yield from ([*value[:at], odd, *value[at + 1 :]] for odd in hostile_values(below, word))
    else:
        yield word
        yield f"{value}{word}"
        yield [value, word]
        yield {word: value}


def read_hostile(field: str, value: Any) -> JobSpec | None:
    """The job; None where it is refused, as it should be."""
    found = read_fields({**LEAST, **BESIDE.get(field, {}), field: value})
    if isinstance(found, JobSpec):
        return found
    for mistake in found:
        line = mistake.format_line("job.yaml")
        assert len(mistake.sentence) <= SENTENCE_MAX, line[:SENTENCE_MAX]
        assert not acts(show_lines(line))
        assert "\n" not in mistake.sentence, mistake.sentence
    return None


@pytest.mark.parametrize("field", FIELDS)
def test_hostile_words_are_refused_or_kept_as_they_are(field: str) -> None:
    example = yaml.safe_load(FIELDS[field].example)
    for kind, word in WORDS.items():
        for value in hostile_values(example, word):
            job = read_hostile(field, value)
            if job is None:
                continue
            document = job_document(job)
            assert kind not in NEVER or word not in json.dumps(document, ensure_ascii=False), value
            assert read_fields(json.loads(json.dumps(document))) == job
            lines = diff_documents(LEAST, document).lines
            assert not acts(show_lines("\n".join(lines)))
            assert not acts(json_text(document))


def test_a_stored_job_and_its_events_come_back_as_they_were(tmp_path: Path) -> None:
    """Whatever words are in them, also from hosts."""
    store = Database(tmp_path, 1.0)
    words = {name: word for name, word in WORDS.items() if name != "long"}
    job = StoredJob(
        job="gpt", goal=Goal.RUN, document={"env": words}, made_at=1.0, changed_at=1.0, who="'; --"
    )
    event = HistoryEvent(at=1.0, kind="host.invalid_data", job="gpt", facts={"why": words})
    store.put_job(job, [event])
    store.troubles.record_trouble("cloud", "".join(words.values()), now=1.0)
    assert store.stored_jobs()["gpt"].document == {"env": words}
    assert [one for _, one in store.read_events()] == [event]
    assert store.find_job("x'; DROP TABLE jobs; --") is None
    assert [one for _, one in store.read_events(job="x' OR '1'='1")] == []
    store.close()


@pytest.mark.parametrize("word", [word for word in WORDS.values() if len(word) < 1000])
def test_a_hostile_file_is_read_in_bounded_time(word: str) -> None:
    for text in (word * 100, f"name: {word}", f"{word}: gpt", f"env: {{A: {word}}}", f"- {word}"):
        found = read_job(text)
        assert isinstance(found, list)
        assert all(len(mistake.sentence) <= SENTENCE_MAX for mistake in found)


def test_a_file_that_grows_without_end_is_refused() -> None:
    bomb = "a0: &a0 [x]\n" + "".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)
    )
    begun = time.process_time()
    (mistake, *_) = found = read_job(bomb)  # type: ignore[misc]
    assert "more than 20000 values" in mistake.sentence, found
    assert isinstance(read_job("[" * 50_000), list)
    assert isinstance(read_job("a: " * 5_000), list)
    assert time.process_time() - begun < 5


@pytest.mark.parametrize("content", [b"a\0b", b"\xff\xfe", b"", b"x" * 100_000])
def test_a_secret_that_is_no_text_is_refused_without_showing_it(content: bytes) -> None:
    with pytest.raises(SecretMissing) as refused:
        decode_secret(content, "key")
    assert len(str(refused.value)) < 100
