"""The agent's greeting: itself and its host."""

import os
import pwd
import socket
import sys
import zlib
from typing import Any, Dict

from tpuherd_host.agent.frames import PROTOCOL


def make_hello(version: str, home: str, boot: str) -> Dict[str, Any]:
    """Return the greeting without epoch and time."""
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = str(os.getuid())
    return {
        "protocol": PROTOCOL,
        "agent": version.partition(".")[2],  #: the hash in the file name
        "python": ".".join(map(str, sys.version_info[:3])),
        "host": socket.gethostname(),
        "boot": boot,
        "user": user,
        "home": home,
        "pid": os.getpid(),
        "zlib": zlib.ZLIB_VERSION,
    }
