"""Which files are looked at, and who is called when one has something or takes something."""

import selectors
from typing import Callable, Dict, Optional


class Files:
    """Owns the selector."""

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self.watched: Dict[int, int] = {}

    def wait(self, seconds: Optional[float]) -> None:
        """Call those whose files are ready, after at most so long."""
        for key, _ in self.selector.select(seconds):
            if self.watched.get(key.fd):  # not dropped by one before it
                key.data()

    def watch(self, file: int, writing: bool, call: Callable[[], None]) -> None:
        """Call when a file has something, and when it takes something, if that is wanted."""
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if writing else 0)
        if self.watched.get(file):
            self.selector.modify(file, events, call)
        else:
            self.selector.register(file, events, call)
        self.watched[file] = events

    def watch_writing(self, file: int, call: Callable[[], None]) -> None:
        """Call when a file takes something."""
        if self.watched.get(file):
            self.selector.modify(file, selectors.EVENT_WRITE, call)
        else:
            self.selector.register(file, selectors.EVENT_WRITE, call)
        self.watched[file] = selectors.EVENT_WRITE

    def unwatch(self, file: int) -> None:
        """Call no more."""
        if self.watched.pop(file, 0):
            self.selector.unregister(file)
