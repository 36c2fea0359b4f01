"""Parses a user's own rules: a JSON list of objects, as the reference page of rules shows them."""

import json
import re
from collections.abc import Collection, Mapping
from typing import Any

from tpuherd.diagnosis.rule import Rule, RuleClass
from tpuherd.errors import InvalidInput
from tpuherd.near_names import near_names

REQUIRED = ("id", "pattern", "cause", "fix")
OPTIONAL = ("class", "source", "evidence", "sample")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}")
RULES_MAX, CHARS_MAX = 1000, 2000


def parse_rules(text: str, name: str) -> tuple[Rule, ...]:
    """The rules in the text of a file; InvalidInput names the file, the rule and the field."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise InvalidInput(f"{name} is not JSON: {error}") from error
    if not isinstance(found, list):
        raise InvalidInput(f"{name}: rules are a list of objects: [{{...}}, ...]")
    if len(found) > RULES_MAX:
        raise InvalidInput(f"{name} has {len(found)} rules; at most {RULES_MAX} are read")
    rules: dict[str, Rule] = {}
    for number, row in enumerate(found, 1):
        rule = parse_rule(row, f"{name}: rule {number}")
        if rule.id in rules:
            raise InvalidInput(f"{name}: rule {number}: another rule has the id {rule.id}, too")
        rules[rule.id] = rule
    return tuple(rules.values())


def parse_rule(row: Any, where: str) -> Rule:
    if not isinstance(row, Mapping):
        raise InvalidInput(f"{where} is no object")
    if isinstance(row.get("id"), str) and NAME.fullmatch(row["id"]):
        where = f"{where} ({row['id']})"
    check_fields(row, where)
    if NAME.fullmatch(row["id"]) is None:
        raise InvalidInput(f"{where}: id must be of letters, digits and -, such as no-token")
    rule = Rule(
        id=row["id"],
        kind=parse_class(row.get("class", "user"), where),
        pattern=row["pattern"],
        cause=row["cause"],
        fix=row["fix"],
        source=row.get("source", ""),
        evidence=row.get("evidence", ""),
    )
    check_pattern(rule.pattern, row.get("sample"), where)
    return rule


def check_fields(row: Mapping[str, Any], where: str) -> None:
    """Refuse unknown and missing fields, and what is no text."""
    for field in row:
        if field not in REQUIRED + OPTIONAL:
            raise InvalidInput(f"{where}: there is no field {field}{suggest(field)}")
    for field in REQUIRED:
        if field not in row:
            raise InvalidInput(f"{where}: {field} is missing")
    for field, value in row.items():
        if not isinstance(value, str):
            raise InvalidInput(f"{where}: {field} is no text")
        if field in REQUIRED and not value.strip():
            raise InvalidInput(f"{where}: {field} is empty")
        if len(value) > CHARS_MAX:
            raise InvalidInput(f"{where}: {field} is longer than {CHARS_MAX} characters")


def suggest(word: str, words: Collection[str] = REQUIRED + OPTIONAL) -> str:
    near = near_names(word, words, most=1)
    return f"; did you mean {near[0]}?" if near else f"; there are {', '.join(words)}"


def parse_class(word: str, where: str) -> RuleClass:
    try:
        return RuleClass(word)
    except ValueError:
        known = [str(kind) for kind in RuleClass]
        raise InvalidInput(f"{where}: class {word!r} is unknown{suggest(word, known)}") from None


def check_pattern(pattern: str, sample: str | None, where: str) -> None:
    """Refuse what is no regular expression, matches every line, or not its own sample."""
    try:
        search = re.compile(pattern).search
    except (re.error, OverflowError, RecursionError) as error:
        raise InvalidInput(f"{where}: pattern is no regular expression: {error}") from error
    if search("") is not None:
        raise InvalidInput(f"{where}: pattern matches every line")
    if sample is not None and not any(search(line) for line in sample.split("\n")):
        raise InvalidInput(f"{where}: pattern does not match the rule's sample")
