"""The SSH key pair with which we log in, created when first needed."""

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

import asyncssh

from tpuherd.errors import InvalidInput
from tpuherd.files import make_private_folder

FILE = "id_ed25519"


@dataclass(frozen=True, kw_only=True, slots=True)
class KeyPair:
    """Our SSH key pair."""

    private: asyncssh.SSHKey
    public: str  #: ssh-ed25519 AAAA…
    file: Path


def key_pair(folder: Path) -> KeyPair:
    """The key pair of this configuration folder; created if missing."""
    file = folder / FILE
    try:
        if not file.exists():
            make_key_pair(file)
        private = asyncssh.import_private_key(file.read_bytes())
    except OSError as error:
        raise InvalidInput(f"{file} can't be used ({error.strerror})") from error
    except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError) as error:
        raise InvalidInput(
            f"{file} is not a private key without a passphrase ({error})",
            hint="move it away and herd creates a new one",
        ) from error
    words = private.export_public_key().decode().split()
    return KeyPair(private=private, public=" ".join(words[:2]), file=file)


def make_key_pair(file: Path) -> None:
    """Create a key pair; if two processes do so at once, the first one wins."""
    make_private_folder(file.parent)
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
