"""Placeholders for what a transcript must not contain: the same value, the same placeholder."""

import calendar
import re
from dataclasses import dataclass
from hashlib import blake2b

TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(\.\d{1,12})?([Zz]|[+-]\d\d:\d\d)")
DIGITS = re.compile(r"-?\d{1,30}")
ADDRESS = re.compile(r"(?=.*[.:])[0-9a-fA-F.:]{3,45}(/\d{1,3})?")


@dataclass(frozen=True, kw_only=True, slots=True)
class Placeholders:
    """One recording's way to hide values."""

    key: bytes  #: secret and never in the transcript, so that nobody can check a guessed name
    start: float  #: times are seconds since then

    def hide_value(self, kind: str, value: str) -> str:
        """Return <kind:digest>."""
        digest = blake2b(value.encode(errors="surrogatepass"), key=self.key, digest_size=4)
        return f"<{kind}:{digest.hexdigest()}>"

    def hide_time(self, value: str) -> str | None:
        """Return <time:SECONDS:FORM> with the number of decimals and the zone's form; None if it is
        not a time.
        """
        at = parse_time(value)
        if at is None:
            return None
        found = TIME.fullmatch(value)
        decimals = len(found[7] or ".") - 1 if found else 0
        form = "Z" if value.endswith("Z") else "offset"
        return f"<time:{at - self.start:.3f}:{decimals}{form}>"

    def hide_text(self, value: str, kind: str = "text") -> str:
        """Return the placeholder of a value of no known kind, by its form."""
        if not value:
            return ""
        shown = self.hide_time(value)
        if shown is not None:
            return shown
        if DIGITS.fullmatch(value):
            return self.hide_value("digits", value)
        if ADDRESS.fullmatch(value):
            return self.hide_value("address", value)
        if "@" in value:
            return self.hide_value("email", value)
        return self.hide_value(kind, value)


def parse_time(value: str) -> float | None:
    """Return the seconds since 1970 of an RFC 3339 time."""
    found = TIME.fullmatch(value)
    if found is None:
        return None
    year, month, day, hour, minute, second = (int(found[number]) for number in range(1, 7))
    if not (year >= 1970 and 1 <= month <= 12 and 1 <= day <= 31 and hour <= 24 and minute < 60):
        return None
    at = float(calendar.timegm((year, month, day, hour, minute, second)))
    at += float(f"0{found[7]}") if found[7] else 0.0
    zone = found[8]
    if zone in "Zz":
        return at
    offset = int(zone[1:3]) * 3600 + int(zone[4:6]) * 60
    return at - offset if zone[0] == "+" else at + offset
