"""The agent as one file that any Python runs, the same for the same sources."""

import ast
import hashlib
import importlib.util
import io
import marshal
import re
import struct
import sys
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.abc import InspectLoader
from importlib.resources import files
from types import CodeType

from tpuherd_host.agent.frames import PROTOCOL
from tpuherd_host.agent.start import PREFIX, SUFFIX

PACKAGE = "tpuherd_host"
ROOM = "agent"
SCRIPTS = "train"  #: what attempts import: the archive stands on their path
REPORT = "report.py"  #: and run
EPOCH = (1980, 1, 1, 0, 0, 0)  #: no file of an archive is younger
MAIN = """\
import sys
from {room}.start import main
sys.exit(main(sys.argv[1:], sys.path[0], {protocol}))
"""
#: A Python that says this of itself runs our bytecode: what it is, and its bytecode's number.
OURS = f"{sys.implementation.cache_tag}-{importlib.util.MAGIC_NUMBER.hex()}"
#: Of bytecode that is never compared with a source.
PYC_HEAD = importlib.util.MAGIC_NUMBER + struct.pack("<I8x", 0b01)
PACK = f"{PACKAGE}.{ROOM}.pack"
#: The main program of an archive that begins with a pack, where somebody starts it by hand.
PACKED_MAIN = """\
import marshal, sys
with open(sys.path[0], "rb") as file:
    protocol = int(file.readline().split()[1])
    begin, *pieces = marshal.load(file)
room = {"__name__": ""}
exec(begin, room)
sys.exit(room["begin"](pieces, sys.path[0], protocol))
"""
#: What is loaded together, in this order: to attach, by the first that an agent does, by the rest.
PIECES = (("start", "attach"), ("serve",), ("life",))
IMPORTS = re.compile(rf"^from ({PACKAGE}\.{ROOM}(?:\.\w+)?) import (?:\(([^)]*)\)|(.*))", re.M)


@dataclass(frozen=True, kw_only=True, slots=True)
class Zipapp:
    """One file. It is put together only when a host lacks it."""

    hash: str  #: of the sources; its hello says it as "agent", by its file's name

    @property
    def name(self) -> str:
        """agent-0123456789abcdef.pyz; it must have this name on a host."""
        return PREFIX + self.hash + SUFFIX

    @property
    def content(self) -> bytes:
        """As it is on hosts."""
        return archive_content(compiled=False)

    def bytes_to_send(self, python: str) -> bytes:
        """As it travels: small, or with bytecode where the host's Python takes it."""
        return compressed_archive(compiled=python == OURS)


@cache
def current_agent() -> Zipapp:
    """The agent that goes with this version of ours."""
    told = hashlib.sha256()
    for name, text in sorted(agent_sources().items()):
        told.update(f"{name}\n{len(text)}\n{text}".encode())
    return Zipapp(hash=told.hexdigest()[:16])


@cache
def agent_sources() -> Mapping[str, str]:
    """All of it, by the places in the archive."""
    main = MAIN.format(room=f"{PACKAGE}.{ROOM}", protocol=PROTOCOL)
    report = (files(PACKAGE) / REPORT).read_text(encoding="utf-8")
    rooms = {**package_sources(ROOM), **package_sources(SCRIPTS)}
    return {"__main__.py": main, f"{PACKAGE}/{REPORT}": report, **rooms}


@cache
def compressed_archive(*, compiled: bool) -> bytes:
    """In one piece that is half as long as with each file compressed for itself."""
    return zlib.compress(archive_content(compiled=compiled), 1 if compiled else 9)


@cache
def archive_content(*, compiled: bool) -> bytes:
    """The archive. With bytecode it begins with what a start loads, in one piece."""
    if not compiled:
        return pack_archive(
            {name: strip_docs(text).encode() for name, text in agent_sources().items()}
        )
    ours = {
        module_name(name): name for name in agent_sources() if f"/{ROOM}/" in name or "/__" in name
    }
    pack: list[CodeType | bytes] = [module_code(ours[PACK])]
    later = set(ours) - {PACK}
    for names in PIECES:
        piece = needed_modules(*names) & later
        pack.append(marshal.dumps({name: module_code(ours[name]) for name in sorted(piece)}))
        later -= piece
    rest = {
        name: text.encode() for name, text in agent_sources().items() if f"/{ROOM}/" not in name
    }
    rest |= {f"{ours[name]}c": PYC_HEAD + marshal.dumps(module_code(ours[name])) for name in later}
    rest["__main__.py"] = PACKED_MAIN.encode()
    head = f"{OURS} {PROTOCOL}\n".encode()
    return head + marshal.dumps(tuple(pack)) + pack_archive(rest, zipfile.ZIP_DEFLATED)


def needed_modules(*names: str) -> set[str]:
    """These modules of the agent, and whatever they load at once."""
    texts = {module_name(name): text for name, text in agent_sources().items()}
    found: set[str] = {PACKAGE}
    waiting = [f"{PACKAGE}.{ROOM}.{name}" for name in names]
    while waiting:
        name = waiting.pop()
        if name in texts and name not in found:
            found.add(name)
            for room, *words in IMPORTS.findall(texts[name]):
                waiting += [
                    room,
                    *(f"{room}.{word}" for word in re.findall(r"\w+", " ".join(words))),
                ]
            waiting.append(name.rpartition(".")[0])
    return found


def module_name(name: str) -> str:
    """A module's name, by its place in the archive."""
    return name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def module_code(name: str) -> CodeType:
    """What our own Python has in its cache of the same source, mostly."""
    spec = importlib.util.find_spec(module_name(name))
    loader = spec.loader if spec else None
    found = loader.get_code(module_name(name)) if isinstance(loader, InspectLoader) else None
    return found or compile(agent_sources()[name], name, "exec", dont_inherit=True)


def package_sources(room: str) -> dict[str, str]:
    """The sources of one of our rooms, by their places in the archive."""
    found = {f"{PACKAGE}/__init__.py": ""}
    for file in (files(PACKAGE) / room).iterdir():
        if file.name.endswith(".py"):
            found[f"{PACKAGE}/{room}/{file.name}"] = file.read_text(encoding="utf-8")
    return found


def strip_docs(text: str) -> str:
    """Without docstrings and comments, which nobody reads there; every line keeps its number."""
    lines = text.split("\n")
    for node in documented_nodes(ast.parse(text)):
        first = node.body[0] if node.body else None
        if first is not None and ast.get_docstring(node, clean=False) is not None:
            end = first.end_lineno or first.lineno
            lines[first.lineno - 1 : end] = [""] * (end - first.lineno + 1)
            if len(node.body) == 1:
                lines[first.lineno - 1] = " " * first.col_offset + "pass"
    return "\n".join("" if line.lstrip().startswith("#") else line for line in lines)


def documented_nodes(
    node: ast.Module | ast.ClassDef | ast.FunctionDef,
) -> Iterator[ast.Module | ast.ClassDef | ast.FunctionDef]:
    """Whatever may begin with a docstring."""
    yield node
    for one in node.body:
        if isinstance(one, ast.ClassDef | ast.FunctionDef):
            yield from documented_nodes(one)


def pack_archive(contents: Mapping[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    """An archive of them, with nothing in it of where and when it was made. What a start loads is
    not compressed: that would have to be undone each time."""
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as archive:
        for name, text in sorted(contents.items()):
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.external_attr = 0o644 << 16
            entry.compress_type = method
            archive.writestr(entry, text, compresslevel=1)
    return whole.getvalue()
