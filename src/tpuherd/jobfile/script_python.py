"""Finds the Python version that a script needs at least, as far as its text shows. Pure."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

OLDEST = 8  #: of the images' Pythons, and the oldest that we look for
NEWEST = 14
#: What came with which minor version of Python 3: modules, and names in modules.
SINCE = {
    "zoneinfo": 9, "graphlib": 9, "tomllib": 11, "compression": 14,
    "functools.cache": 9, "itertools.pairwise": 10, "itertools.batched": 12, "enum.StrEnum": 11,
    "datetime.UTC": 11, "typing.Annotated": 9, "typing.TypeAlias": 10, "typing.ParamSpec": 10,
    "typing.TypeGuard": 10, "typing.Self": 11, "typing.Never": 11, "typing.assert_never": 11,
    "typing.Required": 11, "typing.override": 12, "asyncio.TaskGroup": 11, "asyncio.timeout": 11,
    "tpuherd_host.train": 10,
}  # fmt: skip
GENERIC = frozenset(("list", "dict", "tuple", "set", "frozenset", "type"))
METADATA = re.compile(r"(?m)^# /// script$(?P<text>[\s\S]*?)^# ///$")
REQUIRES = re.compile(r"requires-python\s*=\s*[\"'][^\"']*>=?\s*3\.(?P<minor>[0-9]+)")


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class NeededPython:
    minor: int  #: of Python 3
    why: str = ""

    @property
    def version(self) -> str:
        """3.11"""
        return f"3.{self.minor}"


def needed_python(source: str) -> NeededPython | None:
    """Return what the script needs, with the newest feature as the reason; None: any version."""
    found = list(signs_of_python(source))
    return max(found, default=None)


def required_by_project(pyproject: str) -> NeededPython | None:
    """Return what a pyproject.toml requires."""
    match = REQUIRES.search(pyproject)
    return NeededPython(minor=int(match["minor"]), why="requires-python") if match else None


def signs_of_python(source: str) -> Iterator[NeededPython]:
    metadata = METADATA.search(source)
    if metadata and (match := REQUIRES.search(metadata["text"])):
        yield NeededPython(minor=int(match["minor"]), why="requires-python")
    tree = None
    for minor in range(OLDEST, NEWEST + 1):
        try:
            tree = ast.parse(source, feature_version=(3, minor))
        except (SyntaxError, ValueError):
            continue
        if minor > OLDEST:
            yield NeededPython(minor=minor, why="its syntax")
        break
    if tree is None:
        return
    late = any(isinstance(one, ast.ImportFrom) and one.module == "__future__" for one in tree.body)
    for node in ast.walk(tree):
        yield from signs_of_imports(node)
        if not late:
            yield from signs_of_annotations(node)


def signs_of_imports(node: ast.AST) -> Iterator[NeededPython]:
    names: list[str] = []
    if isinstance(node, ast.Import):
        names = [one.name for one in node.names]
    elif isinstance(node, ast.ImportFrom) and not node.level:
        names = [node.module or "", *(f"{node.module}.{one.name}" for one in node.names)]
    elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        names = [f"{node.value.id}.{node.attr}"]
    for name in names:
        known = [one for one in SINCE if name == one or name.startswith(f"{one}.")]
        yield from (NeededPython(minor=SINCE[one], why=one) for one in known)


def signs_of_annotations(node: ast.AST) -> Iterator[NeededPython]:
    """Annotations that run when the function or class is made."""
    annotation = getattr(node, "annotation", None) or getattr(node, "returns", None)
    for part in ast.walk(annotation) if isinstance(annotation, ast.AST) else ():
        if isinstance(part, ast.BinOp) and isinstance(part.op, ast.BitOr):
            yield NeededPython(minor=10, why=f"the annotation {ast.unparse(part)}")
        elif isinstance(part, ast.Subscript) and ast.unparse(part.value) in GENERIC:
            yield NeededPython(minor=9, why=f"the annotation {ast.unparse(part)}")
