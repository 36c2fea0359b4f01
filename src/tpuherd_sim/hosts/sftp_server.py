"""Serves SFTP inside a host, by asyncssh's own server, where the machine has no sftp-server.

The zygote loads asyncssh before there are hosts, since nothing of it can be found in one. A fork of
a host's init then becomes the user, as every session does, and speaks on its stdin and stdout: all
files are the host's, as that user sees them.
"""

import asyncio
import importlib
import os
import sys
from collections.abc import Sequence

from tpuherd_sim.hosts import syscalls

INTERNAL = "internal-sftp"  #: what sshd calls it, too
PROGRAMS = (
    "/usr/lib/openssh/sftp-server",
    "/usr/libexec/openssh/sftp-server",
    "/usr/lib/ssh/sftp-server",
    "/usr/libexec/sftp-server",
)
LIBRARY = "asyncssh.sftp"
OPENSSH = "SSH-2.0-OpenSSH"
VERSION = 3  #: of the protocol: what OpenSSH speaks


def find_program() -> str | None:
    """The sftp-server of the distribution, where there is one."""
    return next((path for path in PROGRAMS if os.access(path, os.X_OK)), None)


def load_library(places: Sequence[str]) -> None:
    """Import asyncssh from these folders of Python's path, which are forgotten again."""
    before = list(sys.path)
    sys.path.extend(places)
    try:
        importlib.import_module(LIBRARY)
    except ImportError:
        return  # it is missed when somebody wants it
    finally:
        sys.path[:] = before


def serve_files() -> None:
    """Serve until the client has no more to ask."""
    if LIBRARY not in sys.modules:
        raise OSError(2, "this host can't serve SFTP until the world is restarted")
    syscalls.set_process_name("sftp-server")
    try:
        asyncio.run(run_server())
    except EOFError:
        return  # it went before it had said anything


async def run_server() -> None:
    """The same, as asyncssh wants it."""
    library = importlib.import_module(LIBRARY)
    pipe = StdioChannel()  # stands in for an SSH channel and its two streams
    await library.run_sftp_server(library.SFTPServer(pipe), pipe, pipe, VERSION)


class StdioChannel:
    """Stdin and stdout as asyncssh's server uses a channel. It waits for them; it has nobody else.

    What asyncssh would log goes nowhere: a host has no log of ours.
    """

    def __init__(self) -> None:
        self.logger = importlib.import_module("asyncssh.logging").logger
        self.channel = self
        self.source = os.fdopen(0, "rb")

    async def readexactly(self, many: int) -> bytes:
        """So many bytes of the client."""
        found = self.source.read(many)
        if len(found) < many:
            raise asyncio.IncompleteReadError(found, many)
        return found

    def write(self, content: bytes) -> None:
        """All of it, to the client."""
        while content:
            content = content[os.write(1, content) :]

    def get_extra_info(self, name: str, default: str) -> str:
        """The client's version: OpenSSH's, and most others', swap the arguments of a symlink."""
        return OPENSSH if name == "client_version" else default

    def is_closing(self) -> bool:
        """Whether nothing can be written any more: that is found out by trying."""
        return False

    def close(self) -> None:
        """The process ends anyway."""
