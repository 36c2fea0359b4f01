"""What types show: the controller and training scripts call nothing that macOS lacks."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
CHECKED = ("src/tpuherd", "src/tpuherd_host/train", "src/tpuherd_host/report.py")
#: What is called only where it exists: see EXCEPTIONS of tests/rules/test_laptops.py.
KNOWN = ("SIGRTMAX",)


def test_the_controller_has_the_types_of_macos() -> None:
    words = ("--platform=darwin", "--cache-dir=.mypy_cache/darwin", "--no-warn-unused-ignores")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *words, *CHECKED], cwd=ROOT, capture_output=True, text=True
    )
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert done.returncode < 2, done.stdout + done.stderr
    assert not [line for line in errors if not any(word in line for word in KNOWN)]
    assert any("SIGRTMAX" in line for line in errors), "it would find more"
