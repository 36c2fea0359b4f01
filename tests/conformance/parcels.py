"""A small agent for tests of the way to it: it speaks frames and does next to nothing."""

import hashlib
import io
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

from tpuherd_host import agent
from tpuherd_host.agent.frames import PROTOCOL

MAIN = """
import json, os, socket, sys, time
from tpuherd_host.agent import frames
from tpuherd_host.agent.frames import *

def send(frame):
    sys.stdout.buffer.write(frame)
    sys.stdout.buffer.flush()

def main():
    reader = Reader()
    hello = {"protocol": PROTOCOL, "host": socket.gethostname(), "pid": os.getpid(),
             "user": os.environ.get("USER", ""), "argv": sys.argv[1:]}
    send(said(HELLO, 0, hello))
    calls = {}
    while True:
        piece = os.read(0, 1 << 16)
        if not piece:
            return
        for frame in reader.feed(piece):
            take(frame, calls)

def take(frame, calls):
    if frame.kind == CALL:
        calls[frame.id] = frame.content
        begin(frame.id, frame.content)
    elif frame.kind == DATA and calls.get(frame.id, {}).get("verb") == "echo":
        send(packed(DATA, frame.id, frame.payload))
        send(credit(frame.id, len(frame.payload) - 1))
    elif frame.kind == END and frame.id in calls:
        del calls[frame.id]
        send(said(REPLY, frame.id, {}))
    elif frame.kind == CANCEL and calls.pop(frame.id, None):
        send(said(FAIL, frame.id, {"error": "cancelled", "sentence": "cancelled"}))

def begin(id, asked):
    verb = asked["verb"]
    if verb == "ping":
        send(said(REPLY, id, {"host": socket.gethostname()}))
    elif verb == "crash":
        sys.exit("the agent fell over")
    elif verb == "say":
        for number in range(asked["pieces"]):
            send(data(id, STDOUT, b"%d\\n" % number))
    elif verb != "echo":
        send(said(FAIL, id, {"error": "unknown", "sentence": "no such verb: " + verb}))

main()
"""


@dataclass(frozen=True)
class Small:
    """It, as it is sent to hosts."""

    name: str
    content: bytes

    def sent(self, python: str) -> bytes:
        return zlib.compress(self.content)


def small(mark: str = "", protocol: int = PROTOCOL) -> Small:
    """The small agent; another mark makes another one."""
    room = Path(agent.__file__).parent
    main = MAIN.replace('"protocol": PROTOCOL', f'"protocol": {protocol}')
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("tpuherd_host/__init__.py", "")
        archive.writestr("tpuherd_host/agent/__init__.py", "")
        for name in ("frames.py", "thin.py"):
            archive.writestr(f"tpuherd_host/agent/{name}", (room / name).read_bytes())
        archive.writestr("__main__.py", main + f"\n# {mark}\n")
    content = packed.getvalue()
    return Small(f"agent-0.{hashlib.sha256(content).hexdigest()[:16]}.pyz", content)
