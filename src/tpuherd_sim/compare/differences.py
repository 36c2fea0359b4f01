"""Differences between a transcript and the model, each once, with where it was seen first."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

#: What kinds there are.
KINDS: Mapping[str, str] = {
    "method": "a method that the model does not have",
    "query": "a query parameter that the model refuses",
    "status": "an HTTP status that the model never answers with",
    "error": "an error with another code, status or reason",
    "wording": "an error with other words",
    "field": "a field that the model never serves",
    "missing": "a field that the model always serves",
    "type": "a field of another type or form",
    "enum": "a value that the API's documents do not list",
    "order": "a list in another order",
    "page": "pages of a list that do not follow from each other",
    "transition": "a change of state that the model does not make",
    "timing": "a duration far from the model's",
    "host": "something on a host that is different",
}


FOUND_MAX = 1000  #: more would tell nothing new
CHARS_MAX = 400


def plain_text(text: str) -> str:
    """Return a text of a transcript, which may be anything, cut and without control characters."""
    return "".join(one if one.isprintable() else "?" for one in text[:CHARS_MAX])


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """One way in which the cloud and the model differ."""

    kind: str  #: a key of KINDS
    subject: str  #: Node.health, nodes.get, Node CREATING, …
    sentence: str
    line: int  #: of the transcript, where it is seen first
    times: int = 1


@dataclass(kw_only=True)
class Findings:
    """Collects differences; the same one again is only counted."""

    found: dict[tuple[str, str], Difference] = field(default_factory=dict)

    def add(self, kind: str, subject: str, sentence: str, line: int) -> None:
        subject, sentence = plain_text(subject), plain_text(sentence)
        before = self.found.get((kind, sentence))
        if before is None and len(self.found) >= FOUND_MAX:
            return
        self.found[kind, sentence] = (
            Difference(kind=kind, subject=subject, sentence=sentence, line=line)
            if before is None
            else replace(before, times=before.times + 1)
        )

    def in_order(self) -> tuple[Difference, ...]:
        """Return them by their kind."""
        ranks = {kind: rank for rank, kind in enumerate(KINDS)}
        return tuple(sorted(self.found.values(), key=lambda one: (ranks[one.kind], one.line)))
