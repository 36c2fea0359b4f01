"""Runs on a host, started by bootstrap.sh: becomes the agent that is there or asks for it first."""
# A login shell passes this on: no single quotes in it and no backslashes.

import marshal
import sys
from _frozen_importlib_external import MAGIC_NUMBER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PYTHON = sys.implementation.cache_tag + "-" + MAGIC_NUMBER.hex()


def send_status(word: str) -> None:
    """To whoever waits for it at the other end."""
    sys.stdout.write(chr(1) + "tpuherd " + word + chr(10))
    sys.stdout.flush()


def read_agent_file(file: str) -> bytes:
    """The agent in a file; nothing where there is none, or another Python's."""
    try:
        with open(file, "rb") as stream:
            content = stream.read()
    except OSError:
        return b""
    return content if content.startswith((PYTHON.encode(), b"PK")) else b""


def defined_names(program: "Any") -> "Any":
    """What a program defines."""
    room: dict[str, Any] = {}
    exec(program, room)
    return room


def main(file: str) -> None:
    """What is in the file need not be read again, nor looked for in an archive."""
    content = read_agent_file(file)
    if not content:
        send_status("want " + PYTHON)
        stdin = sys.stdin.buffer
        content = defined_names(stdin.read(int(stdin.readline())))["taken"](file)
    send_status("have")
    sys.argv = [file, "attach"]
    if content.startswith(b"PK"):
        sys.path.insert(0, file)
        code = __import__("zipimport").zipimporter(file).get_code("__main__")
        exec(code, {"__name__": "__main__"})
        return
    head = content[:99].splitlines(True)[0]
    begin, *pieces = marshal.loads(memoryview(content)[len(head) :])
    del content
    sys.exit(defined_names(begin)["begin"](pieces, file, int(head.split()[1])))


if __name__ == "__main__":
    main(sys.argv[1])
