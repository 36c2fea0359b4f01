"""Secrets of every kind, traced through a whole world: each has one place, and is nowhere else.

A canary is in each secret that a user or a job can have. Then everything is searched that herd
wrote, said or showed: stores, logs, events, the cloud's own records, the arguments and variables
of processes, reports, exports and the bundle for maintainers.
"""

import base64
import json
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest

from tests.conformance.world import until
from tests.integration.engines import Owner
from tests.integration.test_page_process import read_address

pytestmark = pytest.mark.real
#: By what it is; each contains a word that is nowhere else on this machine.
CANARIES: Mapping[str, str] = {
    "a secret from the environment": "canary-env-b83e07d1f6c",
    "the login of W&B": "canary-wandb-3f71c2d9a8",
    "a secret from a file": "canary-hf-71b6e0a4c5",
    "a secret from a command": "canary-cmd-95d2f8e013",
    "the address of a webhook": "canary-url-c80a7b64f2",
    "the token of a webhook": "canary-token-1e94d6b3a7",
    "the password of a mail account": "canary-mail-6a0f52c9e8",
    "a token of Google": "canary-oauth-d27e91b50c",
    "a variable of the shell": "canary-shell-08f3a6c7d1",
}
KEPT = ("secrets",)  #: the folder of the store that holds them, in files that only the user reads
RUN = """
python3 train.py
test ${#WANDB_API_KEY}${#OWN_KEY}${#HF_TOKEN}${#CMD_KEY} = 23222021 && echo right
sleep 2; echo it fails for a reason >&2; exit 3
"""
SHOWING = (
    ["status", "gpt", "--json"], ["why", "gpt"], ["events", "gpt", "--json"], ["explain", "gpt"],
    ["engine", "metrics"], ["engine", "logs", "-n", "999"], ["notify", "list", "--json"],
    ["cost", "gpt", "--json"], ["context", "list", "--json"],
    ["export", "jobset", "gpt"], ["export", "jobset", "gpt", "--json"], ["export", "slurm", "gpt"],
    ["status", "gpt"], ["engine", "status", "--json"], ["exec", "gpt", "--list", "--json"],
    ["check", "--report", "bug.tar.gz"],
)  # fmt: skip


def forms(value: str) -> Iterator[bytes]:
    """How a value may be written."""
    yield value.encode()
    yield quote(value, safe="").encode()
    yield value.encode().hex().encode()
    for before in ("", "x", "xx"):  # in base64, by where it begins
        coded = base64.b64encode((before + value).encode())
        yield coded[4:-4]


FORMS = {what: tuple(forms(value)) for what, value in CANARIES.items()}


def canaries_in(content: bytes) -> list[str]:
    """What it gives away."""
    return [what for what, many in FORMS.items() if any(one in content for one in many)]


def environment() -> dict[str, str]:
    """What the user's shell has."""
    return {
        "OWN_KEY": CANARIES["a secret from the environment"],
        "CLOUDSDK_AUTH_ACCESS_TOKEN": CANARIES["a token of Google"],
        "MY_OWN": CANARIES["a variable of the shell"],
    }


def submit(user: Owner, sources: Path) -> None:
    """A job with secrets of every kind, of which some fail to be delivered."""
    for name, what in {
        "hf": "a secret from a file", "cmd": "a secret from a command",
        "token": "the token of a webhook", "password": "the password of a mail account",
    }.items():  # fmt: skip
        (sources / name).write_text(CANARIES[what])
    (user.home / "code").mkdir()
    (user.home / "code/train.py").write_text("import wandb\n")  # its key is taken from ~/.netrc
    (user.home / "code/wandb.py").write_text("")
    login = f"machine api.wandb.ai login user password {CANARIES['the login of W&B']}\n"
    (user.home / ".netrc").write_text(login)
    (sources / "url").write_text(f"http://127.0.0.1:9/{CANARIES['the address of a webhook']}")
    job = {
        "name": "gpt", "accelerator": "v4-8", "zones": "any", "run": RUN, "setup": ["echo set up"],
        "retry": {"failures": 0},
        "workdir": "code",
        "secrets": {"OWN_KEY": {"env": "OWN_KEY"}, "HF_TOKEN": {"file": "from/hf"},
                    "CMD_KEY": {"command": "cat from/cmd"}},
        "notify": [
            {"url": {"file": "from/url"}, "token": {"file": "from/token"}},
            {"host": "127.0.0.1", "port": 9, "to": "a@b.c", "user": "me", "tls": "none",
             "password": {"file": "from/password"}},
        ],
    }  # fmt: skip
    (user.home / "gpt.yaml").write_text(json.dumps(job))
    done = user.herd("run", user.home / "gpt.yaml", "--detach", "--yes", env=environment())
    assert done.returncode == 0, done.stderr


