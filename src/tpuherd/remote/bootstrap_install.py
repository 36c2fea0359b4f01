"""Runs on a host that has no agent yet: takes it from stdin and puts it in place."""

import os
import sys
import zlib


def taken(file: str) -> bytes:
    """On stdin are its length, a line's end, and the agent, compressed."""
    # The whole start of a host waits for this: it imports nothing that takes time.
    folder = os.path.dirname(file)
    half = file + "." + str(os.getpid())
    try:
        content = zlib.decompress(sys.stdin.buffer.read(int(sys.stdin.buffer.readline())))
    except (zlib.error, ValueError):
        sys.exit("the agent did not arrive whole")
    try:
        os.makedirs(folder, 0o700, exist_ok=True)
        with open(half, "wb") as stream:
            stream.write(content)
        os.rename(half, file)
    except OSError as error:
        try:
            os.unlink(half)
        except OSError:
            pass
        sys.exit("it can't be put into " + folder + ": " + str(error.strerror))
    return content
