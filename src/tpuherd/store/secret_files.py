"""The secrets of detached jobs: files beside the store that only the user can read."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from tpuherd.store.corruption import explain_errors


class SecretFiles:
    """Secrets by job and name, deleted with the job."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, job: str, name: str, value: str) -> None:
        """Save it atomically."""
        with explain_errors(self.folder):
            home = self.folder / job
            for folder in (self.folder, home):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            draft = home / f".{name}.new"
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with open(descriptor, "w", encoding="utf-8", newline="") as stream:
                stream.write(value)
                stream.flush()
                os.fsync(descriptor)
            draft.replace(home / name)

    def get(self, job: str) -> Mapping[str, str]:
        """All secrets of the job, by name."""
        with explain_errors(self.folder):
            return {
                file.name: file.read_bytes().decode()
                for file in sorted((self.folder / job).glob("[!.]*"))
            }

    def remove(self, job: str) -> None:
        """Delete all secrets of the job."""
        with explain_errors(self.folder):
            if (self.folder / job).exists():
                shutil.rmtree(self.folder / job)
