"""Finds the rule that a line of a log matches; ordinary lines cost little."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache

from tpuherd.diagnosis.known_rules import RULES
from tpuherd.diagnosis.rule import Rule, RuleClass

RANKS = {kind: rank for rank, kind in enumerate(RuleClass)}


@dataclass(frozen=True, kw_only=True, slots=True)
class RuleBook:
    """Rules, arranged so that few of them are tried on a line."""

    rules: Mapping[str, Rule]  #: by id
    by_word: tuple[tuple[str, tuple[Rule, ...]], ...]  #: rules whose lines have the word
    wordless: tuple[Rule, ...]  #: to be tried on every line
    of_tracebacks: tuple[Rule, ...]
    by_exit: Mapping[int, Rule]


def make_rule_book(rules: Iterable[Rule]) -> RuleBook:
    """Arrange rules; a later one replaces an earlier one of the same id."""
    by_id = {rule.id: rule for rule in rules}
    by_word: dict[str, list[Rule]] = {}
    for rule in by_id.values():
        for word in rule.words:
            by_word.setdefault(word, []).append(rule)
    plain = [rule for rule in by_id.values() if rule.pattern and not rule.traceback]
    return RuleBook(
        rules=by_id,
        by_word=tuple((word, tuple(found)) for word, found in by_word.items()),
        wordless=tuple(rule for rule in plain if not rule.words),
        of_tracebacks=tuple(rule for rule in by_id.values() if rule.traceback),
        by_exit={status: rule for rule in by_id.values() for status in rule.exits},
    )


BOOK = make_rule_book(RULES.values())  #: the rules that herd knows


def narrow_book(book: RuleBook, text: str) -> RuleBook:
    """The rules that any line of this text may match: far fewer, if the text is long and well."""
    return replace(book, by_word=tuple(pair for pair in book.by_word if pair[0] in text))


@cache
def compile_pattern(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def matching_rules(line: str, book: RuleBook = BOOK) -> list[tuple[Rule, re.Match[str]]]:
    """All rules that the line matches, the most telling first."""
    tried = [rule for word, rules in book.by_word if word in line for rule in rules]
    if not tried and not book.wordless:
        return []
    found = [
        (rule, match)
        for rule in dict.fromkeys((*tried, *book.wordless))
        if (match := compile_pattern(rule.pattern).search(line)) is not None
    ]
    return sorted(found, key=lambda one: (one[0].generic, RANKS[one[0].kind]))


def match_error(line: str, book: RuleBook = BOOK) -> tuple[Rule, re.Match[str]] | None:
    """The rule for the last line of a traceback that no other rule knows."""
    for rule in book.of_tracebacks:
        if (match := compile_pattern(rule.pattern).search(line)) is not None:
            return rule, match
    return None
