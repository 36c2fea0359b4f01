"""The last known nodes of a project, in a file, so that a command can skip asking the cloud."""

from dataclasses import replace
from pathlib import Path

from tpuherd.cache_codec import decode_cache, encode_cache
from tpuherd.cloud.nodes_api import NodeList
from tpuherd.files import atomic_write, make_private_folder


class NodeCache:
    """The file. Its contents may be out of date: callers verify them by reaching the hosts."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._kept = b""

    def load_nodes(self) -> NodeList | None:
        """The nodes of the last survey; None if no usable file exists."""
        try:
            return decode_cache(NodeList, self.file.read_bytes())
        except OSError:
            return None

    def save_nodes(self, survey: NodeList) -> None:
        """Save the survey if it is complete and has changed; metadata may contain secrets."""
        nodes = tuple(replace(one, metadata={}) for one in survey.nodes)
        content = encode_cache(NodeList(nodes=nodes, unknown=()))
        if content == self._kept or survey.unknown:
            return
        try:
            make_private_folder(self.file.parent)
            atomic_write(self.file, content)
        except OSError:
            return  # a full disk: then the cloud is asked
        self._kept = content
