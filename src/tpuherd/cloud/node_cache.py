"""The last known nodes of a project, in a file, so that a command can skip asking the cloud."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tpuherd.cloud.nodes_api import NodeList
from tpuherd.cloud.parse import Node, WorkerAddress
from tpuherd.files import atomic_write

#: The fields that are kept; not the metadata, which may contain secrets.
FIELDS = ("name", "zone", "state", "health", "type", "incarnation", "created", "request")


class NodeCache:
    """The file. Its contents may be out of date: callers verify them by reaching the hosts."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._kept = b""

    def load_nodes(self) -> NodeList | None:
        """The nodes of the last survey; None if no usable file exists."""
        try:
            nodes = tuple(map(node_from_row, json.loads(self.file.read_bytes())))
        except (OSError, ValueError, TypeError):
            return None
        return NodeList(nodes=nodes, unknown=())

    def save_nodes(self, survey: NodeList) -> None:
        """Save the survey if it is complete and has changed."""
        content = json.dumps([node_row(one) for one in survey.nodes]).encode()
        if content == self._kept or survey.unknown:
            return
        try:
            self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            atomic_write(self.file, content)
        except OSError:
            return  # a full disk: then the cloud is asked
        self._kept = content


def node_row(node: Node) -> Sequence[Any]:
    """A node as a row of the file."""
    places = [(one.internal_ip, one.external_ip) for one in node.workers]
    return [*(getattr(node, field) for field in FIELDS), places]


def node_from_row(row: Sequence[Any]) -> Node:
    """The node of such a row."""
    *words, places = row
    workers = tuple(WorkerAddress(internal_ip=one, external_ip=other) for one, other in places)
    return Node(**dict(zip(FIELDS, words, strict=True)), workers=workers)
