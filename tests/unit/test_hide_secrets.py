"""What may be shown of a text: no secret in any form, and all that helps to find a bug."""

import json
import time
from base64 import b64encode
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpuherd.checks.hide_secrets import SECRET_NAME, hide_secrets, known_forms

KEY = b"k" * 32
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
    "host 2600:1900:4000:29::29 is silent": "2600:1900",
    "bucket gs://ada-private/x": "ada-private",
    "snapshot 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08": "9f86d0",
    # what a security review found in reports
    "wandb: Using key c01" + "a" * 38: "c01aaa",
    "wandb_v1_C03abcdefghijklmnopqrstuvwxyz0123456789_ABCDEFGHIJ": "C03abc",
    "machine api.wandb.ai login user password c04passwd": "c04passwd",
    "postgres://usr:c08pa/ss@db.example.org/x": "ss@",
    "http://user:c48p@ss@host.example.com/": "ss@",
    "https://c35sentrykey@o1.ingest.sentry.io/1": "c35",
    "curl -u bob:c09curlpw http://x": "c09",
    "sshpass -p c10sshpass ssh x": "c10",
    "mysql -uroot -pc11mysqlpw": "c11",
    '{"nested": {"auth": "c15auth"}}': "c15",
    "AccountKey=c17azurekey==;EndpointSuffix=core": "c17",
    "dop_v1_c43abcdefghijklmnopqrstuvwxyz": "c43",
    "pass: c31short": "c31",
    "password is c33prose": "c33",
    'secret: "c36 with spaces tail36"': "tail36",
    json.dumps('secret: "c36 with spaces tail36"'): "tail36",
    "PuTTY-User-Key-File-2: ssh-rsa c45putty": "c45",
    "token\\n: c46word": "c46",
    "token\n: c46word": "c46",
    "Cookie: a=c47first; b=c47second": "c47",
    "Set-Cookie: session=c22cookie; Path=/": "c22",
    "export FOO=c59runbare0000; python3 train.py": "c59",
    json.dumps('export FOO="c59 bare"; python3 train.py'): "c59",
}  # fmt: skip
KEPT = (
    "attempt 1 on gpt-0-g1-7kq/w3 in us-central2-b exited with 1: ValueError: bad batch",
    "https://tpu.googleapis.com/v2/projects/p/locations/us-central2-b/nodes/gpt-0-g1-7kq",
    "XLA_FLAGS=--xla_dump_to=/tmp/x JAX_PLATFORMS=tpu python3 -u train.py at 12:30:45",
    "10.164.0.2 and 127.0.0.1 and ::1 answer; Python 3.12.4, herd 0.1.0",
    '{"secrets": {"HF_TOKEN": null}, "tokens": [1, 2], "key": "a"}',
    "tokens per second 1234, step 17 of 100, monkey business",
    "the token has expired: gcloud auth login",
)


@pytest.mark.parametrize("text", SECRETS)
def test_what_looks_like_a_secret_is_hidden(text: str) -> None:
    found = hide_secrets(text, {}, KEY)
    assert SECRETS[text] not in found
    assert "<hidden:" in found


@pytest.mark.parametrize("text", KEPT)
def test_what_helps_stays(text: str) -> None:
    assert hide_secrets(text, {}, KEY) == text


@given(st.text(min_size=4, max_size=40).filter(lambda text: len(text.strip()) >= 4))
def test_a_known_secret_is_hidden_however_it_is_written(secret: str) -> None:
    known = known_forms([secret], {})
    quoted, coded = quote(secret, safe=""), b64encode(secret.strip().encode()).decode()
    for text in (secret, json.dumps(secret), json.dumps(secret, ensure_ascii=False), quoted, coded):
        shown = hide_secrets(f"# {text} #", known, KEY)
        assert secret.strip() not in shown.replace("<hidden>", "")


def test_names_are_hidden_as_words_only() -> None:
    known = known_forms([], {"ann": "<user>", "/home/ann": "~"})
    text = "/home/ann/annual ann@desk: anna, ann-0"
    assert hide_secrets(text, known, KEY) == "~/annual <user>@desk: anna, <user>-0"


def test_the_same_address_has_the_same_placeholder() -> None:
    text = hide_secrets("a@b.org c@d.org a@b.org", {}, KEY).split()
    assert text[0] == text[2] != text[1]


@pytest.mark.parametrize("part", [
    "x", "_", "a.", "a:", "a@", "token", "token\\", "eyJ-", "http://", "x://a:", "x://a:a:",
    "ecdsa-sha2-",
])  # fmt: skip
def test_a_line_of_any_length_is_read_in_bounded_time(part: str) -> None:
    """A log may have 100 kB of base64 in a line, which took a quarter of an hour."""
    begun = time.process_time()
    hide_secrets(part * (100_000 // len(part)), {}, KEY)
    hide_secrets("https://ann:" + part * (100_000 // len(part)), {}, KEY)
    assert time.process_time() - begun < 100


def test_names_of_secret_variables() -> None:
    secret = ["WANDB_API_KEY", "HF_TOKEN", "DB_PASSWORD", "GH_PAT_SECRET", "MY_KEY", "X_AUTH"]
    plain = ["HOME", "KEYBOARD", "LANG", "MONKEY", "AUTHOR", "HERD_WORLD"]
    assert [name for name in [*secret, *plain] if SECRET_NAME.search(name)] == secret
