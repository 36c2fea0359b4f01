"""Short messages between the processes of one program, outside of all collectives."""

import json
from collections.abc import Mapping
from typing import Any

WITHIN_S = 120.0


class PeerSilent(RuntimeError):
    """Another process did not send what all have to send."""


class ClosedService:
    """Stands for the closed connection, for a thread that still uses it."""

    def __getattr__(self, name: str) -> Any:
        raise PeerSilent("the processes lost each other")


class ProcessGroup:
    """Uses JAX's coordination service; without it each process is alone."""

    def __init__(self, index: int = 0, count: int = 1, line: Any = None) -> None:
        self.index = index
        self.count = count
        self.turns = 0
        self.line = line

    def gather_words(self, word: str, name: str = "", within_s: float = WITHIN_S) -> list[str]:
        """Return all words by process. All call it in the same order or with the same name."""
        if self.line is None:
            return [word]
        at = self._next_key(name)
        if self.index:
            self.line.key_value_set(f"{at}/{self.index}", word)
            heard: list[str] = json.loads(self._wait_for_key(f"{at}/all", within_s))
            return heard
        others = [self._wait_for_key(f"{at}/{one}", within_s) for one in range(1, self.count)]
        self.line.key_value_set(f"{at}/all", json.dumps([word, *others]))
        return [word, *others]

    def gather_connected(self, word: str, name: str, within_s: float) -> list[str]:
        """Gather words; raise PeerSilent if the processes are not connected."""
        if self.line is None:
            raise PeerSilent("the processes are not connected")
        return self.gather_words(word, name, within_s)

    def wait_for_all(self, name: str, within_s: float) -> None:
        """Wait until all processes are here; otherwise all of them raise PeerSilent."""
        if self.count == 1:
            return
        if self.line is None:
            raise PeerSilent("the processes are not connected")
        try:
            self.line.wait_at_barrier(f"herd/{name}", int(within_s * 1000))
        except Exception as error:  # the type is internal to JAX
            raise PeerSilent(f"not all processes arrived ({name}): {error}") from error

    def close(self) -> None:
        if self.line is not None:
            self.line = ClosedService()

    def broadcast_word(self, word: str, name: str = "", within_s: float = WITHIN_S) -> str:
        """Return the word of process 0."""
        if self.line is None:
            return word
        at = self._next_key(name)
        if self.index:
            return self._wait_for_key(at, within_s)
        self.line.key_value_set(at, word)
        return word

    def _next_key(self, name: str) -> str:
        if name:
            return f"herd/{name}"
        self.turns += 1
        return f"herd/turn/{self.turns}"

    def _wait_for_key(self, key: str, within_s: float) -> str:
        try:
            return str(self.line.blocking_key_value_get(key, int(within_s * 1000)))
        except Exception as error:  # the type is internal to JAX and has moved before
            raise PeerSilent(f"no reply from another process ({key}): {error}") from error


def describe_odd_host(facts: list[Mapping[str, Any]]) -> str | None:
    """Return a sentence about hosts that differ from the others, or None."""
    for name in sorted(set().union(*facts) - {"host"}):
        values = [str(one.get(name)) for one in facts]
        usual = max(dict.fromkeys(values), key=values.count)
        odd = [index for index, value in enumerate(values) if value != usual]
        if odd:
            who = ", ".join(f"process {index} on {facts[index]['host']}" for index in odd[:4])
            more = f" and {len(odd) - 4} more" if len(odd) > 4 else ""
            has = values[odd[0]] if len({values[index] for index in odd}) == 1 else "something else"
            others = len(facts) - len(odd)
            return f"{name} is {has} for {who}{more}, but {usual} for the other {others}"
    return None
