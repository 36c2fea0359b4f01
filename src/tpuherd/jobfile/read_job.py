"""Reads a job from a file or from Python: either the whole job, or all of its mistakes."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING
from typing import Any

from tpuherd.jobfile.cross_checks import CHECKS, FieldCheck
from tpuherd.jobfile.fields import ALSO, FIELDS
from tpuherd.jobfile.job_spec import JobSpec, NodeRetention, Retry, Secret
from tpuherd.jobfile.joined_fields import PARTS, join_page
from tpuherd.jobfile.yaml_with_lines import Mistake, YamlDocument, read_yaml
from tpuherd.near_names import near_names
from tpuherd.withdrawn import without_withdrawn

__all__ = [
    "JobSpec",
    "Mistake",
    "NodeRetention",
    "Retry",
    "Secret",
    "job_document",
    "read_fields",
    "read_job",
    "split_repository",
]

#: Values in these keep their text as written: 0.10 stays 0.10, and no stays no.
AS_WRITTEN = ("env", "labels", "metadata")


UNUSABLE = "has a NUL, or bytes that are no UTF-8 text: no program takes them"
DEPTH_MAX = 20  #: of values in values
BITS_MAX = 1024  #: of a whole number; Python prints none of thousands of digits
ENDLESS = "has a number with hundreds of digits, or lists in lists without end"
NO_FIELDS = "a job file maps fields to values: name: gpt, accelerator: v4-32, …"


def read_job(text: str) -> JobSpec | list[Mistake]:
    """Read a job from YAML text; JSON is also YAML."""
    return read_document(read_yaml(text))


def read_fields(fields: Mapping[str, Any]) -> JobSpec | list[Mistake]:
    return read_document(YamlDocument(value=dict(fields)))


def read_document(
    page: YamlDocument, checks: Sequence[FieldCheck] = CHECKS
) -> JobSpec | list[Mistake]:
    """Check each field, then the fields together."""
    if not isinstance(page.value, Mapping):
        none = Mistake(line=page.line_of(()), field="", sentence=NO_FIELDS)
        page.mistakes = page.mistakes or [none]  # what can't be read is already reported
        return page.mistakes
    values: dict[str, Any] = {}
    content = join_page(page)
    for name, value in content.items():
        if name not in FIELDS:
            page.add_mistake((str(name),), unknown_field_message(str(name)))
            continue
        if name in AS_WRITTEN and isinstance(value, Mapping):
            value = {key: text_as_written(page, (name, key), below) for key, below in value.items()}
        value, ignored = without_withdrawn(name, value)
        page.notices += [page.mistake_at((name,), one) for one in ignored]
        found = read_field(name, value, page)
        if found is not None:
            values[name] = found
    named = named_fields(content)
    for field in FIELDS.values():
        if field.default is MISSING and field.name not in named:
            page.add_mistake((), f"{field.name} is missing: write {field.name}: {field.example}")
    for check in checks:
        check(values, page.add_mistake)
    if page.mistakes:
        return sorted(page.mistakes, key=lambda one: one.line)
    return JobSpec(**values)


def read_field(name: str, value: Any, page: YamlDocument) -> Any:
    """Return the value of a field; None if it has mistakes, which are added to the page."""
    if value is None:
        page.add_mistake((name,), "has no value")
        return None
    before = len(page.mistakes)
    if is_endless(value):
        page.add_mistake((name,), ENDLESS)
        return None
    found = FIELDS[name].kind.read(
        value, lambda sentence, at: page.add_mistake((name, *at), sentence)
    )
    if len(page.mistakes) == before and has_unusable_text(value):
        page.add_mistake((name,), UNUSABLE)
    return found


def is_endless(value: Any, depth: int = 0) -> bool:
    """Whether a number in it is too long to be shown, or it is nested deeper than any field is."""
    if isinstance(value, Mapping):
        value = (*value, *value.values())
    if isinstance(value, list | tuple):
        return depth == DEPTH_MAX or any(is_endless(one, depth + 1) for one in value)
    return isinstance(value, int) and value.bit_length() > BITS_MAX


def has_unusable_text(value: Any) -> bool:
    """Whether a text in it has a NUL, or half a character: what Python makes of other bytes."""
    if isinstance(value, str):
        return "\0" in value or any("\ud800" <= one <= "\udfff" for one in value)
    if isinstance(value, Mapping):
        return any(has_unusable_text(one) for one in (*value, *value.values()))
    return isinstance(value, list | tuple) and any(map(has_unusable_text, value))


def text_as_written(page: YamlDocument, where: tuple[str, str], value: Any) -> Any:
    """Return a plain value as text; quoted and empty values stay as they are."""
    return value if value is None else page.texts.get(where, value)


def named_fields(content: Mapping[str, Any]) -> frozenset[str]:
    """Return the fields that are present, including misspelt ones, which are not also missing."""
    return frozenset(str(name) if name in FIELDS else near_field(str(name)) for name in content)


def near_field(name: str) -> str:
    """Return the known field that an unknown one probably means, or ""."""
    plain = re.sub(r"[^a-z]+", "_", name.lower())
    near = ALSO.get(plain) or next(iter(near_names(plain, [*FIELDS, *ALSO, *PARTS], most=1)), "")
    return ".".join(PARTS[near]) if near in PARTS else ALSO.get(near, near)


def unknown_field_message(name: str) -> str:
    if name in PARTS:
        return f"{'.'.join(PARTS[name])} says this too: keep one of them"
    near = near_field(name)
    advice = f"did you mean {near}?" if near else "docs/reference/job.md lists all fields"
    return f"unknown field: {advice}"


def job_document(job: JobSpec) -> dict[str, Any]:
    """Return all fields with values as JSON; `read_fields` reads it back as the same job."""
    return {
        field.name: field.kind.write(getattr(job, field.name))
        for field in FIELDS.values()
        if getattr(job, field.name) != field.default
    }


def split_repository(repo: str) -> tuple[str, str]:
    """Split `url@ref` into URL and ref; the ref defaults to HEAD."""
    start = repo.find("/", repo.find("://") + 3) if "://" in repo else max(0, repo.find(":"))
    at = repo.rfind("@")
    if at < start or start < 0:
        return repo, "HEAD"
    return repo[:at], repo[at + 1 :]
