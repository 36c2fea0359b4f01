"""A host receives code under the oldest and the newest Python that hosts have."""

import subprocess
from pathlib import Path

import pytest

from tests.interpreters import find_python
from tests.rules.test_old_pythons import SRC

pytestmark = pytest.mark.real

SCRIPT = r"""
import hashlib, json, os, stat, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from tpuherd_host.agent.frames import BLOBS
from tpuherd_host.agent.snapshots import relay, rpc_snapshots, send_files
from tpuherd_host.agent.snapshots.manifest import pack_row, pack_rows, rows_id
from tpuherd_host.agent.snapshots.stream import StreamContent, encode_stream
from tpuherd_host.agent.state_machine.state import AgentState
from tpuherd_host.agent.threaded_rpc import AgentPaths, ThreadedCall

home = Path(sys.argv[2])
said = []
house = AgentPaths(str(home / ".tpuherd"), str(home), {}, AgentState, said.append)

def call(verb, pieces=(), **content):
    talk = ThreadedCall(house, content, 1, 1)
    for piece in pieces:
        talk.add_piece(BLOBS, piece)
    return verb(talk)

for turn in (b"one", b"two" * 100000, b""):
    files = {b"a": turn, b"d/b": b"x", b"link": b"d"}
    modes = {b"a": 0o100755, b"d/b": 0o100644, b"link": 0o120777}
    id = lambda content: hashlib.sha256(content).digest()
    rows = sorted(pack_row(p, modes[p], len(c), id(c)) for p, c in files.items())
    order = {"id": rows_id(rows).hex(), "dest": "c", "token": "t%d" % len(turn), "address": ""}
    answer = call(rpc_snapshots.report_destination, **order)
    assert answer["port"] and not answer["intact"], answer
    found = [StreamContent(n, len(c), [c]) for n, (p, c) in enumerate(sorted(files.items()))]
    head = {"id": order["id"], "base": None, "gone": 0, "give": 3}
    token = {"token": order["token"]}
    data = encode_stream(head, pack_rows(rows), found, lambda: 6)
    answer = call(rpc_snapshots.receive_snapshot, data, **token)
    assert answer["ready"] == order["id"], answer
    assert call(rpc_snapshots.commit_snapshot, **token)["switched"] == order["id"]
    assert (home / "c/a").read_bytes() == turn and os.access(str(home / "c/a"), os.X_OK)
    assert os.readlink(str(home / "c/link")) == "d"
    assert call(rpc_snapshots.report_destination, **dict(order, token="again"))["intact"]
assert not relay.LISTENERS, relay.LISTENERS
call(send_files.give_files, paths=["c/*"])
assert sum(len(each.piece) for each in said if hasattr(each, "piece")) > 100
print("%d.%d" % sys.version_info[:2])
"""


@pytest.mark.parametrize("version", ["3.8", "3.9", "3.10", "3.12", "3.13"])
def test_a_host_with_an_old_python_receives_code(version: str, tmp_path: Path) -> None:
    interpreter = find_python(version)
    if interpreter is None:
        pytest.skip(f"needs Python {version}")
    words = [interpreter, "-I", "-W", "error", "-c", SCRIPT, str(SRC), str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.strip()) == (0, version), done.stderr
