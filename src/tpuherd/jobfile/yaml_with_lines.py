"""Reads YAML so that every value knows its line, and every text is as it was written."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

FieldPath = tuple[str | int, ...]  #: the way to a value: ("retry", "failures"), ("setup", 0)

BYTES_MAX = 1_000_000
VALUES_MAX = 20_000
MERGE = "tag:yaml.org,2002:merge"


@dataclass(frozen=True, kw_only=True, slots=True)
class Mistake:
    """One thing that is wrong, where it stands, and what would be right."""

    line: int  #: from 1 on; 0 where there is no file
    field: str
    sentence: str

    def format_line(self, file: str) -> str:
        """As compilers say it."""
        place = f"{file}:{self.line}: " if self.line else ""
        return f"{place}{self.field}: {self.sentence}" if self.field else place + self.sentence


@dataclass(kw_only=True, slots=True)
class YamlDocument:
    """What a text says, and where it says so. Filled while it is read."""

    value: Any = None
    lines: dict[FieldPath, int] = field(default_factory=dict)
    texts: dict[FieldPath, str] = field(default_factory=dict)  #: of plain values, as written
    mistakes: list[Mistake] = field(default_factory=list)

    def line_of(self, where: FieldPath) -> int:
        """Where a value stands, or what it is in."""
        for end in range(len(where), -1, -1):
            if where[:end] in self.lines:
                return self.lines[where[:end]]
        return 0

    def add_mistake(self, where: FieldPath, sentence: str) -> None:
        """Note a mistake."""
        name = format_path(where)
        self.mistakes.append(Mistake(line=self.line_of(where), field=name, sentence=sentence))


class UnreadableYaml(Exception):
    """It is no YAML, or more than anybody writes."""

    def __init__(self, sentence: str, line: int = 1) -> None:
        super().__init__(sentence)
        self.line = line


def format_path(where: FieldPath) -> str:
    """retry.failures, setup[0]"""
    text = ""
    for part in where:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def read_yaml(text: str) -> YamlDocument:
    """The whole of a text; what can't be read is a mistake of it."""
    found = YamlDocument()
    try:
        if len(text) > BYTES_MAX:
            raise UnreadableYaml("it is larger than a megabyte: that is no job file")
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        if node is None:
            found.lines[()] = 1
        else:
            found.value = read_node(node, (), found, ())
    except UnreadableYaml as unreadable:
        found.mistakes.append(Mistake(line=unreadable.line, field="", sentence=str(unreadable)))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        sentence = f"this is no YAML: {error.problem or error.context}"
        line = mark.line + 1 if mark else 1
        found.mistakes.append(Mistake(line=line, field="", sentence=sentence))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        sentence = f"this is no YAML: {str(error).splitlines()[0]}"
        found.mistakes.append(Mistake(line=1, field="", sentence=sentence))
    return found


def read_node(
    node: yaml.Node, where: FieldPath, page: YamlDocument, above: tuple[yaml.Node, ...]
) -> Any:
    """What a node stands for, its lines noted."""
    line = node.start_mark.line + 1
    if node in above:
        raise UnreadableYaml("a value holds itself", line)
    if len(page.lines) > VALUES_MAX:
        raise UnreadableYaml(f"it has more than {VALUES_MAX} values", line)
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
    """A text, number, truth or nothing; what YAML takes for dates or base 60 is a text."""
    text: str = node.value
    if node.tag.rpartition(":")[2] not in ("int", "float", "bool", "null") or ":" in text:
        return text
    found: Any = yaml.safe_load(text)
    return found if isinstance(found, int | float | bool | None) else text


def read_mapping(
    node: yaml.MappingNode, where: FieldPath, page: YamlDocument, above: tuple[yaml.Node, ...]
) -> dict[str, Any]:
    """Names and their values; what stands twice is a mistake."""
    found: dict[str, Any] = {}
    merged: dict[str, Any] = {}
    for key, below in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise UnreadableYaml("a name must be a text", key.start_mark.line + 1)
        if key.tag == MERGE:
            for one in below.value if isinstance(below, yaml.SequenceNode) else [below]:
                told = read_node(one, where, page, above)
                merged |= told if isinstance(told, Mapping) else {}
            continue
        name = key.value
        if name in found:
            page.lines[*where, name] = key.start_mark.line + 1
            page.add_mistake((*where, name), "stands twice")
            continue
        page.lines[*where, name] = key.start_mark.line + 1
        found[name] = read_node(below, (*where, name), page, above)
    return {**merged, **found}
