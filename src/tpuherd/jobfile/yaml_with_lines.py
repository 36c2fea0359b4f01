"""Reads YAML and keeps the line of each value and its text as written."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

FieldPath = tuple[str | int, ...]  #: the path of a value: ("retry", "failures"), ("setup", 0)

BYTES_MAX = 1_000_000
VALUES_MAX = 20_000
SENTENCE_MAX, PATH_MAX = 1000, 200  #: characters of a mistake, and of the name of its field
MERGE = "tag:yaml.org,2002:merge"


@dataclass(frozen=True, kw_only=True, slots=True)
class Mistake:
    """One mistake in a job file: its line, its field, and what to write instead."""

    line: int  #: starts at 1; 0 without a file
    field: str
    sentence: str

    def format_line(self, file: str) -> str:
        """Format it like a compiler does: FILE:LINE: FIELD: SENTENCE."""
        place = f"{file}:{self.line}: " if self.line else ""
        return f"{place}{self.field}: {self.sentence}" if self.field else place + self.sentence


@dataclass(kw_only=True, slots=True)
class YamlDocument:
    """The values of a YAML text with their lines. Filled while the text is read."""

    value: Any = None
    lines: dict[FieldPath, int] = field(default_factory=dict)
    texts: dict[FieldPath, str] = field(default_factory=dict)  #: plain values as written
    mistakes: list[Mistake] = field(default_factory=list)
    notices: list[Mistake] = field(default_factory=list)  #: what is ignored, for who wrote it
    reads: int = 0  #: values read so far; what several places name is read for each of them

    def line_of(self, where: FieldPath) -> int:
        """Return the line of a value, or of the nearest value that contains it."""
        for end in range(len(where), -1, -1):
            if where[:end] in self.lines:
                return self.lines[where[:end]]
        return 0

    def add_mistake(self, where: FieldPath, sentence: str) -> None:
        self.mistakes.append(self.mistake_at(where, sentence))

    def mistake_at(self, where: FieldPath, sentence: str) -> Mistake:
        name = show_in_line(format_path(where), PATH_MAX)
        sentence = show_in_line(sentence, SENTENCE_MAX)
        return Mistake(line=self.line_of(where), field=name, sentence=sentence)


class UnreadableYaml(Exception):
    """The text is not YAML, or is too large for a job file."""

    def __init__(self, sentence: str, line: int = 1) -> None:
        super().__init__(sentence)
        self.line = line


def show_in_line(text: str, most: int) -> str:
    """Return the text in one line, without its middle if it is long."""
    text = " ".join(text.split()) if "\n" in text else text
    return text if len(text) <= most else f"{text[: most // 2]}…{text[-most // 3 :]}"


def format_path(where: FieldPath) -> str:
    """retry.failures, setup[0]"""
    text = ""
    for part in where:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def read_yaml(text: str) -> YamlDocument:
    """Read a text; what can't be read becomes a mistake in the document."""
    found = YamlDocument()
    try:
        if len(text) > BYTES_MAX:
            raise UnreadableYaml("the file is larger than 1 MB, too large for a job file")
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        if node is None:
            found.lines[()] = 1
        else:
            found.value = read_node(node, (), found, ())
    except UnreadableYaml as unreadable:
        found.mistakes.append(Mistake(line=unreadable.line, field="", sentence=str(unreadable)))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        sentence = f"not valid YAML: {error.problem or error.context}"
        line = mark.line + 1 if mark else 1
        found.mistakes.append(Mistake(line=line, field="", sentence=sentence))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        sentence = f"not valid YAML: {str(error).splitlines()[0]}"
        found.mistakes.append(Mistake(line=1, field="", sentence=sentence))
    return found


def read_node(
    node: yaml.Node, where: FieldPath, page: YamlDocument, above: tuple[yaml.Node, ...]
) -> Any:
    """Return the value of a node and record its lines."""
    line = node.start_mark.line + 1
    if node in above:
        raise UnreadableYaml("a value contains itself", line)
    page.reads += 1
    if page.reads > VALUES_MAX:
        raise UnreadableYaml(f"the file has more than {VALUES_MAX} values", line)
    page.lines.setdefault(where, line)
    if isinstance(node, yaml.MappingNode):
        return read_mapping(node, where, page, (*above, node))
    if isinstance(node, yaml.SequenceNode):
        return [
            read_node(one, (*where, at), page, (*above, node)) for at, one in enumerate(node.value)
        ]
    assert isinstance(node, yaml.ScalarNode)
    page.texts[where] = node.value
    return read_scalar(node)


def read_scalar(node: yaml.ScalarNode) -> str | int | float | bool | None:
    """Return text, a number, a boolean or None; YAML's dates and base 60 stay text."""
    text: str = node.value
    if node.tag.rpartition(":")[2] not in ("int", "float", "bool", "null") or ":" in text:
        return text
    found: Any = yaml.safe_load(text)
    return found if isinstance(found, int | float | bool | None) else text


def read_mapping(
    node: yaml.MappingNode, where: FieldPath, page: YamlDocument, above: tuple[yaml.Node, ...]
) -> dict[str, Any]:
    """Return names and values; a name that occurs twice is a mistake."""
    found: dict[str, Any] = {}
    merged: dict[str, Any] = {}
    for key, below in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise UnreadableYaml("a field name must be text", key.start_mark.line + 1)
        if key.tag == MERGE:
            for one in below.value if isinstance(below, yaml.SequenceNode) else [below]:
                base = read_node(one, where, page, above)
                merged |= base if isinstance(base, Mapping) else {}
            continue
        name = key.value
        if name in found:
            page.lines[*where, name] = key.start_mark.line + 1
            page.add_mistake((*where, name), "is set twice")
            continue
        page.lines[*where, name] = key.start_mark.line + 1
        found[name] = read_node(below, (*where, name), page, above)
    return {**merged, **found}
