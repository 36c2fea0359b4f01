"""Placeholders for what a text must not show: the same value, the same placeholder."""

from dataclasses import dataclass
from hashlib import blake2b


@dataclass(frozen=True, kw_only=True, slots=True)
class Placeholders:
    """One report's way to hide values."""

    key: bytes  #: secret and never in the report, so that nobody can check a guessed name

    def hide_value(self, kind: str, value: str) -> str:
        """Return <kind:digest>."""
        digest = blake2b(value.encode(errors="surrogatepass"), key=self.key, digest_size=4)
        return f"<{kind}:{digest.hexdigest()}>"
