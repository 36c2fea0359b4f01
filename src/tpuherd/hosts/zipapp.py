"""The agent as one file that any Python runs, the same for the same sources."""

import ast
import hashlib
import io
import zipfile
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from tpuherd_host.agent.frames import PROTOCOL

PACKAGE = "tpuherd_host"
ROOM = "agent"
EPOCH = (1980, 1, 1, 0, 0, 0)  #: no file of an archive is younger
MAIN = """\
import sys
from {room}.start import main
sys.exit(main(sys.argv[1:], sys.path[0], {protocol}))
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Zipapp:
    """One file."""

    hash: str  #: of the content; its hello says it as "agent", by its file's name
    content: bytes

    @property
    def name(self) -> str:
        """agent-0123456789abcdef.pyz; it must have this name on a host."""
        return f"agent-{self.hash}.pyz"


@cache
def agent() -> Zipapp:
    """The agent that goes with this version of ours."""
    sources = {name: bare(text) for name, text in modules(files(PACKAGE) / ROOM).items()}
    main = MAIN.format(room=f"{PACKAGE}.{ROOM}", protocol=PROTOCOL)
    content = packed({"__main__.py": main, **sources})
    return Zipapp(hash=hashlib.sha256(content).hexdigest()[:16], content=content)


def modules(folder: Traversable) -> dict[str, str]:
    """The sources, by their places in the archive."""
    found = {f"{PACKAGE}/__init__.py": ""}
    for file in folder.iterdir():
        if file.name.endswith(".py"):
            found[f"{PACKAGE}/{ROOM}/{file.name}"] = file.read_text(encoding="utf-8")
    return found


def bare(text: str) -> str:
    """Without docstrings and comments, which nobody reads there; every line keeps its number."""
    lines = text.split("\n")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                end = first.end_lineno or first.lineno
                lines[first.lineno - 1 : end] = [""] * (end - first.lineno + 1)
                if len(node.body) == 1:
                    lines[first.lineno - 1] = " " * first.col_offset + "pass"
    return "\n".join("" if line.lstrip().startswith("#") else line for line in lines)


def packed(sources: dict[str, str]) -> bytes:
    """An archive of them, with nothing in it of where and when it was made."""
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as archive:
        for name, text in sorted(sources.items()):
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, text.encode(), compresslevel=9)
    return whole.getvalue()
