"""Appends what the client sends and receives to a transcript while the project is recorded.

The scrubbing is in tpuherd.transcripts. Recording never disturbs the traffic: what can't be written
is left out.
"""

import json
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tpuherd.clock import Clock
from tpuherd.cloud.rest import ExchangeNote, Json, QueryValue
from tpuherd.settings.recordings import Recording, append_record, load_recording
from tpuherd.transcripts.placeholders import Placeholders
from tpuherd.transcripts.scrub_exchange import SentRequest, line_digest, scrub_exchange

Reply = tuple[int | None, object]  #: the status, and the JSON if it was JSON
BYTES_MAX = 4 << 20  #: of a reply; a larger one is recorded without its content


class TrafficRecorder:
    """The tap of one client."""

    def __init__(self, flag: Path, clock: Clock) -> None:
        self.clock = clock
        self._flag = flag
        self._stamp: tuple[int, int] | None = None
        self._recording: Recording | None = None
        self._prefix = secrets.token_hex(3)  #: tells the lines of different processes apart
        self._count = 0
        self._last: dict[str, tuple[str, str]] = {}  #: by request: the line's content and id
        self._inode: int | None = None

    def begin_exchange(
        self, method: str, url: str, query: Mapping[str, QueryValue], body: Json | None
    ) -> ExchangeNote:
        """A request is about to be sent; it is recorded if the flag is set now."""
        now = self.clock.now()
        recording = self._current_recording()
        if recording is None or now >= recording.until:
            return ExchangeNote()
        path = urlsplit(url).path.lstrip("/")
        sent = SentRequest(method=method, path=path, query=query, body=body)
        return RecordedNote(self, sent, now)

    def append_exchange(
        self, begun: float, sent: SentRequest, reply: Reply, more: Mapping[str, Any]
    ) -> None:
        """Append an exchange; a reply equal to the previous one becomes a short line."""
        recording = self._current_recording()
        if recording is None:
            return
        took = {
            "at": round(begun - recording.start, 3),
            "took_s": round(self.clock.now() - begun, 3),
        }
        line = {**scrub_exchange(sent, *reply, recording.placeholders), **more}
        asked, content = request_key(sent, recording.placeholders), line_digest(line)
        before = self._last.get(asked)
        if before is not None and before[0] == content:
            self._append(recording, {"kind": "repeat", "of": before[1], **took})
            return
        self._count += 1
        id = f"{self._prefix}-{self._count}"
        self._append(recording, {"kind": "exchange", "id": id, **took, **line})
        if sent.method == "GET":
            self._last[asked] = (content, id)

    def _append(self, recording: Recording, line: Mapping[str, Any]) -> None:
        inode = append_record(recording, self._flag, line)
        if inode != self._inode:
            self._last.clear()  # a new part of the transcript has none of the earlier lines
            self._inode = inode

    def _current_recording(self) -> Recording | None:
        """Return the recording that the flag names, which any process may change at any time."""
        try:
            facts = self._flag.stat()
        except OSError:
            self._stamp = self._recording = None
            return None
        stamp = (facts.st_ino, facts.st_mtime_ns)
        if stamp != self._stamp:
            self._stamp, self._recording = stamp, load_recording(self._flag)
            self._last.clear()
        return self._recording


def request_key(sent: SentRequest, hide: Placeholders) -> str:
    """Return what identifies a request, without keeping its names in memory."""
    return hide.hide_value("request", f"{sent.method} {sent.path} {sorted(sent.query.items())}")


class RecordedNote(ExchangeNote):
    """One request that is recorded once its fate is known."""

    def __init__(self, recorder: TrafficRecorder, sent: SentRequest, begun: float) -> None:
        self._recorder = recorder
        self._sent = sent
        self._begun = begun

    def record_reply(self, status: int, body: bytes) -> None:
        """Append the exchange."""
        reply: object = None
        if len(body) <= BYTES_MAX:
            try:
                reply = json.loads(body)
            except (ValueError, RecursionError):
                reply = None
        self._recorder.append_exchange(self._begun, self._sent, (status, reply), {})

    def record_failure(self, failure: str) -> None:
        """Append the request that got no reply."""
        self._recorder.append_exchange(self._begun, self._sent, (None, None), {"failure": failure})
