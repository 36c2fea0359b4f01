"""Tests that this machine cannot run are skipped with a reason, and listed at the end."""

import os
import shutil
import signal
from collections import Counter
from collections.abc import Sequence
from typing import Any

import hypothesis
import pytest

from tests.tiers import LONG, REAL, is_listed, start_order

LEFT_OUT = pytest.StashKey[dict[str, int]]()  #: how many tests, by the command that runs them


# How long an example takes on a loaded machine is no law of ours.
hypothesis.settings.register_profile("tpuherd", deadline=None)
hypothesis.settings.load_profile("tpuherd")


def pytest_configure(config: pytest.Config) -> None:
    # A world that the developer works in must not be the one that tests disturb.
    for name in (
        "HERD_WORLD",
        "HERD_STORE",
        "HERD_DEBUG",
        "NO_COLOR",
        "FORCE_COLOR",
        "CLICOLOR_FORCE",
    ):
        os.environ.pop(name, None)
    # Behind nohup or a script's `&` these are ignored, and programs that tests start would inherit
    # that. A signal with a handler here has its default action there.
    for number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


@pytest.hookimpl(tryfirst=True)  # before `-m` selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if is_listed(item.nodeid, LONG):
            item.add_marker(pytest.mark.long)
        if is_listed(item.nodeid, REAL):
            item.add_marker(pytest.mark.heavy)
    items.sort(key=lambda item: start_order(item.nodeid))


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("root") and os.geteuid() != 0:
        pytest.skip("needs root")
    wanted = [name for mark in item.iter_markers("needs") for name in mark.args]
    absent = [name for name in wanted if shutil.which(name) is None]
    if absent:
        pytest.skip(f"needs {', '.join(absent)} on PATH (.ci/run installs what can be had)")


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    counts: Counter[str] = Counter()
    for item in items:
        if item.get_closest_marker("heavy"):
            counts["make test-real"] += 1
        elif item.get_closest_marker("long"):
            counts["make test-long"] += 1
    items[0].config.stash[LEFT_OUT] = dict(counts)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):  # one of several processes: the first one tells
        session.config.workeroutput["left_out"] = session.config.stash.get(LEFT_OUT, {})


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    del error
    node.config.stash[LEFT_OUT] = getattr(node, "workeroutput", {}).get("left_out", {})


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    stats = terminalreporter.stats
    reasons: Counter[tuple[str, str]] = Counter()
    for report in stats.get("skipped", ()):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reasons[report.nodeid.partition("::")[0], reason.removeprefix("Skipped: ")] += 1
    left_out = terminalreporter.config.stash.get(LEFT_OUT, {})
    if reasons or left_out:
        terminalreporter.section("skipped", sep="-")
    for (file, reason), count in reasons.items():
        terminalreporter.write_line(f"skipped: {count} in {file}: {reason}")
    for command, count in left_out.items():
        terminalreporter.write_line(f"left out: {count} that `{command}` runs")
