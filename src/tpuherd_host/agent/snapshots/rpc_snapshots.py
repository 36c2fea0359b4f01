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

AHEAD = 4 << 20  #: bytes that may be under way to us: what a line holds, and more
PASS_LEVEL = 1
BEAT_S = 5.0
TIDY_S = 3.0  #: after a switch: other hosts of the same machine may still be at it


def agent_folders(talk: ThreadedCall) -> "tuple[Path, Path]":
    """Return the agent's folder and the login's home."""
    return Path(talk.house.folder), Path(talk.house.home)


@contextmanager
def send_heartbeats(talk: ThreadedCall) -> Iterator[None]:
    """Show the caller inside the block that the work continues."""
    over = threading.Event()

    def beat() -> None:
        with suppress(CallAbandoned):
            while not over.wait(BEAT_S):
                talk.write(STDOUT, b".")

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


def have(talk: ThreadedCall) -> Mapping[str, Any]:
    """Return the destination's state, complete snapshots, and the port to listen on; or receive the
    changes at once if they start from the snapshot that is in place."""
    house, home = agent_folders(talk)
    order = parse_order(talk.content)
    base = talk.content.get("base")
    if base:
        with errors_as_refusals("cannot inspect the destination"):
            current = find_destination(house, home, order.dest, force=order.force).current
            hoped = current != order.id and str(current).startswith(str(base))
            hoped = hoped and load_rows(house, current) is not None
        answer = receive(talk) if hoped else {}
        if answer.get("ready"):
            return answer
    address = talk.content.get("address")
    port = None
    with errors_as_refusals("cannot inspect the destination"):
        if order.tops is not None:
            into = copy_target(house, home, order.dest, order.tops).into
            answer = {"dest": str(into)}
        else:
            answer = destination_state(house, home, order)
        if address is not None and not answer.get("intact"):
            port = relay.listen_for_parent(order.token, address)
    return {**answer, "port": port} if port else answer


