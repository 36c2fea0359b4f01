"""Runs on a host in place of its agent: it lies, floods, is silent, or stops in the middle.

It takes over the socket, ends the agent, and does to each connection what the file `mode` beside
the agent says.
"""

import json
import os
import signal
import socket
import struct
import threading
import time
from pathlib import Path

HEAD = struct.Struct(">IBI")
HELLO, CALL, REPLY, EVENT = 1, 2, 3, 8


def pack(kind: int, id: int, content: object) -> bytes:
    payload = json.dumps(content).encode()
    return HEAD.pack(len(payload), kind, id) + payload


def work(id: str, phase: str) -> "dict[str, object]":
    return {
        "id": id, "kind": "attempt", "phase": phase, "slot": id.rpartition("-a")[0], "number": 1,
        "stage": 0, "stages": 1, "stage_name": "run", "asked": 1.0, "started": 2.0, "ended": 3.0,
        "exit": 0, "signal": None, "stopped": False, "deadman": False, "why": "", "tail": ["x"],
        "length": 10**12, "logged": 4.0, "report": {"step": 10**15, "total": 1, "loss": 1e308},
    }  # fmt: skip


def lies(others: "list[str]") -> "list[bytes]":
    """The end of attempts of other hosts, notices, steps, and the end of its own."""
    found = []
    for id in others:
        for phase in ("ended", "running"):
            found.append(pack(EVENT, 0, {"event": "ended", **work(id, phase)}))
            found.append(pack(EVENT, 0, {"event": "attempt", **work(id, phase)}))
        found.append(pack(EVENT, 0, {"event": "step", "attempt": id, "report": {"step": 10**15}}))
    found.append(pack(EVENT, 0, {"event": "notice", "what": "preempted", "value": "TRUE"}))
    found.append(pack(EVENT, 0, {"event": "heartbeat", "attempts": [], "epoch": 10**18}))
    return found


def serve(line: socket.socket, agent: str) -> None:
    hello = {"protocol": 1, "agent": agent, "python": "3.11", "host": "liar", "boot": "b",
             "user": "me", "home": str(Path.home()), "pid": 1, "zlib": "1"}  # fmt: skip
    mode, *others = Path("mode").read_text().split()
    try:
        if mode == "half":
            line.sendall(pack(HELLO, 0, hello) + HEAD.pack(1 << 19, EVENT, 0) + b'{"event": "h')
            time.sleep(3600)
        if mode == "never":
            time.sleep(3600)
        line.sendall(pack(HELLO, 0, hello))
        if mode == "lie":
            for message in lies(others) * 50:
                line.sendall(message)
            answer(line)
        if mode == "flood":
            flood(line)
    except OSError:
        pass


def answer(line: socket.socket) -> None:
    """To every call the same."""
    text = b""
    while True:
        piece = line.recv(1 << 16)
        if not piece:
            return
        text += piece
        while len(text) >= HEAD.size:
            length, kind, id = HEAD.unpack_from(text)
            if len(text) < HEAD.size + length:
                break
            text = text[HEAD.size + length :]
            if kind == CALL:
                lie = {"time": 1e300, "epoch": 10**18, "attempts": [work("x-0-a1-7kq", "running")]}
                line.sendall(pack(REPLY, id, lie))


def flood(line: socket.socket) -> None:
    """As many events as anybody takes, some of them nearly a megabyte long."""
    small = b"".join(pack(EVENT, 0, {"event": "heartbeat", "n": n}) for n in range(1000))
    large = pack(EVENT, 0, {"event": "sample", "why": "x" * 1_000_000})
    while True:
        line.sendall(small * 20)
        line.sendall(large)


def main() -> None:
    home = Path.home() / ".tpuherd"
    os.chdir(home)
    [pyz] = home.glob("agent-*.pyz")
    Path("mode").write_text("half")
    door = socket.socket(socket.AF_UNIX)
    door.bind("new.sock")
    door.listen(100)
    Path("new.sock").rename("agent.sock")
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            name = (folder / "comm").read_text().strip()
            here = (folder / "cwd").readlink()
        except OSError:
            continue
        if name in ("herd-agent", "herd-supervisor") and here == home.resolve():
            os.kill(int(folder.name), signal.SIGKILL)
    Path("lying").touch()
    while True:
        line = door.accept()[0]
        agent = pyz.stem[len("agent-") :]
        threading.Thread(target=serve, args=(line, agent), daemon=True).start()


if __name__ == "__main__":
    main()
