"""Reads which addresses ssh knows by a key that is not their host's. Pure."""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterable, Mapping

HASHED = "|1|"


def find_other_keys(text: str, hosts: Mapping[str, Iterable[str]]) -> Mapping[str, str]:
    """Return the addresses for which the file has only keys of other machines, with one such key.

    `hosts`: the keys of each address, as "ssh-ed25519 AAAA…"; without keys it is left out.
    """
    entries = [line.split() for line in text.splitlines()]
    entries = [words for words in entries if len(words) >= 3 and words[0][0] not in "#@"]
    found = {}
    for address, keys in hosts.items():
        own = {key.split()[1] for key in keys if len(key.split()) > 1}
        known = [words for words in entries if names_address(words[0], address)]
        kinds = {key.split()[0] for key in keys}
        other = [words[2] for words in known if words[1] in kinds and words[2] not in own]
        if own and other and not any(words[2] in own for words in known):
            found[address] = other[0]
    return found


def names_address(field: str, address: str) -> bool:
    """Whether the first field of a line is for this address, plain or hashed."""
    if not field.startswith(HASHED):
        return address in field.split(",") or f"[{address}]" in field
    try:
        salt, _, digest = field[len(HASHED) :].partition("|")
        made = hmac.new(base64.b64decode(salt), address.encode(), hashlib.sha1).digest()
        return hmac.compare_digest(made, base64.b64decode(digest))
    except (binascii.Error, ValueError):
        return False
