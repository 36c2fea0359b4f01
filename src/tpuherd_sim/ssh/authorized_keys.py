"""Who may log in with which key, and with what environment: pure reading of metadata and files."""

import base64
import binascii
import json
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import pairwise

#: What Debian's and Ubuntu's /etc/environment say where a host has none.
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: Names that a host gives to its users: as useradd has them, capitals and dots too.
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}")
KEY_TYPES = ("ssh-", "ecdsa-", "sk-")


def is_key_listed(lines: Iterable[str], public: bytes, now: float) -> bool:
    """Whether one of these public key lines is this key, and not expired."""
    return any(key_from_line(line) == public and not is_expired(line, now) for line in lines)


def key_from_line(line: str) -> bytes | None:
    """The key in a line of an authorized_keys file; None where there is none."""
    words = line.split()
    for kind, text in pairwise(words):
        if kind.startswith(KEY_TYPES) and not line.startswith("#"):
            try:
                return base64.b64decode(text, validate=True)
            except binascii.Error:
                return None
    return None


def is_expired(line: str, now: float) -> bool:
    """Whether the line ends with `google-ssh {"expireOn": …}` and that moment is over."""
    _, mark, comment = line.partition(" google-ssh ")
    if not mark:
        return False
    try:
        until = json.loads(comment)["expireOn"]
        return datetime.strptime(until, "%Y-%m-%dT%H:%M:%S%z").timestamp() <= now
    except (ValueError, KeyError, TypeError):
        # A key whose end can't be read is treated as the guest agent does: as one that is over.
        return True


def login_shell(passwd: str, name: str) -> str:
    """The login shell of a user, by the text of /etc/passwd."""
    entry = passwd_entry(passwd, name)
    return entry[6] if entry and entry[6] else "/bin/bash"


def passwd_entry(passwd: str, name: str) -> list[str] | None:
    """A user's seven fields in the text of /etc/passwd."""
    for line in passwd.splitlines():
        fields = line.split(":")
        if fields[0] == name and len(fields) == 7:
            return fields
    return None


def parse_environment(text: str) -> dict[str, str]:
    """What /etc/environment sets, read as PAM does: NAME=value lines, no expansion."""
    found = {}
    for line in text.splitlines():
        name, equals, value = line.strip().removeprefix("export ").partition("=")
        value = value.strip()
        if not equals or not name.isidentifier():
            continue
        if value[:1] in ("'", '"'):
            value = value[1:].partition(value[0])[0]
        else:
            value = value.partition(" #")[0].rstrip()
        found[name] = value
    return found


def find_address(hosts: str, name: str) -> str | None:
    """The address of a name by the text of /etc/hosts, IPv4 first."""
    found = [
        line.split()[0]
        for line in hosts.splitlines()
        if not line.startswith("#") and name.lower() in line.lower().split()[1:]
    ]
    found.sort(key=lambda address: ":" in address)
    return found[0] if found else None


def accepted_variables(sent: Mapping[str, str]) -> dict[str, str]:
    """What is taken over of the client's environment: its language, as on Debian."""
    return {name: value for name, value in sent.items() if name == "LANG" or name.startswith("LC_")}
