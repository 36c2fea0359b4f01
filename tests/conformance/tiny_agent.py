"""A small agent for tests of connections: it understands frames and does next to nothing."""

import hashlib
import io
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

from tpuherd_host import agent
from tpuherd_host.agent.frames import PROTOCOL

MAIN = """
import json, os, socket, struct, sys, time
from tpuherd_host.agent import frames
from tpuherd_host.agent.frames import *

def send(frame):
    sys.stdout.buffer.write(frame)
    sys.stdout.buffer.flush()

def main():
    reader = FrameReader()
    hello = {"protocol": PROTOCOL, "host": socket.gethostname(), "pid": os.getpid(),
             "user": os.environ.get("USER", ""), "argv": sys.argv[1:]}
    send(pack_json(HELLO, 0, hello))
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
        waiting.setdefault(frame.id, []).append(frame.payload)
        echo(frame.id)
    elif frame.kind == CREDIT:
        windows[frame.id] = windows.get(frame.id, WINDOW) + struct.unpack(">I", frame.payload)[0]
        echo(frame.id)
    elif frame.kind == END and frame.id in calls:
        del calls[frame.id]
        send(pack_json(REPLY, frame.id, {}))
    elif frame.kind == CANCEL and calls.pop(frame.id, None):
        send(pack_json(FAIL, frame.id, {"error": "cancelled", "sentence": "cancelled"}))

windows, waiting = {}, {}

def echo(id):  # as much as the other side has room for
    left = waiting.get(id, [])
    while left and windows.get(id, WINDOW) >= len(left[0]) - 1:
        payload = left.pop(0)
        windows[id] = windows.get(id, WINDOW) - (len(payload) - 1)
        send(pack_frame(DATA, id, payload))
        send(pack_credit(id, len(payload) - 1))

def begin(id, asked):
    verb = asked["verb"]
    if verb == "ping":
        send(pack_json(REPLY, id, {"host": socket.gethostname()}))
    elif verb == "crash":
        sys.exit("the agent fell over")
    elif verb == "say":
        for number in range(asked["pieces"]):
            send(pack_data(id, STDOUT, b"%d\\n" % number))
    elif verb != "echo":
        send(pack_json(FAIL, id, {"error": "unknown", "sentence": "no such verb: " + verb}))

main()
"""


@dataclass(frozen=True)
class Small:
    """It, as it is sent to hosts."""

    name: str
    content: bytes

    @property
    def compressed(self) -> bytes:
        return zlib.compress(self.content)


def small(mark: str = "", protocol: int = PROTOCOL) -> Small:
    """The small agent; another mark makes another one."""
    room = Path(agent.__file__).parent
    main = MAIN.replace('"protocol": PROTOCOL', f'"protocol": {protocol}')
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("tpuherd_host/__init__.py", "")
        archive.writestr("tpuherd_host/agent/__init__.py", "")
        archive.writestr("tpuherd_host/agent/frames.py", (room / "frames.py").read_bytes())
        archive.writestr("__main__.py", main + f"\n# {mark}\n")
    content = packed.getvalue()
    return Small(f"agent-0.{hashlib.sha256(content).hexdigest()[:16]}.pyz", content)
