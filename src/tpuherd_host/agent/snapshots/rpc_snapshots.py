"""The verbs that bring files to a host: state, receive, relay, switch; and send files back."""

import base64
import errno
import os
import shutil
import struct
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping

from tpuherd_host.agent.frames import BLOBS, STDOUT
from tpuherd_host.agent.snapshots import relay, tree_layout
from tpuherd_host.agent.snapshots.manifest import content_sizes, pack_rows, parse_row
from tpuherd_host.agent.snapshots.receive import (
    FillOrder,
    copy_target,
    fill_tree,
    parse_order,
    staging_path,
)
from tpuherd_host.agent.snapshots.safe_tree import open_tree
from tpuherd_host.agent.snapshots.stream import (
    BrokenStream,
    StreamContent,
    encode_stream,
    read_blocks,
)
from tpuherd_host.agent.snapshots.tree import (
    carry_over,
    error_text,
    is_row_intact,
    merge_tree,
    switch_tree,
)
from tpuherd_host.agent.snapshots.tree_layout import (
    Destination,
    find_destination,
    load_rows,
    lock_destination,
    open_blobs,
    write_record,
)
from tpuherd_host.agent.state_machine.messages import ThreadRead
from tpuherd_host.agent.state_machine.transition import CallRefused
from tpuherd_host.agent.threaded_rpc import CallAbandoned, ThreadedCall

AHEAD = 4 << 20  #: bytes that may be in flight to us: more than a connection holds
PASS_LEVEL = 0
BEAT_S = 5.0
TIDY_S = 3.0  #: after a switch: other simulated hosts of this machine may still be switching


def agent_folders(call: ThreadedCall) -> "tuple[Path, Path]":
    """Return the agent's folder and the login's home."""
    return Path(call.paths.folder), Path(call.paths.home)


@contextmanager
def send_heartbeats(call: ThreadedCall) -> Iterator[None]:
    """Show the caller inside the block that the work continues."""
    over = threading.Event()

    def beat() -> None:
        with suppress(CallAbandoned):
            while not over.wait(BEAT_S):
                call.write(STDOUT, b".")

    threading.Thread(target=beat, daemon=True).start()
    try:
        yield
    finally:
        over.set()


@contextmanager
def errors_as_refusals(what: str) -> Iterator[None]:
    """Turn expected errors into refusals."""
    try:
        yield
    except (ValueError, LookupError, TypeError, struct.error) as error:
        raise CallRefused("torn", f"{what}: {error}") from None
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise CallRefused("full", f"{what}: the disk is full") from None
        raise CallRefused("broken", f"{what}: {error_text(error)}") from None


# ---- before --------------------------------------------------------------------------------------


def report_destination(call: ThreadedCall) -> Mapping[str, Any]:
    """Return the destination's state, complete snapshots, and the port to listen on; or receive the
    changes at once if they start from the snapshot that is in place."""
    agent_folder, home = agent_folders(call)
    order = parse_order(call.content, home)
    base = call.content.get("base")
    if base:
        with errors_as_refusals("cannot inspect the destination"):
            current = find_destination(agent_folder, home, order.dest, force=order.force).current
            hoped = current != order.id and str(current).startswith(str(base))
            hoped = hoped and load_rows(agent_folder, current) is not None
        answer = receive_snapshot(call) if hoped else {}
        if answer.get("ready"):
            return {**answer, "only_home": order.only_home}
    address = call.content.get("address")
    port = None
    with errors_as_refusals("cannot inspect the destination"):
        if order.tops is not None:
            into = copy_target(agent_folder, home, order.dest, order.tops).into
            answer = {"dest": str(into)}
        else:
            answer = destination_state(agent_folder, home, order)
        if address is not None and not answer.get("intact"):
            port = relay.listen_for_parent(order.token, address)
    return {**answer, "only_home": order.only_home, **({"port": port} if port else {})}


def destination_state(agent_folder: Path, home: Path, order: FillOrder) -> Dict[str, Any]:
    spot = find_destination(agent_folder, home, order.dest, force=order.force)
    found = tree_layout.known_rows(agent_folder, order.id)
    dest = os.fsencode(str(spot.dest))
    if found and spot.current == order.id and all(is_row_intact(dest, one) for one in found):
        return {"dest": str(spot.dest), "intact": True}
    wanted = content_sizes(found)
    return {
        "dest": str(spot.dest),
        "intact": False,
        "whole": tree_layout.complete_snapshots(agent_folder)[: tree_layout.ROWS_KEPT],
        "held": encode_held_bits(open_blobs(agent_folder).missing_ids(wanted), list(wanted))
        if found
        else None,
    }


