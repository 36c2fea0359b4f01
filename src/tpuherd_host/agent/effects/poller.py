"""Which files are looked at, and who is called when one has something or takes something."""

import select
from typing import Callable, Dict, Optional


class Poller:
    """Owns what the kernel is asked to look at."""

    def __init__(self) -> None:
        self.epoll = select.epoll()
        self.watched: Dict[int, int] = {}
        self.calls: Dict[int, Callable[[], None]] = {}

    def wait(self, seconds: Optional[float]) -> None:
        """Call those whose files are ready, after at most so long."""
        for file, _ in self.epoll.poll(seconds):
            if file in self.calls:  # not dropped by one before it
                self.calls[file]()

    def watch_file(self, file: int, writing: bool, call: Callable[[], None]) -> None:
        """Call when a file has something, and when it takes something, if that is wanted."""
        self.set_watch(file, select.EPOLLIN | (select.EPOLLOUT if writing else 0), call)

    def watch_writing(self, file: int, call: Callable[[], None]) -> None:
        """Call when a file takes something."""
        self.set_watch(file, select.EPOLLOUT, call)

    def set_watch(self, file: int, events: int, call: Callable[[], None]) -> None:
        """Have it looked at for just these."""
        if file not in self.watched:
            self.epoll.register(file, events)
        elif self.watched[file] != events:
            self.epoll.modify(file, events)
        self.watched[file] = events
        self.calls[file] = call

    def unwatch_file(self, file: int) -> None:
        """Call no more."""
        if self.watched.pop(file, 0):
            del self.calls[file]
            try:
                self.epoll.unregister(file)
            except OSError:
                pass  # it is closed already
