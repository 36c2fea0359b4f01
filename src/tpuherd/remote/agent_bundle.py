"""The agent as one zip file that any Python runs: the same bytes for the same sources."""

import ast
import hashlib
import io
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import tpuherd_host
from tpuherd.files import atomic_write, make_private_folder
from tpuherd_host.agent.frames import PROTOCOL
from tpuherd_host.agent.main import PREFIX, SUFFIX, main

#: The agent, and modules for attempts: the archive is on their path.
PACKAGE = Path(tpuherd_host.__file__).parent
#: Programs that hosts get on their standard input when they are used.
SENT_ALONE = frozenset(("bucket_probe.py", "collective_probe.py", "open_server.py"))
EPOCH = (1980, 1, 1, 0, 0, 0)  #: the earliest date that a zip can hold
MAIN = f"""\
import sys
from {main.__module__} import main
sys.exit(main(sys.argv[1:], sys.path[0], {PROTOCOL}))
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Zipapp:
    """One version of the agent; it is packed only when a host lacks it."""

    hash: str  #: of the sources; the agent takes it from its file name and sends it in its hello
    kept_in: Path | None = None  #: the folder that keeps it packed

    @property
    def name(self) -> str:
        """The file's name on a host, such as agent-0123456789abcdef.pyz."""
        return PREFIX + self.hash + SUFFIX

    @property
    def content(self) -> bytes:
        """The file on a host."""
        return pack_archive({name: strip_docs(text) for name, text in agent_sources().items()})

    @property
    def compressed(self) -> bytes:
        """The file as it is sent, in zlib's format."""
        return compressed_content(self)


@cache
def current_agent(kept_in: Path | None = None) -> Zipapp:
    """The agent of this version of tpuherd."""
    digest = hashlib.sha256()
    for name, text in sorted(agent_sources().items()):
        digest.update(f"{name}\n{len(text)}\n{text}".encode())
    return Zipapp(hash=digest.hexdigest()[:16], kept_in=kept_in)


@cache
def agent_sources() -> Mapping[str, str]:
    """All sources by their paths in the archive."""
    files = sorted(file for file in PACKAGE.rglob("*.py") if file.name not in SENT_ALONE)
    return {"__main__.py": MAIN} | {
        file.relative_to(PACKAGE.parent).as_posix(): file.read_text(encoding="utf-8")
        for file in files
    }


@cache
def compressed_content(agent: Zipapp) -> bytes:
    """The archive in one piece: half as long as with each file compressed by itself.

    It is kept on disk: packing takes 0.2 s, and a new process contacts a new host first.
    """
    if agent.kept_in is None:
        return zlib.compress(agent.content, 9)
    file = agent.kept_in / f"{agent.name}.z"
    with suppress(OSError, zlib.error):
        kept = file.read_bytes()
        zlib.decompress(kept)  # compares its checksum
        return kept
    packed = zlib.compress(agent.content, 9)
    with suppress(OSError):
        make_private_folder(agent.kept_in)
        for old in agent.kept_in.glob("*.z"):
            old.unlink(missing_ok=True)
        atomic_write(file, packed)
    return packed


def strip_docs(text: str) -> str:
    """Remove docstrings and comments; every line keeps its number."""
    lines = text.split("\n")
    for node in documented_nodes(ast.parse(text)):
        first = node.body[0] if node.body else None
        if first is not None and ast.get_docstring(node, clean=False) is not None:
            end = first.end_lineno or first.lineno
            lines[first.lineno - 1 : end] = [""] * (end - first.lineno + 1)
            if len(node.body) == 1:
                lines[first.lineno - 1] = " " * first.col_offset + "pass"
    for token in tokenize.generate_tokens(io.StringIO("\n".join(lines)).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column].rstrip()
    return "\n".join(lines)


def documented_nodes(
    node: ast.Module | ast.ClassDef | ast.FunctionDef,
) -> Iterator[ast.Module | ast.ClassDef | ast.FunctionDef]:
    """Find the module, its classes and functions, which may begin with a docstring."""
    yield node
    for one in node.body:
        if isinstance(one, ast.ClassDef | ast.FunctionDef):
            yield from documented_nodes(one)


def pack_archive(contents: Mapping[str, str]) -> bytes:
    """Zip these files without compression, times or owners."""
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as archive:
        for name, text in sorted(contents.items()):
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, text)
    return whole.getvalue()
