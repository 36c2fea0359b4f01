"""Hides secrets and names in text that a user shows to others: rather too much than too little."""

import json
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from ipaddress import ip_address
from urllib.parse import quote

SECRET = "<hidden>"
#: Shorter values are common words and numbers.
SECRET_MIN, NAME_MIN = 4, 3
#: Names of variables, fields and options whose values are secret.
NAME = (
    r"(?:token|secret|passw(?:or)?d|passphrase|api[_-]?key|access[_-]?key|private[_-]?key"
    r"|credential|authorization|cookie|webhook)s?"
)
SECRET_NAME = re.compile(rf"{NAME}|(?:^|_)(?:auth|key|pass|pwd|dsn)$", re.I)
VALUE = r"(?!null\b|true\b|false\b|<|\$)[^\s\"'\\,;&(){}\[\]]{4,}"
SIGN = r"""(?:\\+n|\s){0,4}[:=]{1,2}\s{0,4}"""
#: A pattern a line; what is hidden stands behind a group of (keep). What may be long has a limit
#: wherever a search could begin within it, so that long lines are read quickly.
PATTERNS: Sequence[re.Pattern[str]] = tuple(
    re.compile(line.replace("{NAME}", NAME).replace("{VALUE}", VALUE).replace("{SIGN}", SIGN), re.S)
    for line in r"""
-----BEGIN [A-Z ]*PRIVATE KEY[A-Z ]*-----.*?(?:-----END [A-Z ]*-----|\Z)
(?P<keep>(?:ssh-(?:rsa|ed25519|dss)|ecdsa-sha2-\S{1,40}) )[\w+/=]{6,}
(?P<keep>PuTTY-User-Key-File-\d+: )[^\n"\\]+
(?P<keep>\b[A-Za-z][\w+.-]{0,30}://)[^\s"'<>\\]{1,300}(?=@)
(?P<keep>[?&;][\w.~%-]{1,80}=)[^\s&;#"'<>\\]+
(?i:(?P<keep>\bcookies?\\*["']?\s*[:=]\s*\\*["']?))[^\n"'\\]+
(?P<keep>\b(?i:bearer|basic) )[\w.+/=~-]{8,}
(?P<keep>\s-(?:u|-user|-proxy-user)[\s=]?)[^\s:"'\\]{1,80}:[^\s"'\\]+
(?P<keep>\b(?:sshpass|mysql\w{0,20})\b[^\n|;]{0,200}?\s-p\s?)[^\s"'\\]+
(?i:(?P<keep>{NAME}[\w-]{0,64}\\*["']?{SIGN}\\*["']))[^\n"'\\]{4,}
(?i:(?P<keep>{NAME}[\w-]{0,64}\\*["']?(?:{SIGN}|\s+is\s+|\s+)\\*["']?)){VALUE}
(?i:(?P<keep>(?<![^\W_])(?:\w{0,40}key|auth|pass|pwd|dsn)\\*["']?{SIGN}\\*["']?)){VALUE}
(?P<keep>(?<![\w$])(?!(?:JAX|XLA|LIBTPU|TPU)_)[A-Z][A-Z0-9_]{2,80}=)(?:\\*["'][^"'\n\\]+|[^\s"'\\;&|<]+)
\bya29\.[\w.-]+|\b1//0[\w-]{20,}|\bGOCSPX-[\w-]+|\bAIza[\w-]{30,}
\bgh[pousr]_\w{20,}|\bgithub_pat_\w{20,}|\bglpat-[\w-]{16,}|\bnpm_\w{30,}|\bhf_\w{20,}
\bsk-[\w-]{16,}|\bxox[abeprs]-[\w-]{8,}|\bAKIA[A-Z0-9]{16}\b|\bpypi-[\w-]{20,}|\b\w+_v1_\w{16,}
\beyJ[\w-]{8,4000}\.[\w-]+(?:\.[\w-]*)?
(?P<keep>https?://(?![\w.-]*googleapis\.com)[^\s"'<>]{0,1000}/)(?=[\w-]*\d)[\w-]{20,}
(?<![A-Za-z0-9])(?=[A-Za-z]*\d)(?=\d*[A-Za-z])[A-Za-z0-9]{24,}
(?P<keep>\bgs://)[a-z0-9][\w.-]{1,220}
(?<![\w.+%-])[\w.+%-]+@[\w-]+(?:\.[\w-]+)+
""".split("\n")[1:-1]
)  # fmt: skip
ADDRESS = re.compile(
    r"(?<![\w.-])\d{1,3}(?:\.\d{1,3}){3}(?![\w-]|\.\d)"
    r"|(?<![\w:.])(?i:[0-9a-f]{0,4}(?::[0-9a-f]{0,4}){2,7})(?![\w:])"
)


def hide_secrets(text: str, known: Mapping[str, str], key: bytes) -> str:
    """Hide known values, and all that looks like a secret, an e-mail address or a public address.

    `known`: what to show instead of a value, as `known_forms` returns it. Equal values that were
    not known get equal marks; no one without `key` can check a guessed value against a mark.
    """

    def mark_value(found: re.Match[str]) -> str:
        value = found[0].encode(errors="surrogatepass")
        digest = blake2b(value, key=key, digest_size=3).hexdigest()
        return f"{found.groupdict().get('keep') or ''}<hidden:{digest}>"

    def mark_address(found: re.Match[str]) -> str:
        return mark_value(found) if is_public_address(found[0]) else found[0]

    for form in sorted((one for one in known if one in text), key=len, reverse=True):
        shown, form = known[form], re.escape(form)
        if shown != SECRET:  # ann is not a part of annual
            form = rf"(?<![A-Za-z0-9]){form}(?![A-Za-z0-9])"
        text = re.sub(form, shown, text)
    for pattern in PATTERNS:
        text = pattern.sub(mark_value, text)
    return ADDRESS.sub(mark_address, text)


def known_forms(secrets: Iterable[str], names: Mapping[str, str]) -> dict[str, str]:
    """Return every way in which secrets may be written, and names, with what to show instead."""
    shown = {name: word for name, word in names.items() if len(name) >= NAME_MIN}
    for secret in secrets:
        value = secret.strip()
        forms = {secret, value, *value.splitlines()}
        forms |= {
            json.dumps(one, ensure_ascii=ascii)[1:-1] for one in forms for ascii in (True, False)
        }
        forms |= {quote(value, safe=""), quote(value)}
        forms.add(b64encode(value.encode(errors="surrogatepass")).decode())
        shown |= dict.fromkeys((one for one in forms if len(one.strip()) >= SECRET_MIN), SECRET)
    return shown


def is_public_address(text: str) -> bool:
    try:
        return ip_address(text).is_global
    except ValueError:
        return False
