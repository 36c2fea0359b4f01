"""What was ended and removed on hosts, in lines."""

from collections.abc import Mapping
from typing import Any

from tpuherd.targets import fold_names
from tpuherd.views.format_text import shorten_command


def summary_lines(answers: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return what was done, a line for all hosts with the same result."""
    groups: dict[str, dict[str, list[int]]] = {}
    for host, answer in answers.items():
        for sentence, pid in host_sentences(answer) or [("nothing to clean", 0)]:
            groups.setdefault(sentence, {}).setdefault(host, []).append(pid)
    return [f"{fold_names(hosts)}: {said}{pid_suffix(hosts)}" for said, hosts in groups.items()]


def pid_suffix(hosts: Mapping[str, list[int]]) -> str:
    """Return the pids, if the line is about one host."""
    pids = [pid for each in hosts.values() for pid in each] if len(hosts) == 1 else []
    return f" (pid {', '.join(map(str, pids))})" if any(pids) else ""


def host_sentences(answer: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Return what happened on one host, each sentence with its pid or 0."""
    said = [(f"ended {shorten_command(one['command'])}", one["pid"]) for one in answer["ended"]]
    said += [
        (f"could not end {shorten_command(one['command'])}", one["pid"]) for one in answer["left"]
    ]
    said += [(f"removed the stale lock {path}", 0) for path in answer["removed"]]
    return said + [(f"made {path} writable for all", 0) for path in answer["mended"]]
