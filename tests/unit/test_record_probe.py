"""The probe of `herd record hosts`: what it makes of a host's files and answers."""

import io
import socket
import threading

import pytest

from tpuherd_host import record_probe
from tpuherd_host.record_probe import endpoint_form, frame, leaf_paths, parse_names


@pytest.mark.parametrize(
    ("value", "form"),
    [
        ("t1v-n-1-w-0:12345:10.0.0.1,t1v-n-1-w-1:12346:10.0.0.2", "name:digits:address"),
        ("unknown:unknown:10.0.0.1", "unknown:unknown:address"),
        ("10.0.0.1,10.0.0.2", "address"),
        ("", "empty"),
    ],
)
def test_only_the_form_of_endpoints_is_told(value: str, form: str) -> None:
    assert endpoint_form(value) == form


def test_the_paths_of_metadata_have_no_values() -> None:
    tree = {"a": {"b": "secret", "c": [{"d": 1}, {"e": ""}]}, "f": [], "g": {}}
    paths = [("a", "b"), ("a", "c", "0", "d"), ("a", "c", "0", "e"), ("f",), ("g",)]
    assert list(leaf_paths(tree)) == paths


def field(text: str) -> bytes:
    return bytes((10, len(text) + 2, 10, len(text))) + text.encode()


def test_the_names_in_a_reply_are_found() -> None:
    assert parse_names(field("one") + field("two.three")) == ["one", "two.three"]
    assert parse_names(b"") == []


@pytest.mark.parametrize("reply", [b"\x0a", b"\x12\x01a", b"\x0a" + b"\xff" * 9, b"\x0a\x03\x12"])
def test_another_reply_is_refused(reply: bytes) -> None:
    with pytest.raises(ValueError, match=r"field 1|no end"):
        parse_names(reply)


def answer(end: socket.socket, frames: bytes) -> threading.Thread:
    """A server that says this and hangs up."""

    def serve() -> None:
        end.sendall(frames)
        end.shutdown(socket.SHUT_WR)

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


OVER = frame(1, 5, 1)  #: the last headers


@pytest.mark.parametrize(
    ("frames", "reply"),
    [
        (frame(4, 0, 0) + frame(1, 4, 1, b"x") + frame(0, 0, 1, bytes(5) + b"ab") + OVER, b"ab"),
        (frame(6, 0, 0, b"12345678") + frame(0, 1, 1, bytes(5) + b"cd"), b"cd"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", b""),
        (b"", b""),
    ],
)  # fmt: skip
def test_a_reply_is_read_to_its_end(frames: bytes, reply: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        server = answer(theirs, frames)
        assert record_probe.call_grpc(ours, "/x") == reply
        server.join()


def test_without_a_metadata_server_and_chips_it_prints_what_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GCE_METADATA_HOST", "127.0.0.1:1")
    printed = io.StringIO()
    monkeypatch.setattr("sys.stdout", printed)
    assert record_probe.main() == 0
    assert '"metadata": []' in printed.getvalue()
