"""Finds what herd should not upload without asking: keys, credentials and very large snapshots."""

import re
from dataclasses import dataclass

BYTES_MAX = 2_000_000_000
LOOKED_AT = 256_000  #: bytes checked at the start of a file; keys are small


@dataclass(frozen=True, kw_only=True, slots=True)
class UploadRisk:
    """Something to ask the user about before it is shipped."""

    path: str
    why: str
    id: str  #: what an approval applies to: the content, at any path


#: File names of keys and credentials; names that end in .pub are public keys.
NAMES = (
    (
        re.compile(rb"(?:^|/)id_(?:rsa|dsa|ecdsa|ed25519)(?:_sk)?$"),
        "an SSH private key",
    ),
    (re.compile(rb"(?:^|/)[._]netrc$"), "passwords for hosts (.netrc)"),
    (re.compile(rb"(?:^|/)\.(?:pgpass|git-credentials|htpasswd)$"), "a password file"),
    (re.compile(rb"\.(?:p12|pfx|jks|keystore|kdbx)$"), "a key store"),
    (re.compile(rb"(?:^|/)\.aws/credentials$"), "AWS credentials"),
    (re.compile(rb"(?:^|/)application_default_credentials\.json$"), "Google credentials"),
    (re.compile(rb"(?:^|/)\.(?:kube/config|docker/config\.json)$"), "a credentials file"),
)

#: Their contents: a piece that is fast to search for, the whole pattern, and what it is.
CONTENTS = (
    (b"PRIVATE KEY", rb"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY(?: BLOCK)?-----\s", "a private key"),
    (b"service_account", rb'"type"\s*:\s*"service_account"', "a Google service account's key"),
    (b"authorized_user", rb'"type"\s*:\s*"authorized_user"', "Google credentials"),
    (b"AKIA", rb"\bAKIA[0-9A-Z]{16}\b", "an AWS access key"),
    (b"aws_secret", rb"(?i)aws_secret_access_key['\"]?\s*[=:]\s*['\"]?[\w/+]{40}", "an AWS secret"),
    (b"ghp_", rb"\bghp_[0-9A-Za-z]{36}\b", "a GitHub token"),
    (b"github_pat_", rb"\bgithub_pat_\w{40,}", "a GitHub token"),
    (b"hf_", rb"\bhf_[0-9A-Za-z]{34}\b", "a Hugging Face token"),
    (b"xox", rb"\bxox[abpr]-[0-9A-Za-z-]{20,}", "a Slack token"),
    (b"AIza", rb"\bAIza[0-9A-Za-z_-]{35}\b", "a Google API key"),
    (b"_authToken", rb"_authToken\s*=\s*[^\s$]{8,}", "a package registry's token"),
    (b"WANDB_API_KEY", rb"WANDB_API_KEY['\"]?\s*[=:]\s*['\"]?[0-9a-f]{40}", "a W&B key"),
)
ENV_FILE = re.compile(rb"(?:^|/)\.env(?!\.(?:example|sample|template|dist)$)(?:\.[\w.-]+)?$")
ENV_LINE = re.compile(
    rb"(?im)^\s*(?:export\s+)?\w*(?:SECRET|TOKEN|PASSWORD|PASSWD|API_?KEY|PRIVATE_KEY)\w*"
    rb"\s*=\s*['\"]?[^\s'\"$<{#][^\s]{5,}"
)
ENV_WHY = "an .env file with secrets"

_CONTENTS = tuple((piece, re.compile(whole), why) for piece, whole, why in CONTENTS)

#: All reasons; file stamps store the number. 0: no reason.
REASONS = ("", ENV_WHY, *(why for _, why in NAMES), *(why for _, _, why in CONTENTS))


def reason_number(path: bytes, head: bytes) -> int:
    """The number of the reason to ask, or 0; `head` is the start of the file."""
    for number, (pattern, _) in enumerate(NAMES, 2):
        if pattern.search(path):
            return number
    if ENV_FILE.search(path) and ENV_LINE.search(head):
        return 1
    for number, (piece, whole, _) in enumerate(_CONTENTS, 2 + len(NAMES)):
        if piece in head and whole.search(head):
            return number
    return 0


def make_finding(path: bytes, number: int, id: bytes) -> UploadRisk:
    """A finding with this reason for a file."""
    name = path.decode(errors="replace")
    return UploadRisk(path=name, why=f"{name} looks like {REASONS[number]}", id=id.hex())


def size_findings(bytes: int) -> tuple[UploadRisk, ...]:
    """A finding if it is very large. An approval holds until it grows by a gigabyte."""
    if bytes <= BYTES_MAX:
        return ()
    giga = bytes / 1e9
    return (
        UploadRisk(path="", why=f"{giga:.1f} GB would be shipped", id=f"{-(-bytes // 10**9)} GB"),
    )
