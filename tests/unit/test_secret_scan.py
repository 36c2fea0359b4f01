"""What needs consent before it leaves the machine, and what does not."""

import pytest

from tpuherd.sync.upload_check import REASONS, reason_number, size_findings

#: Assembled here, so that scanners for keys do not find this file.
PEM = "-----BEGIN {}PRIVATE " + "KEY-----\nMIIE\n"
ASK = {
    "key.pem": PEM.format("RSA "),
    "deep/inside/notes.txt": "x\n" * 900 + PEM.format("OPENSSH "),
    "sops.asc": "-----BEGIN PGP PRIVATE " + "KEY BLOCK-----\n",
    "id_ed25519": "",
    "home/.ssh/id_rsa": "",
    ".netrc": "",
    "store.p12": "",
    "a/.aws/credentials": "",
    "account.json": '{"type": "service_' + 'account", "x": 1}',
    "adc.json": '{"type": "authorized_' + 'user"}',
    "settings.py": 'key = "AKIA' + 'ABCDEFGHIJKLMNOP"',
    "x.cfg": "aws_secret_" + "access_key = " + "a" * 40,
    "run.sh": "export WANDB_" + "API_KEY=" + "0123456789" * 4,
    "hub.py": "login('hf_" + "a" * 34 + "')",
    ".npmrc": "//registry/:_auth" + "Token=abcdefgh1234",
    ".env": "DEBUG=1\nDB_PASSWORD=hunter2222\n",
    ".env.production": "export MY_TOKEN='abcdef123'",
}
SHIP = {
    "id_ed25519.pub": "ssh-ed25519 AAAA",
    "cert.pem": "-----BEGIN CERTIFICATE-----\n",
    "README.md": "put your PRIVATE KEY there",
    ".env": "DEBUG=1\nNAME=value\n",
    ".env.example": "API_KEY=change-me-please",
    ".environment": "TOKEN=abcdefgh",
    ".env.local": "API_KEY=$OTHER\nTOKEN=<yours>\nSECRET=\n",
    "train.py": "token = tokenizer(text)\nAKIA = 3",
    "docs/netrc.md": "",
}


@pytest.mark.parametrize("path", ASK)
def test_files_that_need_consent(path: str) -> None:
    assert REASONS[reason_number(path.encode(), ASK[path].encode())]


@pytest.mark.parametrize("path", SHIP)
def test_files_shipped_without_consent(path: str) -> None:
    assert reason_number(path.encode(), SHIP[path].encode()) == 0


def test_a_large_upload_needs_consent_once_per_gigabyte() -> None:
    assert size_findings(2_000_000_000) == ()
    assert size_findings(2_100_000_000)[0].why == "2.1 GB would be shipped"
    assert (
        size_findings(2_100_000_000)[0].id
        == size_findings(2_900_000_000)[0].id
        != size_findings(3_100_000_000)[0].id
    )
