"""The events and logs of a job as one stream: `herd events -f` and `herd logs -f`."""

import json
import queue
import re
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Any

SAID = re.compile(r"(?:\S+ )?(?P<host>\S+/w\d+): (?P<text>.*)")
STEP = re.compile(r"step +(\d+) +loss +([\d.]+)")
WAIT_S = 1.0


def followed(
    herd: Sequence[str | Path], environ: Mapping[str, str], name: str
) -> Iterator[dict[str, Any]]:
    """Yield events with their kind, and log lines with host and step.

    Yields an empty value each second without news, so that the caller can check the time, and the
    stream's name when it ends: the last lines come after the event of the end.
    """
    heard: queue.Queue[dict[str, Any]] = queue.Queue()
    streams = {
        ("events", name, "--follow", "--json"): event,
        ("logs", name, "--follow"): line,
    }
    programs = []
    try:
        for words, read in streams.items():
            program = subprocess.Popen(
                [*herd, *words], env=environ, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL, text=True
            )
            programs.append(program)
            threading.Thread(
                target=listen, args=[program, words[0], read, heard], daemon=True
            ).start()
        while True:
            try:
                yield heard.get(timeout=WAIT_S)
            except queue.Empty:
                yield {}
    finally:
        for program in programs:
            program.terminate()
            program.wait()


def listen(program: "subprocess.Popen[str]", name: str, read: Any, heard: Any) -> None:
    """Pass on the lines that can be parsed."""
    assert program.stdout is not None
    for text in program.stdout:
        found = read(text)
        if found:
            heard.put(found)
    heard.put({"ended": name})


def event(text: str) -> dict[str, Any]:
    """Parse a line of `herd events --json`."""
    try:
        found: dict[str, Any] = json.loads(text)
    except ValueError:
        return {}
    return found


def line(text: str) -> dict[str, Any]:
    """Parse a line of `herd logs`."""
    found = SAID.match(text.strip())
    if found is None:
        return {}
    told: dict[str, Any] = {"host": found["host"], "text": found["text"]}
    step = STEP.search(found["text"])
    if step:
        told |= {"step": int(step[1]), "loss": float(step[2])}
    return told
