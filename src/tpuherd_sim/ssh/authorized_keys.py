"""Decides who may log in with which key and environment, from metadata and files. Pure."""

import base64
import binascii
import json
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import pairwise

#: The default of Debian and Ubuntu for a host without /etc/environment.
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: Valid user names on a host: as for useradd, with capitals and dots.
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}")
KEY_TYPES = ("ssh-", "ecdsa-", "sk-")


def is_key_listed(lines: Iterable[str], public: bytes, now: float) -> bool:
    """Whether one of these public key lines has this key and has not expired."""
    return any(key_from_line(line) == public and not is_expired(line, now) for line in lines)


def key_from_line(line: str) -> bytes | None:
    """Return the key in a line of an authorized_keys file, or None."""
    words = line.split()
    for kind, text in pairwise(words):
        if kind.startswith(KEY_TYPES) and not line.startswith("#"):
            try:
                return base64.b64decode(text, validate=True)
            except binascii.Error:
                return None
    return None


def is_expired(line: str, now: float) -> bool:
    """Whether the line ends with `google-ssh {"expireOn": …}` in the past."""
    _, mark, comment = line.partition(" google-ssh ")
    if not mark:
        return False
    try:
        until = json.loads(comment)["expireOn"]
        return datetime.strptime(until, "%Y-%m-%dT%H:%M:%S%z").timestamp() <= now
    except (ValueError, KeyError, TypeError):
        # Like the guest agent, treat a key with an unreadable expiry as expired.
        return True


def login_shell(passwd: str, name: str) -> str:
    """Return a user's login shell from the text of /etc/passwd."""
    entry = passwd_entry(passwd, name)
    return entry[6] if entry and entry[6] else "/bin/bash"


def passwd_entry(passwd: str, name: str) -> list[str] | None:
    """Return a user's seven fields from the text of /etc/passwd."""
    for line in passwd.splitlines():
        fields = line.split(":")
        if fields[0] == name and len(fields) == 7:
            return fields
    return None


def parse_environment(text: str) -> dict[str, str]:
    """Return what /etc/environment sets, read like PAM: NAME=value lines, no expansion."""
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
    """Return the address of a name from the text of /etc/hosts, IPv4 first."""
    found = [
        line.split()[0]
        for line in hosts.splitlines()
        if not line.startswith("#") and name.lower() in line.lower().split()[1:]
    ]
    found.sort(key=lambda address: ":" in address)
    return found[0] if found else None


def accepted_variables(sent: Mapping[str, str]) -> dict[str, str]:
    """Return the client's variables that are accepted: its language, as on Debian."""
    return {name: value for name, value in sent.items() if name == "LANG" or name.startswith("LC_")}
