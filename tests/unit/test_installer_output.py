"""Of all that uv and pip print, users read one sentence; and it says whether to try again."""

import pytest

from tpuherd_host.agent.environments.installer_output import FAILED, FULL, UNFIT, explain_failure

SAYS = {
    """\
Using Python 3.11.7 environment at: v
error: No solution found when resolving dependencies
  cause: Because numpy==99 was not found in the package registry and you require numpy==99, we
      can conclude that your requirements are unsatisfiable.""": (
        UNFIT,
        "Because numpy==99 was not found in the package registry and you require numpy==99, we can"
        " conclude that your requirements are unsatisfiable",
    ),
    """\
  × No solution found when resolving dependencies:
  ╰─▶ Because there is no version of tiny==9 and you require tiny==9, we can
      conclude that your requirements are unsatisfiable.""": (
        UNFIT,
        "Because there is no version of tiny==9 and you require tiny==9, we can conclude that your"
        " requirements are unsatisfiable",
    ),
    """\
error: Failed to build `cext @ file:///herd/gpt/cext`
  cause: The build backend returned an error
  cause: Call to `setuptools.build_meta` failed (exit status: 1)

         [stderr]
         cext.c:1:10: fatal error: nowhere.h: No such file or directory
         compilation terminated.
         error: Command '['gcc']' returned non-zero exit status 1.""": (
        UNFIT,
        "Failed to build `cext @ file:///herd/gpt/cext`: fatal error: nowhere.h: No such file or"
        " directory",
    ),
    """\
error: Request failed after 3 retries in 6.1s
  cause: Failed to fetch: http://127.0.0.1:9/simple/numpy/
  cause: Connection refused (os error 111)""": (
        FAILED,
        "a server could not be reached (Request failed after 3 retries in 6.1s: Failed to fetch:"
        " http://127.0.0.1:9/simple/numpy/)",
    ),
    """\
error: Error parsing included file in `r.txt` at position 0
  cause: failed to read from file `absent.txt`: No such file or directory (os error 2)""": (
        UNFIT,
        "Error parsing included file in `r.txt` at position 0: failed to read from file"
        " `absent.txt`: No such file or directory (os error 2)",
    ),
    """\
ERROR: Could not find a version that satisfies the requirement tiny==9 (from versions: 1.0)
ERROR: No matching distribution found for tiny==9""": (
        UNFIT,
        "Could not find a version that satisfies the requirement tiny==9 (from versions: 1.0)",
    ),
    """\
WARNING: Retrying (Retry(total=4, connect=None)) after connection broken
ERROR: No matching distribution found for tiny==9""": (
        FAILED,
        "a server could not be reached (No matching distribution found for tiny==9)",
    ),
    "Killed": (UNFIT, "Killed"),
    "": (UNFIT, "it printed nothing"),
}


@pytest.mark.parametrize("text", SAYS)
def test_the_cause_is_one_sentence(text: str) -> None:
    status, sentence = SAYS[text]
    found = explain_failure("requirements.txt", text.splitlines())
    assert found == (f"requirements.txt can't be installed: {sentence}", status)


def test_a_full_disk_is_reported_as_full() -> None:
    found = explain_failure(
        "uv.lock", ["error: x", "  cause: No space left on device (os error 28)"]
    )
    assert found == ("the disk is full: uv.lock can't be installed", FULL)


def test_it_is_short() -> None:
    assert len(explain_failure("uv.lock", ["error: " + "x" * 9999]).sentence) <= 400