def test_no_secret_is_anywhere_but_in_its_place(user: Owner, tmp_path: Path) -> None:
    sources = user.home / "from"
    sources.mkdir()
    submit(user, sources)
    user.happened("attempt.started")
    found = [*in_arguments(), *in_variables_of_hosts(user)]
    user.happened("slot.gave_up")
    until(lambda: "fail" in user.herd("notify", "list").stdout, "undelivered messages", seconds=60)
    assert "right" in user.herd("logs", "gpt").stdout
    page, token = page_texts(user)
    found += [f"the page: {what}" for what in canaries_in(page)]
    for words in SHOWING:
        done = user.herd(*words, cwd=tmp_path, env=environment())
        shown = (done.stdout + done.stderr).encode()
        found += [f"herd {' '.join(words)}: {what}" for what in canaries_in(shown)]
        assert token not in shown.decode(), words
        assert "internal error" not in done.stderr, words
    found += [*in_arguments(), *in_files(tmp_path), *in_bundle(tmp_path / "bug.tar.gz")]
    netrc = user.home / ".netrc"
    found += in_files(user.home, but=(sources, netrc, *(user.store_folder / name for name in KEPT)))
    found += in_files(user.world.folder, private="hosts")
    assert found == []
    there = {one.partition(": ")[2] for one in in_files(user.store_folder / "secrets")}
    assert len(there) == 7, "the search finds what is there"
    keep_private(user, token)


def in_arguments() -> Iterator[str]:
    """The arguments of all processes of this machine, which anyone may read."""
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            content = file.read_bytes()
        except OSError:
            continue
        yield from (f"{content[:80]!r}: {what}" for what in canaries_in(content))


def in_variables_of_hosts(user: Owner) -> Iterator[str]:
    """Processes of hosts that are none of the job's have no secret of it, nor of the user."""
    for file in Path("/proc").glob("[0-9]*/environ"):
        try:
            content = file.read_bytes()
        except OSError:
            continue
        if b"HERD_JOB=gpt" in content:  # has those of the job, and no other
            mine = {
                what
                for what in canaries_in(content)
                if not what.startswith(("a secret", "the login"))
            }
            yield from (f"the job's variables: {what}" for what in mine)
        elif str(user.home).encode() not in content:
            yield from (f"variables of {file.parts[2]}: {what}" for what in canaries_in(content))


def in_files(folder: Path, *, but: tuple[Path, ...] = (), private: str = "") -> Iterator[str]:
    """Every file; what hosts keep for a running command is in files that only its user reads."""
    for file in folder.rglob("*"):
        if file.is_symlink() or not file.is_file() or any(file.is_relative_to(one) for one in but):
            continue
        if private and private in file.parts and not file.stat().st_mode & 0o077:
            continue
        yield from (f"{file}: {what}" for what in canaries_in(file.read_bytes()))


def in_bundle(file: Path) -> Iterator[str]:
    """What a maintainer would get."""
    with tarfile.open(file) as bundle:
        for member in bundle.getmembers():
            stream = bundle.extractfile(member)
            content = stream.read() if stream is not None else b""
            yield from (f"the bundle's {member.name}: {what}" for what in canaries_in(content))


def page_texts(user: Owner) -> tuple[bytes, str]:
    """What `herd ui` serves about the job, and its token."""
    with user.begun("ui", "--no-browser") as process:
        port, token = read_address(process)
        paths = ("overview", "jobs/gpt", "events", "orphans", "quota")
        texts = [read_page(port, token, path) for path in paths]
        assert token.encode() not in b"".join(
            file.read_bytes() for file in Path(f"/proc/{process.pid}").glob("cmdline")
        )
    assert all(token.encode() not in text for text in texts)
    return b"".join(texts), token


def read_page(port: int, token: str, path: str) -> bytes:
    request = Request(
        f"http://127.0.0.1:{port}/api/{path}", headers={"Authorization": f"Bearer {token}"}
    )
    try:
        with urlopen(request, timeout=60) as answer:
            content: bytes = answer.read()
    except HTTPError as error:
        content = error.read()
    return content


def keep_private(user: Owner, token: str) -> None:
    """Where secrets are, only the user reads; the page's token and the SSH key have one file."""
    homes = {"config": user.home / ".config", "state": user.home / ".local/state"}
    files = [file for home in homes.values() for file in home.rglob("*") if file.is_file()]
    contents = {file: file.read_bytes() for file in files}
    key = next(text for text in contents.values() if b"OPENSSH PRIVATE KEY" in text)
    middle = key.splitlines()[2]
    for secret in (token.encode(), middle, *(value.encode() for value in CANARIES.values())):
        holders = [file for file, text in contents.items() if secret in text]
        assert len(holders) <= 1, holders
        assert all(file.stat().st_mode & 0o077 == 0 for file in holders), holders
    secrets = user.store_folder / "secrets"
    assert secrets.stat().st_mode & 0o077 == 0
    assert user.herd("down", "gpt", "--yes").returncode == 0
    until(lambda: not any(secrets.rglob("gpt*/*")), "them to go with the job", seconds=30)
