"""The user's own ~/.ssh/config, in which only our lines are ever changed."""

import os
from dataclasses import dataclass
from pathlib import Path

from tpuherd.errors import HerdError, InvalidInput
from tpuherd.files import atomic_write
from tpuherd.ssh_config.config_text import own_host_names, replace_block

BACKUP = ".before-herd"
ENCODING = {"encoding": "utf-8", "errors": "surrogateescape"}


@dataclass(frozen=True, slots=True)
class UserConfig:
    """The configuration of ssh in this home."""

    home: Path

    @property
    def path(self) -> Path:
        return self.home / ".ssh" / "config"

    def read(self) -> str:
        """Return its text, which any bytes survive; empty if there is none."""
        try:
            text = self.path.read_bytes().decode(**ENCODING)
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise InvalidInput(f"{self.path} can't be read ({error.strerror})") from error
        if "\0" in text:
            raise InvalidInput(
                f"{self.path} is not a text file", hint="move it away, or fix it, and try again"
            )
        return text

    def host_names(self) -> frozenset[str]:
        """Return the names that it has besides ours; none if it can't be read."""
        try:
            return own_host_names(self.read())
        except HerdError:
            return frozenset()

    def include(self, config: Path | None) -> Path | None:
        """Include our configuration, or nothing; return the copy of the former file if changed."""
        before = self.read()
        try:
            after = replace_block(before, config)
        except InvalidInput as error:
            raise InvalidInput(f"{self.path}: {error.sentence}", hint=error.hint) from error
        if after == before:
            return None
        try:
            return self._write(before, after)
        except OSError as error:
            raise InvalidInput(
                f"{error.filename or self.path} can't be written ({error.strerror})"
            ) from error

    def _write(self, before: str, after: str) -> Path:
        """Replace the file, or the one that a link leads to, and keep its owner and mode."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = Path(os.path.realpath(self.path))
        backup = self.path.with_name(self.path.name + BACKUP)
        found = file.stat() if file.exists() else None
        if found is not None:
            atomic_write(backup, before.encode(**ENCODING), durable=True)
        atomic_write(file, after.encode(**ENCODING), durable=True)
        if found is not None:
            file.chmod(found.st_mode & 0o777)
            if found.st_uid != os.getuid():
                os.chown(file, found.st_uid, found.st_gid)
        return backup
