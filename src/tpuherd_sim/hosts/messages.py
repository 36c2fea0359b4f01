"""Messages between controller, zygote and inits: one JSON object each, with optional files."""

import json
import os
import socket
from collections.abc import Sequence
from typing import Any

Message = dict[str, Any]

BYTES_MAX = 128 * 1024
FILES_MAX = 4


class MalformedMessage(OSError):
    pass


def send_message(link: socket.socket, message: Message, files: Sequence[int] = ()) -> None:
    content = json.dumps(message).encode()
    if len(content) > BYTES_MAX:
        raise MalformedMessage(f"a message of {len(content)} bytes is too long")
    if files:
        socket.send_fds(link, [content], list(files))
    else:
        link.send(content)


def receive_message(link: socket.socket) -> tuple[Message | None, list[int]]:
    """Return the next message, or None at the end. The caller closes the files."""
    content, files, flags, _ = socket.recv_fds(link, BYTES_MAX, FILES_MAX, socket.MSG_CMSG_CLOEXEC)
    if not content:
        close_all(files)
        return None, []
    try:
        if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
            raise MalformedMessage("a message is too long or has too many files")
        message = json.loads(content)
        if not isinstance(message, dict):
            raise MalformedMessage("a message is not an object")
    except (ValueError, RecursionError) as error:
        close_all(files)
        raise MalformedMessage(f"a message is not JSON: {error}") from None
    except MalformedMessage:
        close_all(files)
        raise
    return message, files


def close_all(files: Sequence[int]) -> None:
    for file in files:
        os.close(file)
