"""Removes the generations of a run that need not stay, and the parts that no other one needs.

Generations to remove are chosen from one list: a later attempt that begins meanwhile continues what
is at the end of that list, so it finds it however late this removes the rest. Its parts are not
ours to remove.
"""

import time
from typing import Dict, Mapping, Set

from tpuherd_host.agent.keep.generation import (
    TICK_S,
    Attempt,
    Passed,
    Published,
    generations_to_keep,
    list_published,
    raise_if_passed,
)
from tpuherd_host.agent.keep.kept_manifest import (
    TEXT_MAX,
    Generation,
    Manifest,
    is_part_up_to,
    manifest_name,
    parse_manifest,
    parts_prefix,
)
from tpuherd_host.agent.keep.kept_store import KeepConfig, KeptStore


class OldGenerations:
    """What this host removes: its own, and of the first one those of hosts that are no more."""

    def __init__(self, store: KeptStore, config: KeepConfig, begun: Attempt) -> None:
        self._store, self._config, self._begun = store, config, begun
        self._needed: Dict[Generation, Set[str]] = {}  #: parts of this worker's generations
        self.unremoved = ""  #: why what need not stay could not be removed

    def remove_unneeded(self, manifest: Manifest) -> Mapping[str, int]:
        """Remove what need not stay beside this one; return the parts of this worker that are there
        or, where that can't be known, those of the manifest."""
        there: Mapping[str, int] = dict(manifest.parts)
        self._needed[manifest.generation] = {part.name for part in manifest.parts}
        try:
            published = list_published(self._store.list("generations/"))
            raise_if_passed(self._store, self._config.attempt)
            tick = int((time.time() - self._begun.at) / TICK_S)
            keep = generations_to_keep(published, self._begun, tick)
            for worker in sorted(self._workers(published)):
                there = self._remove_of_worker(worker, published, keep)
            self._needed = {one: names for one, names in self._needed.items() if one in keep}
            self.unremoved = ""
        except Passed:
            pass
        except (OSError, ValueError) as error:
            self.unremoved = str(error)
        return there

    def _workers(self, published: Published) -> Set[int]:
        found = {self._config.worker}
        if self._config.worker == 0:
            ever = {worker for workers in published.workers.values() for worker in workers}
            found |= {worker for worker in ever if worker >= self._config.workers}
        return found

    def _remove_of_worker(
        self, worker: int, published: Published, keep: Set[Generation]
    ) -> Dict[str, int]:
        """Remove what a worker need not have any more; return the parts that it had."""
        needed: Set[str] = set()
        for one, workers in published.workers.items():
            if worker in workers and one in keep:
                needed |= self._parts_of(one, worker)
        for one, workers in published.workers.items():
            if worker in workers and one not in keep:
                self._store.remove(manifest_name(one, worker))
                self._store.remove(manifest_name(one, worker, "files"))
        there = {one.name: one.bytes for one in self._store.list(parts_prefix(worker))}
        for name in there.keys() - needed:
            if is_part_up_to(name, self._config.attempt):
                self._store.remove(name)
        return there

    def _parts_of(self, one: Generation, worker: int) -> Set[str]:
        own = worker == self._config.worker
        if own and one in self._needed:
            return self._needed[one]
        names = {part.name for part in read_manifest(self._store, one, worker).parts}
        if own:
            self._needed[one] = names
        return names


def read_manifest(store: KeptStore, generation: Generation, worker: int) -> Manifest:
    """Read a manifest; FileNotFoundError, or ValueError if it is none."""
    return parse_manifest(store.read(manifest_name(generation, worker), 0, TEXT_MAX + 1))
