"""The verbs that fill a host: what it has, receive, pass on, switch; and give files back."""

import base64
import errno
import os
import shutil
import struct
import threading
from contextlib import contextmanager, suppress
from pathlib import Path

from tpuherd_host.agent import relay, snapshots_place
from tpuherd_host.agent.frames import BLOBS, STDOUT
from tpuherd_host.agent.snapshots_fill import Order, filled, ordered, staged, target
from tpuherd_host.agent.snapshots_place import Place, alone, blobs, place, recorded, rows_of
from tpuherd_host.agent.snapshots_rows import contents, packed, parsed
from tpuherd_host.agent.snapshots_stream import Content, Torn, blocks, stream
from tpuherd_host.agent.snapshots_tree import carry, merge, same, switch, told
from tpuherd_host.agent.thin import Any, Dict, Iterator, List, Mapping
from tpuherd_host.agent.threads import Cut, Talk
from tpuherd_host.agent.turn import Refused
from tpuherd_host.agent.words import Consumed

AHEAD = 4 << 20  #: bytes that may be under way to us: what a line holds, and more
PASS_LEVEL = 1
BEAT_S = 5.0
TIDY_S = 3.0  #: after a switch: other hosts of the same machine may still be at it


def rooms(talk: Talk) -> "tuple[Path, Path]":
    """The agent's folder and the login's home."""
    return Path(talk.house.folder), Path(talk.house.home)


@contextmanager
def alive(talk: Talk) -> Iterator[None]:
    """Signs of life as long as the block lasts: the work may take long."""
    over = threading.Event()

    def beat() -> None:
        with suppress(Cut):
            while not over.wait(BEAT_S):
                talk.write(STDOUT, b".")

    threading.Thread(target=beat, daemon=True).start()
    try:
        yield
    finally:
        over.set()


@contextmanager
def plainly(what: str) -> Iterator[None]:
    """What can go wrong, as sentences."""
    try:
        yield
    except (ValueError, LookupError, TypeError, struct.error) as error:
        raise Refused("torn", f"{what}: {error}") from None
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise Refused("full", f"{what}: the disk is full") from None
        raise Refused("broken", f"{what}: {told(error)}") from None


# ---- before --------------------------------------------------------------------------------------


def have(talk: Talk) -> Mapping[str, Any]:
    """What stands at a destination, which snapshots are here whole, and where to listen; or, where
    the snapshot stands from which the changes come along, filled at once."""
    house, home = rooms(talk)
    order = ordered(talk.content)
    base = talk.content.get("base")
    if base:
        with plainly("the destination can't be looked at"):
            current = place(house, home, order.dest, force=order.force).current
            hoped = current != order.id and str(current).startswith(str(base))
            hoped = hoped and rows_of(house, current) is not None
        answer = receive(talk) if hoped else {}
        if answer.get("ready"):
            return answer
    address = talk.content.get("address")
    port = None
    with plainly("the destination can't be looked at"):
        if order.tops is not None:
            into = target(house, home, order.dest, order.tops).into
            answer = {"dest": str(into)}
        else:
            answer = stood(house, home, order)
        if address is not None and not answer.get("intact"):
            port = relay.listen(order.token, address)
    return {**answer, "port": port} if port else answer


def stood(house: Path, home: Path, order: Order) -> Dict[str, Any]:
    """What the destination of a snapshot has."""
    spot = place(house, home, order.dest, force=order.force)
    found = snapshots_place.known(house, order.id)
    dest = os.fsencode(str(spot.dest))
    if found and spot.current == order.id and all(same(dest, one) for one in found):
        return {"dest": str(spot.dest), "intact": True}
    wanted = contents(found)
    return {
        "dest": str(spot.dest),
        "intact": False,
        "whole": snapshots_place.whole(house)[: snapshots_place.ROWS_KEPT],
        "held": bits(blobs(house).missing(wanted), list(wanted)) if found else None,
    }


