"""What comes in by standard input, as a whole."""

from tpuherd.commands.console import Console
from tpuherd.errors import InvalidInput

BYTES_MAX = 1_000_000


async def read_stdin(console: Console) -> str:
    """All of it."""
    text = b""
    while piece := await console.read():
        text += piece
        if len(text) > BYTES_MAX:
            raise InvalidInput("that is more than a megabyte: something else is meant")
    return text.decode(errors="replace")
