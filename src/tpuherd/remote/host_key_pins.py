"""Remembers the host keys of each incarnation of a worker, in a file."""

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tpuherd.files import atomic_write, make_private_folder
from tpuherd.ports import Host

PINS_MAX = 40_000  #: the oldest go first; 5,000 nodes of v4-32 have 20,000 hosts at a time
LINES_MAX = 2 * PINS_MAX  #: of the file, which is then rewritten


@dataclass(frozen=True, kw_only=True, slots=True)
class Pin:
    """The pinned keys of one incarnation of a host."""

    incarnation: str
    worker: int
    name: str  #: gpt-0/w3, for messages
    keys: tuple[str, ...]


class Pins:
    """The file of pins. Several processes may append at once; the last line of a host counts."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._read_up_to = 0
        self._lines = 0  #: of the file, up to there
        self._pins: dict[tuple[str, int], Pin] = {}
        self._owners: dict[str, Pin] = {}

    def pinned_keys(self, host: Host) -> tuple[str, ...]:
        """The pinned keys of a host; empty if we never connected to it."""
        self._read_new_lines()
        pin = self._pins.get((host.incarnation, host.worker))
        return pin.keys if pin else ()

    def key_owner(self, key: str) -> Pin | None:
        """The host that has this key."""
        self._read_new_lines()
        return self._owners.get(key)

    def pin_keys(self, host: Host, keys: Sequence[str]) -> None:
        if self.pinned_keys(host) == tuple(keys):
            return
        line = [host.incarnation, host.worker, host.name, *keys]
        make_private_folder(self.file.parent)
        descriptor = os.open(self.file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with open(descriptor, "ab") as stream:
            stream.write(json.dumps(line).encode() + b"\n")
        self._read_new_lines()

    def _read_new_lines(self) -> None:
        """Read the lines that were appended since the last read."""
        try:
            size = self.file.stat().st_size
        except FileNotFoundError:
            return
        if size == self._read_up_to:
            return
        with self.file.open("rb") as stream:
            if size > self._read_up_to:
                stream.seek(self._read_up_to)
            else:
                self._lines = 0  # another process has rewritten it
            text = stream.read()
            whole = text.rfind(b"\n") + 1
            self._read_up_to = stream.tell() - len(text) + whole
        for line in text[:whole].splitlines():
            self._add_line(line)
            self._lines += 1
        while len(self._pins) > PINS_MAX:
            self._drop_pin(next(iter(self._pins)))
        if self._lines > LINES_MAX:
            self._rewrite_file()

    def _rewrite_file(self) -> None:
        """Write what is kept. A line that another process appends just now is lost with the old
        file: the next connection to that host writes it again."""
        rows = ([one.incarnation, one.worker, one.name, *one.keys] for one in self._pins.values())
        text = "".join(f"{json.dumps(row)}\n" for row in rows).encode()
        with suppress(OSError):  # a full disk: the longer file means the same
            atomic_write(self.file, text)
            self._read_up_to, self._lines = len(text), len(self._pins)

    def _drop_pin(self, key: tuple[str, int]) -> None:
        pin = self._pins.pop(key, None)
        for one in pin.keys if pin is not None else ():
            if self._owners.get(one) is pin:
                del self._owners[one]

    def _add_line(self, line: bytes) -> None:
        try:
            incarnation, worker, name, *keys = json.loads(line)
        except ValueError:  # a partly written line
            return
        pin = Pin(incarnation=incarnation, worker=worker, name=name, keys=tuple(keys))
        self._drop_pin((incarnation, worker))
        self._pins[incarnation, worker] = pin
        self._owners.update((key, pin) for key in keys)
