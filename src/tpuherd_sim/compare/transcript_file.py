"""Reads a transcript (docs/reference/transcripts.md), whatever else the file may be."""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

FORMAT = 1
BYTES_MAX = 256 << 20
LINE_MAX = 16 << 20
RECORDS_MAX = 2_000_000
METHODS = frozenset("GET POST PUT PATCH DELETE".split())
Json = dict[str, Any]


class TranscriptError(Exception):
    """The file can't be compared: one sentence."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Exchange:
    """A request and its reply; times are seconds since the recording began."""

    line: int
    at: float
    took_s: float
    method: str
    path: str  #: without a slash at its start
    query: Mapping[str, Any]
    status: int | None
    reply: Json | None
    order: Mapping[str, str]
    repeated: bool = False  #: a repeat of an earlier one


@dataclass(frozen=True, kw_only=True, slots=True)
class HostRecord:
    """What one host has."""

    line: int
    facts: Json


@dataclass(frozen=True, kw_only=True, slots=True)
class Transcript:
    """A whole recording, in the order of its times."""

    cloud: str  #: google or world
    time_scale: float
    exchanges: tuple[Exchange, ...]
    hosts: tuple[HostRecord, ...]
    skipped: int  #: lines that were cut or malformed


def read_transcript(file: Path) -> Transcript:
    """Read a file; raise TranscriptError if there is nothing to compare."""
    try:
        if not file.is_file():
            raise TranscriptError(
                f"{file} is not a file" if file.exists() else f"{file} does not exist"
            )
        size = file.stat().st_size
        if size > BYTES_MAX:
            raise TranscriptError(f"{file} has {size >> 20} MB: more than {BYTES_MAX >> 20} MB")
        with file.open("rb") as stream:
            return parse_transcript(stream, str(file))
    except OSError as error:
        raise TranscriptError(f"{file} can't be read ({error.strerror})") from error


def parse_transcript(stream: BinaryIO, title: str) -> Transcript:
    header: Json | None = None
    exchanges: dict[str, Exchange] = {}
    found: list[Exchange] = []
    hosts: list[HostRecord] = []
    skipped = 0
    for number, record in read_records(stream, title):
        kind = record.get("kind") if record is not None else None
        if header is None:
            header = check_header(record, title)
        elif record is None:
            skipped += 1
        elif kind == "exchange":
            one = parse_exchange(record, number)
            if one is None:
                skipped += 1
                continue
            exchanges[str(record.get("id"))] = one
            found.append(one)
        elif kind == "repeat":
            origin, at = exchanges.get(str(record.get("of"))), parse_number(record.get("at"))
            if origin is not None and at is not None:
                found.append(replace(origin, line=number, at=at, repeated=True))
        elif kind == "host":
            hosts.append(HostRecord(line=number, facts=record))
    if header is None:
        raise TranscriptError(f"{title} is empty")
    if not found and not hosts:
        raise TranscriptError(f"{title} has no requests: use herd while it is recorded")
    scale = parse_number(header.get("time_scale", 1.0))
    return Transcript(
        cloud="world" if header.get("cloud") == "world" else "google",
        time_scale=scale if scale is not None and scale > 0 else 1.0,
        exchanges=tuple(sorted(found, key=lambda one: one.at)),
        hosts=tuple(hosts),
        skipped=skipped,
    )


def read_records(stream: BinaryIO, title: str) -> Iterator[tuple[int, Json | None]]:
    """Yield the number and the object of each line that is not empty; None if it is malformed."""
    number = 0
    while raw := stream.readline(LINE_MAX):
        number += 1
        if number > RECORDS_MAX:
            raise TranscriptError(f"{title} has more than {RECORDS_MAX} lines")
        if not raw.strip():
            continue
        try:
            content = json.loads(raw)
        except (ValueError, RecursionError):
            content = None
        yield number, content if isinstance(content, dict) else None


def check_header(record: Json | None, title: str) -> Json:
    """Return the first record if it is the header of a transcript that we can read."""
    if record is None or record.get("kind") != "transcript":
        raise TranscriptError(f"{title} is not a transcript: `herd record start` writes one")
    if record.get("format") != FORMAT:
        raise TranscriptError(
            f"{title} has format {record.get('format')!r:.20}, and this herd reads {FORMAT}:"
            " use the version that wrote it"
        )
    return record


def parse_exchange(record: Json, number: int) -> Exchange | None:
    """Return the exchange; None if it is malformed."""
    at, took_s = parse_number(record.get("at")), parse_number(record.get("took_s", 0.0))
    method, path = record.get("method"), record.get("path")
    status, query = record.get("status"), record.get("query", {})
    reply, order = record.get("reply"), record.get("order", {})
    if at is None or took_s is None or not isinstance(path, str):
        return None
    if not isinstance(method, str) or method not in METHODS:
        return None
    if status is not None and (not isinstance(status, int) or isinstance(status, bool)):
        return None
    if not isinstance(query, dict) or not isinstance(order, dict):
        return None
    return Exchange(
        line=number,
        at=at,
        took_s=took_s,
        method=method,
        path=path.lstrip("/"),
        query=query,
        status=status,
        reply=reply if isinstance(reply, dict) else None,
        order=order,
    )


def parse_number(value: object) -> float | None:
    """Return a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and abs(value) < 1e12 else None
