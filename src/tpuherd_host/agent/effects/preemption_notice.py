"""Watches the host's metadata server for notices that the host is going away."""

import _thread
import time
from typing import Callable, Tuple

from tpuherd_host.agent.metadata_requests import get_key

KEYS = ("preempted", "maintenance-event")
ANSWER_S = 0.5  #: for an answer that is due at once, when there is little time
#: Between tries: the server of a new host starts late, and other hosts have none.
PATIENCE_S = (0.25, 300.0)


def report_current(key: str, where: Tuple[str, int], tell: Callable[[str, str], None]) -> None:
    """Report the key's value if the server answers at once."""
    try:
        found = get_key(key, where, "", (ANSWER_S, ANSWER_S))
    except OSError:
        return
    if found is not None:
        tell(key, found[0])


def watch_key(key: str, where: Tuple[str, int], tell: Callable[[str, str], None]) -> None:
    """Report each change of a key, forever."""
    tag = ""
    patience_s = PATIENCE_S[0]
    while True:
        try:
            found = get_key(key, where, tag)
        except OSError:
            found = None
        if found is None:
            tag = ""
            time.sleep(patience_s)
            patience_s = min(patience_s * 2, PATIENCE_S[1])
            continue
        patience_s = PATIENCE_S[0]
        if found[1] == tag:
            time.sleep(0.05)  # do not spin if the server answers at once
        tag = found[1]
        tell(key, found[0])


def start_watchers(where: Tuple[str, int], tell: Callable[[str, str], None]) -> None:
    """Start a thread for each key."""
    for key in KEYS:
        _thread.start_new_thread(watch_key, (key, where, tell))