def bits(missing: "set[bytes]", ids: List[bytes]) -> str:
    """Which contents are here, one bit each, in the order of the rows."""
    found = bytearray((len(ids) + 7) // 8)
    for number, id in enumerate(ids):
        if id not in missing:
            found[number // 8] |= 1 << number % 8
    return base64.b64encode(bytes(found)).decode()


# ---- filling -------------------------------------------------------------------------------------


def receive(talk: Talk) -> Mapping[str, Any]:
    """Be filled over this link, and pass it on."""
    relay.forget(str(talk.content.get("token")))
    talk.house.post(Consumed(talk.connection, talk.call, AHEAD))

    def read() -> bytes:
        while True:
            come = talk.read()
            if come is not None and come[0] == BLOBS:
                return come[1] or b""

    with alive(talk):
        answer = fill(talk, blocks(read), talk.content.get("children") or ())
        if talk.content.get("switch") and answer["ready"]:
            return {**answer, **commit(talk)}
        return answer


def follow(talk: Talk) -> Mapping[str, Any]:
    """Be filled by another host, and pass it on."""
    try:
        with alive(talk), relay.heard(talk.content["token"], talk.check) as (read, plan):
            return fill(talk, blocks(read), plan)
    except (Torn, OSError) as error:
        return {"ready": None, "why": f"nothing came from the other hosts: {error}", "lost": []}


def fill(talk: Talk, coming: Iterator[bytes], plan: relay.Plan) -> Mapping[str, Any]:
    """Pass on and fill; whatever goes wrong here, the others get theirs."""
    house, home = rooms(talk)
    order = ordered(talk.content)
    tee = relay.Tee(plan)
    passed = tee.over(coming)
    why = None
    try:
        with plainly("it could not be filled"):
            filled(house, home, order, passed)
    except Refused as refused:
        with suppress(Torn, OSError):
            for _ in passed:
                pass
        if refused.word == "full":  # give back what came of it
            with suppress(OSError):
                snapshots_place.swept(house, 0)
        if refused.word != "torn":
            raise
        why = refused.sentence
    finally:
        lost = tee.close()
    if talk.cut:
        dropped(house, home, order)
    talk.check()
    return {"ready": None if why else order.id, "why": why, "lost": lost}


def feed(talk: Talk) -> Mapping[str, Any]:
    """Pass on to other hosts what is here whole."""
    house, _ = rooms(talk)
    id = ordered(talk.content).id
    rows = rows_of(house, id)
    if rows is None:
        raise Refused("not-found", f"the snapshot {id[:12]} is not here")
    store = blobs(house)
    tee = relay.Tee(talk.content["children"])
    try:
        with alive(talk), plainly("it could not be passed on"), store.held():
            numbers = {one.id: n for n, one in reversed(list(enumerate(map(parsed, rows))))}
            wanted = contents(map(parsed, rows))
            pieces = (Content(numbers[i], size, store.pieces(i)) for i, size in wanted.items())
            head = {"base": None, "gone": 0, "give": len(wanted)}
            for block in stream(head, packed(rows), pieces, lambda: PASS_LEVEL):
                talk.check()
                tee.put(block)
    finally:
        lost = tee.close()
    return {"lost": lost}


# ---- after ---------------------------------------------------------------------------------------


def commit(talk: Talk) -> Mapping[str, Any]:
    """Put what was filled in its place, at once."""
    house, home = rooms(talk)
    order = ordered(talk.content)
    relay.forget(order.token)
    with plainly("it could not be put in its place"):
        if order.tops is not None:
            return laid(house, home, order, order.tops)
        spot = place(house, home, order.dest, force=order.force)
        with alone(spot):
            answer = switched(house, place(house, home, order.dest, force=order.force), order)
    later = threading.Timer(TIDY_S, tidy, (house, home, order))
    later.daemon = True
    later.start()
    return answer


def tidy(house: Path, home: Path, order: Order) -> None:
    """What is too old goes."""
    with suppress(OSError, Refused):
        with alone(place(house, home, order.dest, force=True)):
            spot = place(house, home, order.dest, force=True)
            recorded(spot, snapshots_place.tidied(house, spot, spot.trees))
        snapshots_place.swept(house)


def switched(house: Path, spot: Place, order: Order) -> Mapping[str, Any]:
    """The new tree at the destination; what the host made goes on in it."""
    new = spot.folder / order.token
    inodes = {tree["inode"] for tree in spot.trees}
    if not new.is_dir() or new.stat().st_ino in inodes:
        if spot.current == order.id:
            return {"switched": order.id, "was": spot.current, "stays": []}  # asked twice
        raise Refused("not-found", "what was to be put in its place is gone; sync again")
    spot.dest.parent.mkdir(parents=True, exist_ok=True)
    trees = [*spot.trees, {"id": order.id, "inode": new.stat().st_ino}]
    recorded(spot, trees)
    stays: List[bytes] = []
    if switch(new, spot.dest):
        new = new.rename(new.with_name(f"was-{order.token}"))
        was, now = (snapshots_place.known(house, id) for id in (spot.current, order.id))
        stays = carry(os.fsencode(str(new)), os.fsencode(str(spot.dest)), was, now)
        if spot.current is None:
            if not any(new.iterdir()):
                new.rmdir()
            elif new.stat().st_ino not in inodes:  # mixed in with --force
                trees.insert(0, {"id": "", "inode": new.stat().st_ino})
    recorded(spot, trees)
    names = [path.decode(errors="replace") for path in stays[:20]]
    return {"switched": order.id, "was": spot.current, "stays": names}


def laid(house: Path, home: Path, order: Order, tops: List[str]) -> Mapping[str, Any]:
    """Files of a copy, each in its place."""
    goal = target(house, home, order.dest, tops)
    tree = goal.tree / order.token
    rows = rows_of(house, order.id, part=True)
    if rows is None or not tree.is_dir():
        raise Refused("not-found", "what was to be copied is gone; copy again")
    found = [parsed(each) for each in rows]
    merge(os.fsencode(str(tree)), os.fsencode(str(goal.into)), found, goal.renamed)
    shutil.rmtree(str(tree), ignore_errors=True)
    return {"switched": order.id, "was": None, "stays": []}


def abandon(talk: Talk) -> Mapping[str, Any]:
    """Forget what was filled but never put in its place."""
    house, home = rooms(talk)
    order = ordered(talk.content)
    relay.forget(order.token)
    with plainly("it could not be removed"):
        dropped(house, home, order)
        stands = order.tops is None
        stands = stands and place(house, home, order.dest, force=True).current == order.id
    return {"stands": stands}


def dropped(house: Path, home: Path, order: Order) -> None:
    """Remove what was filled, unless it has had its place already: then it is the tree before."""
    tree = staged(house, home, order._replace(force=True))
    if order.tops is None and tree.exists():
        spot = place(house, home, order.dest, force=True)
        if tree.stat().st_ino in {one["inode"] for one in spot.trees}:
            return
    shutil.rmtree(str(tree), ignore_errors=True)
