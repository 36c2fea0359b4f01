"""Numbered files in a bucket or folder, for a script that saves by itself."""

from collections.abc import Mapping

from tpuherd_host.train.storage import of_run, place

KEPT = 2


class Saves:
    """The files of one run: complete or absent, and found by every attempt."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.place = place(of_run(environ["HERD_CHECKPOINT"], environ["RUN_ID"]), environ)

    def newest(self) -> tuple[int, bytes | None]:
        """Return the newest step and its content, or 0 and None."""
        names = self.place.names("step-")
        if not names:
            return 0, None
        return int(names[-1].removeprefix("step-").removesuffix(".pt")), self.place.read(names[-1])

    def keep(self, step: int, content: bytes) -> None:
        """Save, then delete all but the newest two."""
        self.place.write(f"step-{step:09}.pt", [content])
        for old in self.place.names("step-")[:-KEPT]:
            self.place.remove(old)