def encode_held_bits(missing: "set[bytes]", ids: List[bytes]) -> str:
    """Return one bit for each content, in the order of the rows: whether it is here."""
    found = bytearray((len(ids) + 7) // 8)
    for number, id in enumerate(ids):
        if id not in missing:
            found[number // 8] |= 1 << number % 8
    return base64.b64encode(bytes(found)).decode()


# ---- filling -------------------------------------------------------------------------------------


def receive_snapshot(call: ThreadedCall) -> Mapping[str, Any]:
    """Receive over this connection and pass it on."""
    relay.stop_listening(str(call.content.get("token")))
    call.paths.post(ThreadRead(call.connection, call.call, AHEAD))

    def read() -> bytes:
        while True:
            come = call.read()
            if come is not None and come[0] == BLOBS:
                return come[1] or b""

    with send_heartbeats(call):
        answer = fill_and_relay(call, read_blocks(read), call.content.get("children") or ())
        if call.content.get("switch") and answer["ready"]:
            return {**answer, **commit_snapshot(call)}
        return answer


def receive_from_host(call: ThreadedCall) -> Mapping[str, Any]:
    """Receive from another host and pass it on."""
    try:
        with send_heartbeats(call), relay.receive_stream(
            call.content["token"], call.raise_if_cut
        ) as (read, plan):
            return fill_and_relay(call, read_blocks(read), plan)
    except (BrokenStream, OSError) as error:
        return {"ready": None, "why": f"nothing arrived from the other hosts: {error}", "lost": []}


def fill_and_relay(
    call: ThreadedCall, coming: Iterator[bytes], plan: relay.RelayPlan
) -> Mapping[str, Any]:
    """Receive and pass on; a failure here does not stop the other hosts."""
    agent_folder, home = agent_folders(call)
    order = parse_order(call.content, home)
    tee = relay.Tee(plan)
    passed = tee.pass_through(coming)
    why = None
    try:
        with errors_as_refusals("cannot write the files"):
            fill_tree(agent_folder, home, order, passed)
    except CallRefused as refused:
        with suppress(BrokenStream, OSError):
            for _ in passed:
                pass
        if refused.word == "full":  # free the space again
            with suppress(OSError):
                tree_layout.prune_store(agent_folder, 0)
        if refused.word != "torn":
            raise
        why = refused.sentence
    finally:
        lost = tee.close()
    if call.cut:
        remove_staged(agent_folder, home, order)
    call.raise_if_cut()
    return {"ready": None if why else order.id, "why": why, "lost": lost}


def relay_snapshot(call: ThreadedCall) -> Mapping[str, Any]:
    """Pass on to other hosts what is complete here."""
    agent_folder, home = agent_folders(call)
    id = parse_order(call.content, home).id
    rows = load_rows(agent_folder, id)
    if rows is None:
        raise CallRefused("not-found", f"the snapshot {id[:12]} is not here")
    store = open_blobs(agent_folder)
    tee = relay.Tee(call.content["children"])
    try:
        with send_heartbeats(call), errors_as_refusals(
            "cannot pass the files on"
        ), store.shared_lock():
            numbers = {one.id: n for n, one in reversed(list(enumerate(map(parse_row, rows))))}
            wanted = content_sizes(map(parse_row, rows))
            pieces = (
                StreamContent(numbers[i], size, store.read_pieces(i)) for i, size in wanted.items()
            )
            head = {"base": None, "gone": 0, "give": len(wanted)}
            for block in encode_stream(head, pack_rows(rows), pieces, lambda: PASS_LEVEL):
                call.raise_if_cut()
                tee.put(block)
    finally:
        lost = tee.close()
    return {"lost": lost}


# ---- after ---------------------------------------------------------------------------------------


def commit_snapshot(call: ThreadedCall) -> Mapping[str, Any]:
    """Switch to the received files."""
    agent_folder, home = agent_folders(call)
    order = parse_order(call.content, home)
    relay.stop_listening(order.token)
    with errors_as_refusals("cannot switch to the new files"):
        if order.tops is not None:
            return place_copy(agent_folder, home, order, order.tops)
        spot = find_destination(agent_folder, home, order.dest, force=order.force)
        with lock_destination(spot):
            answer = switch_destination(
                agent_folder,
                find_destination(agent_folder, home, order.dest, force=order.force),
                order,
            )
    later = threading.Timer(TIDY_S, prune_destination, (agent_folder, home, order))
    later.daemon = True
    later.start()
    return answer


def prune_destination(agent_folder: Path, home: Path, order: FillOrder) -> None:
    with suppress(OSError, CallRefused):
        with lock_destination(find_destination(agent_folder, home, order.dest, force=True)):
            spot = find_destination(agent_folder, home, order.dest, force=True)
            write_record(spot, tree_layout.remove_old_trees(agent_folder, spot, spot.trees))
        tree_layout.prune_store(agent_folder)


def switch_destination(
    agent_folder: Path, spot: Destination, order: FillOrder
) -> Mapping[str, Any]:
    """Switch the destination to the new tree; files that the host made carry over."""
    new = spot.folder / order.token
    inodes = {tree["inode"] for tree in spot.trees}
    if not new.is_dir() or new.stat().st_ino in inodes:
        if spot.current == order.id:
            return {"switched": order.id, "was": spot.current, "stays": []}  # asked a second time
        raise CallRefused("not-found", "the received files are gone; sync again")
    spot.dest.parent.mkdir(parents=True, exist_ok=True)
    trees = [*spot.trees, {"id": order.id, "inode": new.stat().st_ino}]
    write_record(spot, trees)
    stays: List[bytes] = []
    if switch_tree(new, spot.dest):
        new = new.rename(new.with_name(f"was-{order.token}"))
        was, now = (tree_layout.known_rows(agent_folder, id) for id in (spot.current, order.id))
        stays = carry_over(os.fsencode(str(new)), os.fsencode(str(spot.dest)), was, now)
        if spot.current is None:
            if not any(new.iterdir()):
                new.rmdir()
            elif new.stat().st_ino not in inodes:  # added to with --force
                trees.insert(0, {"id": "", "inode": new.stat().st_ino})
    write_record(spot, trees)
    names = [path.decode(errors="replace") for path in stays[:20]]
    return {"switched": order.id, "was": spot.current, "stays": names}


def place_copy(
    agent_folder: Path, home: Path, order: FillOrder, tops: List[str]
) -> Mapping[str, Any]:
    """Move a copy's files into place."""
    goal = copy_target(agent_folder, home, order.dest, tops)
    tree = goal.tree / order.token
    rows = load_rows(agent_folder, order.id, part=True)
    if rows is None or not tree.is_dir():
        raise CallRefused("not-found", "the received files are gone; copy again")
    found = [parse_row(each) for each in rows]
    goal.into.mkdir(parents=True, exist_ok=True)
    with open_tree(os.fsencode(str(tree))) as staged, open_tree(
        os.fsencode(str(goal.into))
    ) as dest:
        merge_tree(staged, dest, found, goal.renamed)
    shutil.rmtree(str(tree), ignore_errors=True)
    return {"switched": order.id, "was": None, "stays": []}


def abandon_snapshot(call: ThreadedCall) -> Mapping[str, Any]:
    """Forget what was received and not switched to."""
    agent_folder, home = agent_folders(call)
    order = parse_order(call.content, home)
    relay.stop_listening(order.token)
    with errors_as_refusals("cannot remove the received files"):
        remove_staged(agent_folder, home, order)
        stands = order.tops is None
        stands = (
            stands
            and find_destination(agent_folder, home, order.dest, force=True).current == order.id
        )
    return {"stands": stands}


def remove_staged(agent_folder: Path, home: Path, order: FillOrder) -> None:
    """Remove what was received, unless it was switched to: then it is the previous tree."""
    tree = staging_path(agent_folder, home, order._replace(force=True))
    if order.tops is None and tree.exists():
        spot = find_destination(agent_folder, home, order.dest, force=True)
        if tree.stat().st_ino in {one["inode"] for one in spot.trees}:
            return
    shutil.rmtree(str(tree), ignore_errors=True)