def destination_state(house: Path, home: Path, order: FillOrder) -> Dict[str, Any]:
    spot = find_destination(house, home, order.dest, force=order.force)
    found = tree_layout.known_rows(house, order.id)
    dest = os.fsencode(str(spot.dest))
    if found and spot.current == order.id and all(is_row_intact(dest, one) for one in found):
        return {"dest": str(spot.dest), "intact": True}
    wanted = content_sizes(found)
    return {
        "dest": str(spot.dest),
        "intact": False,
        "whole": tree_layout.complete_snapshots(house)[: tree_layout.ROWS_KEPT],
        "held": encode_held_bits(open_blobs(house).missing_ids(wanted), list(wanted))
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


def receive(talk: ThreadedCall) -> Mapping[str, Any]:
    """Receive over this connection and pass it on."""
    relay.stop_listening(str(talk.content.get("token")))
    talk.house.post(ThreadRead(talk.connection, talk.call, AHEAD))

    def read() -> bytes:
        while True:
            come = talk.read()
            if come is not None and come[0] == BLOBS:
                return come[1] or b""

    with send_heartbeats(talk):
        answer = fill_and_relay(talk, read_blocks(read), talk.content.get("children") or ())
        if talk.content.get("switch") and answer["ready"]:
            return {**answer, **commit(talk)}
        return answer


def follow(talk: ThreadedCall) -> Mapping[str, Any]:
    """Receive from another host and pass it on."""
    try:
        with send_heartbeats(talk), relay.receive_stream(
            talk.content["token"], talk.raise_if_cut
        ) as (read, plan):
            return fill_and_relay(talk, read_blocks(read), plan)
    except (BrokenStream, OSError) as error:
        return {"ready": None, "why": f"nothing arrived from the other hosts: {error}", "lost": []}


def fill_and_relay(
    talk: ThreadedCall, coming: Iterator[bytes], plan: relay.RelayPlan
) -> Mapping[str, Any]:
    """Receive and pass on; a failure here does not stop the other hosts."""
    house, home = agent_folders(talk)
    order = parse_order(talk.content)
    tee = relay.Tee(plan)
    passed = tee.pass_through(coming)
    why = None
    try:
        with errors_as_refusals("cannot write the files"):
            fill_tree(house, home, order, passed)
    except CallRefused as refused:
        with suppress(BrokenStream, OSError):
            for _ in passed:
                pass
        if refused.word == "full":  # give back what came of it
            with suppress(OSError):
                tree_layout.prune_store(house, 0)
        if refused.word != "torn":
            raise
        why = refused.sentence
    finally:
        lost = tee.close()
    if talk.cut:
        remove_staged(house, home, order)
    talk.raise_if_cut()
    return {"ready": None if why else order.id, "why": why, "lost": lost}


def feed(talk: ThreadedCall) -> Mapping[str, Any]:
    """Pass on to other hosts what is complete here."""
    house, _ = agent_folders(talk)
    id = parse_order(talk.content).id
    rows = load_rows(house, id)
    if rows is None:
        raise CallRefused("not-found", f"the snapshot {id[:12]} is not here")
    store = open_blobs(house)
    tee = relay.Tee(talk.content["children"])
    try:
        with send_heartbeats(talk), errors_as_refusals(
            "cannot pass the files on"
        ), store.shared_lock():
            numbers = {one.id: n for n, one in reversed(list(enumerate(map(parse_row, rows))))}
            wanted = content_sizes(map(parse_row, rows))
            pieces = (
                StreamContent(numbers[i], size, store.read_pieces(i)) for i, size in wanted.items()
            )
            head = {"base": None, "gone": 0, "give": len(wanted)}
            for block in encode_stream(head, pack_rows(rows), pieces, lambda: PASS_LEVEL):
                talk.raise_if_cut()
                tee.put(block)
    finally:
        lost = tee.close()
    return {"lost": lost}


# ---- after ---------------------------------------------------------------------------------------


def commit(talk: ThreadedCall) -> Mapping[str, Any]:
    """Switch to the received files."""
    house, home = agent_folders(talk)
    order = parse_order(talk.content)
    relay.stop_listening(order.token)
    with errors_as_refusals("cannot switch to the new files"):
        if order.tops is not None:
            return place_copy(house, home, order, order.tops)
        spot = find_destination(house, home, order.dest, force=order.force)
        with lock_destination(spot):
            answer = switch_destination(
                house, find_destination(house, home, order.dest, force=order.force), order
            )
    later = threading.Timer(TIDY_S, prune_destination, (house, home, order))
    later.daemon = True
    later.start()
    return answer


def prune_destination(house: Path, home: Path, order: FillOrder) -> None:
    with suppress(OSError, CallRefused):
        with lock_destination(find_destination(house, home, order.dest, force=True)):
            spot = find_destination(house, home, order.dest, force=True)
            write_record(spot, tree_layout.remove_old_trees(house, spot, spot.trees))
        tree_layout.prune_store(house)


def switch_destination(house: Path, spot: Destination, order: FillOrder) -> Mapping[str, Any]:
    """Switch the destination to the new tree; files that the host made carry over."""
    new = spot.folder / order.token
    inodes = {tree["inode"] for tree in spot.trees}
    if not new.is_dir() or new.stat().st_ino in inodes:
        if spot.current == order.id:
            return {"switched": order.id, "was": spot.current, "stays": []}  # asked twice
        raise CallRefused("not-found", "the received files are gone; sync again")
    spot.dest.parent.mkdir(parents=True, exist_ok=True)
    trees = [*spot.trees, {"id": order.id, "inode": new.stat().st_ino}]
    write_record(spot, trees)
    stays: List[bytes] = []
    if switch_tree(new, spot.dest):
        new = new.rename(new.with_name(f"was-{order.token}"))
        was, now = (tree_layout.known_rows(house, id) for id in (spot.current, order.id))
        stays = carry_over(os.fsencode(str(new)), os.fsencode(str(spot.dest)), was, now)
        if spot.current is None:
            if not any(new.iterdir()):
                new.rmdir()
            elif new.stat().st_ino not in inodes:  # mixed in with --force
                trees.insert(0, {"id": "", "inode": new.stat().st_ino})
    write_record(spot, trees)
    names = [path.decode(errors="replace") for path in stays[:20]]
    return {"switched": order.id, "was": spot.current, "stays": names}


def place_copy(house: Path, home: Path, order: FillOrder, tops: List[str]) -> Mapping[str, Any]:
    """Move a copy's files into place."""
    goal = copy_target(house, home, order.dest, tops)
    tree = goal.tree / order.token
    rows = load_rows(house, order.id, part=True)
    if rows is None or not tree.is_dir():
        raise CallRefused("not-found", "the received files are gone; copy again")
    found = [parse_row(each) for each in rows]
    merge_tree(os.fsencode(str(tree)), os.fsencode(str(goal.into)), found, goal.renamed)
    shutil.rmtree(str(tree), ignore_errors=True)
    return {"switched": order.id, "was": None, "stays": []}


def abandon(talk: ThreadedCall) -> Mapping[str, Any]:
    """Forget what was received and not switched to."""
    house, home = agent_folders(talk)
    order = parse_order(talk.content)
    relay.stop_listening(order.token)
    with errors_as_refusals("cannot remove the received files"):
        remove_staged(house, home, order)
        stands = order.tops is None
        stands = (
            stands and find_destination(house, home, order.dest, force=True).current == order.id
        )
    return {"stands": stands}


def remove_staged(house: Path, home: Path, order: FillOrder) -> None:
    """Remove what was received, unless it was switched to: then it is the previous tree."""
    tree = staging_path(house, home, order._replace(force=True))
    if order.tops is None and tree.exists():
        spot = find_destination(house, home, order.dest, force=True)
        if tree.stat().st_ino in {one["inode"] for one in spot.trees}:
            return
    shutil.rmtree(str(tree), ignore_errors=True)
