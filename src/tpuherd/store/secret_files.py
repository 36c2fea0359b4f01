"""The secrets of detached jobs: files beside the store that only the user can read."""

import shutil
from collections.abc import Mapping
from pathlib import Path

from tpuherd.files import atomic_write, make_private_folder
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
                make_private_folder(folder)
            atomic_write(home / name, value, durable=True)

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
