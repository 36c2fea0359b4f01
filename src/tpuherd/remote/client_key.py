"""The key pair by which we log in, made when it is first needed."""

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

import asyncssh

from tpuherd.errors import InvalidInput

FILE = "id_ed25519"


@dataclass(frozen=True, kw_only=True, slots=True)
class KeyPair:
    """What we show to hosts."""

    private: asyncssh.SSHKey
    public: str  #: ssh-ed25519 AAAA…
    file: Path


def key_pair(folder: Path) -> KeyPair:
    """The one of this configuration folder; whoever comes first makes it."""
    file = folder / FILE
    try:
        if not file.exists():
            make_key_pair(file)
        private = asyncssh.import_private_key(file.read_bytes())
    except OSError as error:
        raise InvalidInput(f"{file} can't be used ({error.strerror})") from error
    except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError) as error:
        raise InvalidInput(
            f"{file} is no private key without a passphrase ({error})",
            hint="move it away, and a new one will be made",
        ) from error
    words = private.export_public_key().decode().split()
    return KeyPair(private=private, public=" ".join(words[:2]), file=file)


def make_key_pair(file: Path) -> None:
    """Make a pair; where two do so at once, the first one's stays."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    private = asyncssh.generate_private_key("ssh-ed25519", comment="tpuherd")
    half = file.with_name(f".{file.name}.{os.getpid()}")
    half.unlink(missing_ok=True)
    descriptor = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "wb") as stream:
            stream.write(private.export_private_key())
        with contextlib.suppress(FileExistsError):
            os.link(half, file)
            file.with_name(f"{file.name}.pub").write_bytes(private.export_public_key())
    finally:
        half.unlink()
