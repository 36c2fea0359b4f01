"""What may be shown of a text: no secret in any form, and all that helps to find a bug."""

import json
import time
from base64 import b64encode
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpuherd.transcripts.placeholders import Placeholders
from tpuherd.transcripts.redact_text import KnownValue, is_secret_name, redact_text

HIDE = Placeholders(key=b"k" * 32)
#: Assembled here, so that scanners for keys do not find this file.
PEM = (
    "-----BEGIN OPENSSH PRIVATE " + "KEY-----\nb3BlbnNza\nQAAAA\n-----END OPENSSH PRIVATE KEY-----"
)
HOOK = "https://hooks.slack.com/services/T000/B000/" + "x4" * 12
SECRETS = {
    PEM: "b3BlbnNza",
    json.dumps({"key": PEM}): "b3BlbnNza",
    "key ssh-ed25519 AAAAC3NzaC1lZDI1 ann@desk": "AAAAC3",
    "git clone https://ann:hunter2@git.example/x": "hunter2",
    "GET https://api.example/v1?key=abc123def&q=7": "abc123def",
    "Authorization: Bearer abcd.efgh-1234": "abcd.efgh",
    "token ya29." + "a0AfH6SMB_xyz": "a0AfH6SMB",
    "login('hf_" + "a" * 34 + "')": "aaaa",
    "push with ghp_" + "B" * 36: "BBBB",
    "jwt eyJhbGciOiJIUzI1." + "eyJzdWIiOiIx.sig": "eyJzdWIi",
    "export WANDB_API_KEY=0123456789abcdef": "0123456789",
    '{"db_password": "swordfish"}': "swordfish",
    "tool --auth-token tok-99-tok run": "tok-99",
    "HF_TOKEN: 'abcd1234'": "abcd1234",
    f"posted to {HOOK}": "x4x4",
    "key " + "AKIA" + "ABCDEFGHIJKLMNOP": "ABCDEFGHIJ",
    "mail to ada.lovelace+x@example.org": "lovelace",
    "host 34.90.12.7 is silent": "34.90.12.7",
}  # fmt: skip
KEPT = (
    "attempt 1 on gpt-0-g1-7kq/w3 in us-central2-b exited with 1: ValueError: bad batch",
    "https://tpu.googleapis.com/v2/projects/p/locations/us-central2-b/nodes/gpt-0-g1-7kq",
    "snapshot 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "10.164.0.2 and 127.0.0.1 and ::1 answer; Python 3.12.4, herd 0.1.0",
    '{"secrets": {"HF_TOKEN": null}, "tokens": [1, 2], "key": "a"}',
    "tokens per second 1234, step 17 of 100, monkey business",
    "the token has expired: gcloud auth login",
)


@pytest.mark.parametrize("text", SECRETS)
def test_what_looks_like_a_secret_is_hidden(text: str) -> None:
    found = redact_text(text, (), HIDE)
    assert SECRETS[text] not in found.text
    assert sum(found.hidden.values()) >= 1


@pytest.mark.parametrize("text", KEPT)
def test_what_helps_stays(text: str) -> None:
    assert redact_text(text, (), HIDE).text == text


@given(st.text(min_size=4, max_size=40).filter(lambda text: len(text.strip()) >= 4))
def test_a_known_secret_is_hidden_however_it_is_written(secret: str) -> None:
    known = [KnownValue(value=secret, kind="secret")]
    quoted, coded = quote(secret, safe=""), b64encode(secret.strip().encode()).decode()
    for text in (secret, json.dumps(secret), json.dumps(secret, ensure_ascii=False), quoted, coded):
        shown = redact_text(f"# {text} #", known, HIDE).text
        assert secret.strip() not in shown.replace("<secret>", "")


def test_names_are_hidden_as_words_only() -> None:
    known = [
        KnownValue(value="ann", kind="user name", shown="<user>"),
        KnownValue(value="/home/ann", kind="home folder", shown="~"),
    ]
    found = redact_text("/home/ann/annual ann@desk: anna, ann-0", known, HIDE)
    assert found.text == "~/annual <user>@desk: anna, <user>-0"
    assert found.hidden == {"home folder": 1, "user name": 2}


def test_the_same_address_has_the_same_placeholder() -> None:
    text = redact_text("a@b.org c@d.org a@b.org", (), HIDE).text.split()
    assert text[0] == text[2] != text[1]


@pytest.mark.parametrize("part", [
    "x", "_", "a.", "a:", "a@", "token", "token\\", "eyJ-", "http://", "x://a:", "x://a:a:",
    "ecdsa-sha2-",
])  # fmt: skip
def test_a_line_of_any_length_is_read_in_bounded_time(part: str) -> None:
    """A log may have 100 kB of base64 in a line, which took a quarter of an hour."""
    begun = time.process_time()
    redact_text(part * (100_000 // len(part)), [], HIDE)
    redact_text("https://ann:" + part * (100_000 // len(part)), [], HIDE)
    assert time.process_time() - begun < 100


def test_names_of_secret_variables() -> None:
    secret = ["WANDB_API_KEY", "HF_TOKEN", "DB_PASSWORD", "GH_PAT_SECRET", "MY_KEY", "X_AUTH"]
    plain = ["HOME", "KEYBOARD", "LANG", "MONKEY", "AUTHOR", "HERD_WORLD"]
    assert [name for name in [*secret, *plain] if is_secret_name(name)] == secret
