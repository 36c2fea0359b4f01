"""Serves SFTP inside a host with asyncssh, if the machine has no sftp-server.

The zygote loads asyncssh before it starts hosts, because hosts can't import it. A fork of a host's
init then becomes the user, as every session does, and serves on its stdin and stdout: all files are
the host's, as that user sees them.
"""

import asyncio
import importlib
import os
import sys
from collections.abc import Sequence

from tpuherd_sim.hosts import syscalls

INTERNAL = "internal-sftp"  #: sshd uses the same name
PROGRAMS = (
    "/usr/lib/openssh/sftp-server",
    "/usr/libexec/openssh/sftp-server",
    "/usr/lib/ssh/sftp-server",
    "/usr/libexec/sftp-server",
)
LIBRARY = "asyncssh.sftp"
OPENSSH = "SSH-2.0-OpenSSH"
VERSION = 3  #: of the protocol, the same as OpenSSH


def find_program() -> str | None:
    """Return the sftp-server of the distribution, if installed."""
    return next((path for path in PROGRAMS if os.access(path, os.X_OK)), None)


def load_library(places: Sequence[str]) -> None:
    """Import asyncssh from these folders of Python's path, which are then removed."""
    before = list(sys.path)
    sys.path.extend(places)
    try:
        importlib.import_module(LIBRARY)
    except ImportError:
        return  # reported when a client needs it
    finally:
        sys.path[:] = before


def serve_files() -> None:
    """Serve until the client disconnects."""
    if LIBRARY not in sys.modules:
        raise OSError(2, "this host can't serve SFTP until the world is restarted")
    syscalls.set_process_name("sftp-server")
    try:
        asyncio.run(run_server())
    except EOFError:
        return  # the client left before it sent anything


async def run_server() -> None:
    library = importlib.import_module(LIBRARY)
    pipe = StdioChannel()  # stands in for an SSH channel and its two streams
    await library.run_sftp_server(library.SFTPServer(pipe), pipe, pipe, VERSION)


class StdioChannel:
    """Stdin and stdout as the channel of asyncssh's server; blocking, as there is only one client.

    What asyncssh logs is discarded, because a host has no log of ours.
    """

    def __init__(self) -> None:
        self.logger = importlib.import_module("asyncssh.logging").logger
        self.channel = self
        self.source = os.fdopen(0, "rb")

    async def readexactly(self, many: int) -> bytes:
        """Read exactly this many bytes from the client."""
        found = self.source.read(many)
        if len(found) < many:
            raise asyncio.IncompleteReadError(found, many)
        return found

    def write(self, content: bytes) -> None:
        """Write all of the content to the client."""
        while content:
            content = content[os.write(1, content) :]

    def get_extra_info(self, name: str, default: str) -> str:
        """Return OpenSSH as the client's version: like most clients, it swaps the arguments of a
        symlink.
        """
        return OPENSSH if name == "client_version" else default

    def is_closing(self) -> bool:
        """Return False: only writing shows whether the client is gone."""
        return False

    def close(self) -> None:
        """Do nothing: the process ends anyway."""
