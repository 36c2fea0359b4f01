"""The stacks of a hanging program, as its agent reads them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tpuherd_host.agent.host.stack_traces import stack_text

STUCK = """
import os, sys, threading
from tpuherd_host.train import stack_dump
stack_dump.register_stack_dump()

def in_a_thread():
    threading.Event().wait()

def for_ever():
    print("here", flush=True)
    os.read(0, 1)  # in the kernel, as in a library: Python does not run

threading.Thread(target=in_a_thread, daemon=True).start()
for_ever()
"""

pytestmark = pytest.mark.real


def test_a_program_dumps_its_stacks_and_continues() -> None:
    if shutil.which("py-spy"):
        pytest.skip("py-spy tells more here")
    src = str(Path(__file__).parents[2] / "src")
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": src}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", STUCK], env=env, stdin=pipe, stdout=pipe, stderr=pipe, text=True
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "here\n"
        for _ in range(2):
            said = stack_text(program.pid, "")
            assert said.count("in for_ever") == 1
            assert said.count("in in_a_thread") == 1
            assert "state S" in said
        _, trouble = program.communicate("x", timeout=60)
        assert (program.returncode, trouble) == (0, "")
        assert stack_text(program.pid, "") == "it is gone\n"
