"""Calls functions when their files can be read or written."""

import select
from typing import Callable, Dict, Optional


class Poller:
    """Owns the epoll object."""

    def __init__(self) -> None:
        self.epoll = select.epoll()
        self.watched: Dict[int, int] = {}
        self.calls: Dict[int, Callable[[], None]] = {}

    def wait(self, seconds: Optional[float]) -> None:
        """Call the functions of files that are ready within this time."""
        for file, _ in self.epoll.poll(seconds):
            if file in self.calls:  # not dropped by an earlier call in this round
                self.calls[file]()

    def watch_file(self, file: int, writing: bool, call: Callable[[], None]) -> None:
        """Call the function when the file can be read, or also written if wanted."""
        self.set_watch(file, select.EPOLLIN | (select.EPOLLOUT if writing else 0), call)

    def watch_writing(self, file: int, call: Callable[[], None]) -> None:
        """Call the function when the file can be written."""
        self.set_watch(file, select.EPOLLOUT, call)

    def set_watch(self, file: int, events: int, call: Callable[[], None]) -> None:
        if file not in self.watched:
            self.epoll.register(file, events)
        elif self.watched[file] != events:
            self.epoll.modify(file, events)
        self.watched[file] = events
        self.calls[file] = call

    def unwatch_file(self, file: int) -> None:
        if self.watched.pop(file, 0):
            del self.calls[file]
            try:
                self.epoll.unregister(file)
            except OSError:
                pass  # it is closed already
