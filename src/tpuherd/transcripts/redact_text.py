"""Hides secrets and names in text that a user wants to show to others, such as logs.

What is known to be secret goes first, in every form in which it may be written. Then patterns find
what looks like a secret, an e-mail address or a public address.
"""

import json
import re
from base64 import b64encode
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address
from urllib.parse import quote

from tpuherd.transcripts.placeholders import Placeholders

SECRET = "secret"
#: Shorter values are common words and numbers.
SECRET_MIN, NAME_MIN = 4, 3
#: Names of variables, fields and options whose values are secret.
SECRET_NAME = (
    r"(?:token|secret|passw(?:or)?d|passphrase|passwd|api[_-]?key|access[_-]?key|private[_-]?key"
    r"|credential|authorization|cookie|webhook)s?"
)
IS_SECRET_NAME = re.compile(rf"{SECRET_NAME}|(?:^|_)(?:auth|key|pass|pwd)$", re.I)
#: Forms of secrets that stand for themselves; a group of (keep) stays before it. What may be long
#: has a limit wherever a search could begin within it, so that long lines are read quickly.
PATTERNS: Sequence[re.Pattern[str]] = tuple(
    re.compile(pattern, re.S)
    for pattern in (
        r"-----BEGIN [A-Z ]*PRIVATE KEY[A-Z ]*-----.*?(?:-----END [A-Z ]*-----|\Z)",
        r"(?P<keep>(?:ssh-(?:rsa|ed25519|dss)|ecdsa-sha2-\S{1,40}) )AAAA[\w+/=]+(?: [^\s\"'\\]+)?",
        r"(?P<keep>\b[A-Za-z][\w+.-]{0,30}://)[^\s/@:\"'<>]+:[^\s/@\"'<>]*(?=@)",
        r"(?P<keep>[?&;][\w.~%-]+=)[^\s&;#\"'<>\\]+",
        r"(?P<keep>\b(?i:bearer|basic) )[\w.+/=~-]{8,}",
        r"\bya29\.[\w.-]+|\b1//0[\w-]{20,}|\bGOCSPX-[\w-]+|\bAIza[\w-]{30,}",
        r"\bgh[pousr]_\w{20,}|\bgithub_pat_\w{20,}|\bglpat-[\w-]{16,}|\bhf_\w{20,}|\bnpm_\w{30,}",
        r"\bsk-[\w-]{16,}|\bxox[abeprs]-[\w-]{8,}|\bAKIA[A-Z0-9]{16}\b|\bpypi-[\w-]{20,}",
        r"\beyJ[\w-]{8,4000}\.[\w-]+(?:\.[\w-]*)?",
        rf"(?i:(?P<keep>{SECRET_NAME}[\w-]{{0,64}}\\*[\"']?(?:\s*[:=]\s*|\s+)\\*[\"']?))"
        r"(?!null\b|true\b|false\b|<|\$)[^\s\"'\\,;&(){}\[\]]{4,}",
        r"(?P<keep>https?://(?![\w.-]*googleapis\.com)[^\s\"'<>]{0,1000}/)(?=[\w-]*\d)[\w-]{20,}",
    )
)
EMAIL = re.compile(r"(?<![\w.+%-])[\w.+%-]+@[\w-]+(?:\.[\w-]+)+")
ADDRESS = re.compile(r"(?<![\w.-])\d{1,3}(?:\.\d{1,3}){3}(?![\w-]|\.\d)")


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownValue:
    """A value that must not be shown."""

    value: str
    kind: str  #: secret, or what a placeholder calls it: user, machine, home, project
    shown: str = ""  #: what to show instead; else <kind>


@dataclass(frozen=True, kw_only=True, slots=True)
class RedactedText:
    """A text that may be shown, and how much was hidden in it."""

    text: str
    hidden: Mapping[str, int]  #: by kind


def redact_text(text: str, known: Iterable[KnownValue], hide: Placeholders) -> RedactedText:
    """Hide known values, and all that looks like a secret or an address."""
    counts: Counter[str] = Counter()
    text = hide_known_values(text, known, counts)
    for pattern in PATTERNS:
        text, many = pattern.subn(hide_after_kept, text)
        counts[SECRET] += many

    def hide_email(found: re.Match[str]) -> str:
        counts["e-mail address"] += 1
        return hide.hide_value("email", found[0])

    def hide_address(found: re.Match[str]) -> str:
        if not is_public_address(found[0]):
            return found[0]
        counts["public address"] += 1
        return hide.hide_value("address", found[0])

    text = ADDRESS.sub(hide_address, EMAIL.sub(hide_email, text))
    return RedactedText(text=text, hidden=+counts)


def hide_after_kept(found: re.Match[str]) -> str:
    return f"{found.groupdict().get('keep') or ''}<{SECRET}>"


def hide_known_values(text: str, known: Iterable[KnownValue], counts: Counter[str]) -> str:
    """Replace each value, the longest first, also as JSON, addresses and base64 write it."""
    forms: dict[str, KnownValue] = {}
    for one in known:
        for form in value_forms(one):
            forms.setdefault(form, one)
    for form in sorted(forms, key=len, reverse=True):
        one = forms[form]
        if form not in text:
            continue
        pattern = re.escape(form)
        if one.kind != SECRET:  # ann is not a part of annual
            pattern = rf"(?<![A-Za-z0-9]){pattern}(?![A-Za-z0-9])"
        shown = one.shown or f"<{one.kind}>"
        text, many = re.subn(pattern, lambda _, shown=shown: shown, text)  # type: ignore[misc]
        counts[one.kind] += many
    return text


def value_forms(known: KnownValue) -> set[str]:
    """Return how a value may be written; short ones are left out."""
    value = known.value.strip()
    if known.kind != SECRET:
        return {value} if len(value) >= NAME_MIN else set()
    forms = {known.value, value, *value.splitlines()}
    forms |= {json.dumps(one)[1:-1] for one in forms}
    forms |= {json.dumps(one, ensure_ascii=False)[1:-1] for one in forms}
    forms |= {quote(value, safe=""), quote(value)}
    forms.add(b64encode(value.encode(errors="surrogatepass")).decode())
    return {one for one in forms if len(one.strip()) >= SECRET_MIN}


def is_secret_name(name: str) -> bool:
    """Whether a variable of this name has a secret value."""
    return IS_SECRET_NAME.search(name) is not None


def is_public_address(text: str) -> bool:
    try:
        return IPv4Address(text).is_global
    except AddressValueError:
        return False
