"""The quickest compressor that is installed, of those whose output every host understands."""

import zlib
from importlib import import_module

from tpuherd_host.agent.snapshots.stream import MakeCompressor


def fastest_compressor() -> MakeCompressor:
    """zlib-ng takes a third of the time for the same bytes; the standard library's does as well."""
    try:
        made: MakeCompressor = import_module("zlib_ng.zlib_ng").compressobj
    except ImportError:
        return zlib.compressobj
    return made


COMPRESSOR = fastest_compressor()
