"""Reports the progress of a command: `python3 -m tpuherd_host.report step=3 loss=2`.

For programs without a `Run` of tpuherd_host.train: a shell, another framework. From Python:
`from tpuherd_host.report import report; report(step=3, loss=2.1)`.
"""

import json
import os
import socket
import sys
from typing import Dict, List, Optional

USAGE = "usage: python3 -m tpuherd_host.report step=120 loss=2.31 … [complete]"
COMPLETE = "complete"


def report(step: Optional[int] = None, complete: bool = False, **metrics: float) -> bool:
    """Send a report and return whether it was sent; without an agent it does nothing.

    `complete`: the program is done; an end after it does not count as stopped.
    """
    place, attempt = os.environ.get("HERD_STEPS"), os.environ.get("HERD_WORK", "")
    if not place:
        return False
    message = dict({} if step is None else {"step": int(step)}, attempt=attempt)
    message.update({name: float(value) for name, value in metrics.items()})
    message.update({"complete": True} if complete else {})
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.setblocking(False)
        try:
            line.sendto(json.dumps(message).encode(), place)
        except OSError:  # the agent is busy, or being replaced: the next report says more
            return False
    return True


def main(words: List[str]) -> int:
    values: Dict[str, float] = {}
    for word in [word for word in words if word != COMPLETE]:
        name, _, text = word.partition("=")
        try:
            values[name] = int(text) if name == "step" else float(text)
        except ValueError:
            print(f"{word} is not a number; {USAGE}", file=sys.stderr)
            return 2
    complete = COMPLETE in words
    if not values and not complete:
        print(USAGE, file=sys.stderr)
        return 2
    report(complete=complete, **values)  # type: ignore[arg-type]
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
