"""Which of several failures is the cause: on one host, and over all hosts."""

from collections.abc import Sequence

import pytest

from tpuherd.diagnosis.explain import FindingRole, explain_hosts, explain_lines, state_fact
from tpuherd.diagnosis.known_rules import RULES
from tpuherd.diagnosis.line_time import find_line_time
from tpuherd.diagnosis.log_scanner import HINT_LINES_MAX, LINES_MAX, HostScan, LogScanner
from tpuherd.diagnosis.match_line import make_rule_book

BEGIN = "Traceback (most recent call last):"
FRAME = '  File "/home/ada/gpt/train.py", line 88, in train'
GLOO = "jax.errors.JaxRuntimeError: UNKNOWN: Gloo AllGather failed: Connection reset by peer"
HEART = "E1120 11:53:24.120391   15951 agent.cc:332] UNAVAILABLE: Task 1 heartbeat timeout."
FATAL = (
    "F1120 11:53:25.324336   15951 client.h:80] Terminating process because the JAX distributed"
    " service detected fatal errors. This most likely indicates that another task died"
)
LOST = (BEGIN, FRAME, "    update(state)", GLOO, HEART, FATAL, "Fatal Python error: Aborted")
FULL = "OSError: [Errno 28] No space left on device"
NO_MODULE = "ModuleNotFoundError: No module named 'einops'"
TERM = "W1120 11:53:48.307841    7829 preemption_notifier.cc:90] SIGTERM caught at 2026-11-20"
BUSY = "ABORTED: The TPU is already in use by process with pid 27."
FORK = "RuntimeWarning: os.fork() was called."
CAUSE, ALSO = FindingRole.CAUSE, FindingRole.ALSO
CONSEQUENCE, NOTE = FindingRole.CONSEQUENCE, FindingRole.NOTE


def steps(many: int) -> list[str]:
    return [f"step {number} loss {9 - number / many:.3f}" for number in range(many)]


def scan(host: str, lines: Sequence[str], *, at: float | None = None) -> HostScan:
    scanner = LogScanner(host)
    for line in lines:
        scanner.feed(line, at=at)
    return scanner.finish()


def roles(lines: Sequence[str], exit: int | None = None) -> list[tuple[str, FindingRole]]:
    return [(one.id, one.role) for one in explain_lines(lines, exit=exit)]


def test_the_cause_is_found_behind_the_consequences_on_all_hosts() -> None:
    """Four hosts, thousands of lines, and one line that matters."""
    logs = {f"w{number}": [*steps(5000), *LOST] for number in range(4)}
    logs["w2"] = [*steps(5000), BEGIN, FRAME, "    save(state)", FULL, *LOST]
    found = explain_hosts([scan(host, lines) for host, lines in logs.items()])
    assert (found[0].id, found[0].role) == ("disk-full", CAUSE)
    assert (found[0].host, found[0].hosts, found[0].number) == ("w2", ("w2",), 5004)
    assert found[0].text == FULL
    assert [(one.id, one.role) for one in found[1:]] == [("peer-heartbeat", CONSEQUENCE)]
    assert found[1].hosts == ("w2", "w0", "w1", "w3")  # other lines of it say less


def test_a_failure_after_a_consequence_is_not_the_cause() -> None:
    after, before = scan("w0", [*LOST, FULL]), scan("w1", [NO_MODULE, *LOST])
    assert [one.id for one in explain_hosts([after, before])][:2] == ["no-module", "disk-full"]
    assert explain_hosts([after])[0].id == "disk-full"  # it is all we know
    found = explain_hosts([scan("w0", [*LOST, NO_MODULE]), scan("w1", [FULL])])
    assert [one.id for one in found][:2] == ["disk-full", "no-module"]
    assert [one.after for one in after.matches if one.rule.id == "disk-full"] == [True]


def test_hosts_that_were_told_to_end_are_not_the_cause() -> None:
    told = scan("w0", [TERM, BEGIN, "KeyError: 1"])
    assert [one.id for one in explain_hosts([told])] == ["sigterm"]
    found = explain_hosts([told, scan("w1", [NO_MODULE])])
    assert [(one.id, one.role) for one in found] == [("no-module", CAUSE), ("sigterm", ALSO)]
    lost = scan("w1", LOST)
    assert explain_hosts([lost, told])[0].id == "sigterm"


def test_times_tell_which_host_failed_first() -> None:
    full, module = scan("w0", [FULL], at=20.0), scan("w1", [NO_MODULE], at=10.0)
    assert explain_hosts([full, module])[0].host == "w1"
    assert explain_hosts([scan("w0", [FULL], at=9.0), module])[0].host == "w0"
    unknown = scan("w0", [FULL])
    assert explain_hosts([unknown, module])[0].host == "w1"  # by the classes of failures
    assert explain_hosts([unknown, scan("w1", ["E " + BUSY], at=99.0)])[0].host == "w1"
    stamped = [f"2026-11-20 11:4{minute}:00,5 {text}" for minute, text in ((2, BUSY), (1, FULL))]
    assert explain_hosts([scan("w0", stamped[:1]), scan("w1", stamped[1:])])[0].host == "w1"


def test_without_times_a_known_failure_counts_before_an_unknown_one() -> None:
    waits = scan("w0", [BEGIN, FRAME, "TimeoutError: w1 did not answer"])
    found = explain_hosts([waits, scan("w1", [BEGIN, FRAME, "MemoryError"])])
    assert [one.id for one in found] == ["oom-host", "python-error"]
    found = explain_hosts([scan("w0", [NO_MODULE]), scan("w1", [NO_MODULE])])
    assert (found[0].host, found[0].hosts) == ("w0", ("w0", "w1"))


def test_on_a_host_the_first_failure_counts_unless_another_says_more() -> None:
    assert roles([NO_MODULE, FULL]) == [("no-module", CAUSE), ("disk-full", ALSO)]
    halted = "INTERNAL: Accelerator device halted prematurely"
    assert roles([halted, "observed errors are: [Power]"]) == [("hw-error", CAUSE)]
    chained = [BEGIN, FRAME, NO_MODULE, "", "During handling of it", BEGIN, FRAME]
    assert roles([*chained, "RuntimeError: x"]) == [("no-module", CAUSE)]


def test_a_gang_that_never_met_is_a_cause_and_a_lost_peer_is_none() -> None:
    register = "RPC: /xla.coordination.CoordinationService/RegisterTask"
    assert roles([FATAL, register]) == [("coord-register", CAUSE)]
    assert roles([GLOO, HEART]) == [("peer-heartbeat", CONSEQUENCE)]
    assert roles([GLOO]) == [("peer-socket", CONSEQUENCE)]


def test_a_host_without_a_word_is_suspected_if_the_others_lost_it() -> None:
    lost, silent = [scan(f"w{number}", LOST) for number in range(2)], scan("w2", steps(7))
    found = explain_hosts([*lost, silent])
    assert (found[0].id, found[0].role, found[0].host) == ("silent-host", CAUSE, "w2")
    assert (found[0].text, found[0].number) == ("its log ends after 7 lines", 7)
    assert explain_hosts([*lost, scan("w2", [])])[0].text == "its log is empty"
    assert explain_hosts([*lost, silent, scan("w3", []), scan("w4", [])])[0].role is CONSEQUENCE
    assert explain_hosts([*lost, silent, scan("w3", [])])[0].hosts == ("w2", "w3")
    assert explain_hosts([*lost, silent, scan("w3", [NO_MODULE])])[0].id == "no-module"
    assert "silent-host" not in [
        one.id for one in explain_hosts([*lost, silent, scan("w3", [NO_MODULE])])
    ]
    register = scan("w3", ["RPC: /xla.coordination.CoordinationService/RegisterTask"])
    assert explain_hosts([*lost, silent, register])[0].id == "coord-register"
    noted = scan("w3", ["Could not open any log file"])
    assert explain_hosts([*lost, silent, noted])[0].host == "w2"
    book = make_rule_book(rule for rule in RULES.values() if rule.id != "silent-host")
    assert explain_hosts([*lost, silent], book)[0].id == "peer-heartbeat"


def test_the_exit_status_speaks_where_the_log_does_not() -> None:
    assert roles(steps(3), exit=137) == [("killed", CAUSE)]
    assert explain_lines(steps(3), exit=137)[0].text == "exit status 137"
    assert roles([*steps(3), GLOO], exit=137)[0] == ("killed", CAUSE)
    assert roles([FULL], exit=127) == [("disk-full", CAUSE)]
    for beside in (
        ["Could not open any log file"],
        [TERM],
        [FORK],
        ["Failed to fetch URL on try 3"],
    ):
        assert ("no-command", CAUSE) in roles(beside, exit=127) or beside == [TERM]
    assert explain_lines(steps(3), exit=137)[0].number == 0
    assert roles(steps(3), exit=1) == [] == roles(steps(3))
    refused = explain_lines(["herd: error: too few shards", "bye"], exit=78)
    assert (refused[0].id, refused[0].text) == ("herd-refused", "herd: error: too few shards")
    assert explain_lines(["no shards"], exit=78)[0].text == "exit status 78"
    assert explain_lines(["herd: resumed at step 3"], exit=127)[0].text == "exit status 127"


@pytest.mark.parametrize(
    ("line", "steps_max", "lines_max"),
    [(FULL, 2, LINES_MAX), (GLOO, 2, LINES_MAX), (FORK, 0, HINT_LINES_MAX)],
)
def test_what_the_program_went_on_after_was_overcome(
    line: str, steps_max: int, lines_max: int
) -> None:
    assert roles([line, *steps(steps_max)]) != []
    assert roles([line, *steps(steps_max + 1)]) == []
    assert roles([line, *["waiting", ""] * lines_max]) != []
    assert roles([line, BEGIN, *[FRAME] * (lines_max + 1)]) != []
    assert roles([line, *["waiting"] * (lines_max + 1)]) == []
    # The count begins anew with each such line; and what comes back counts as the first again.
    assert roles([line, *["waiting"] * lines_max, line, *["waiting"] * lines_max]) != []
    found = explain_lines([line, *steps(9), "on", line])
    assert found[0].number == 12
    again = scan("w0", [line, *steps(9), NO_MODULE, line])
    assert [match.number for match in again.matches] == [11, 12]


def test_of_equal_lines_the_first_counts() -> None:
    assert explain_lines(["on", FULL, "on", FULL])[0].number == 2


def test_slow_chips_stay_slow() -> None:
    assert roles(["WARNING:absl:No GPU/TPU found, falling back to CPU.", *steps(50)]) == [
        ("cpu-fallback", CAUSE)
    ]


def test_warnings_count_less_than_failures_and_more_than_lost_peers() -> None:
    assert roles([FORK, NO_MODULE])[0] == ("no-module", CAUSE)
    assert roles([FORK, GLOO])[0] == ("fork", CAUSE)
    register = "RPC: /xla.coordination.CoordinationService/RegisterTask"
    assert roles([register, FORK])[0] == ("fork", CAUSE)


def test_notes_are_told_beside_a_failure_only() -> None:
    note = "Could not open any log file."
    assert roles([note]) == []
    assert roles([note, FULL]) == [("disk-full", CAUSE), ("tpu-logs-perm", NOTE)]


def test_a_traceback_may_stand_behind_a_prefix() -> None:
    prefix = "[rank 3] "
    lines = [prefix + line for line in (BEGIN, FRAME, "    x = 1", "KeyError: 'lr'")]
    assert explain_lines(lines)[0].cause.startswith("the program ended with KeyError")
    assert explain_lines(["12:30 " + BEGIN, FRAME, "KeyError: 1"])[0].number == 3


def test_code_in_a_traceback_is_no_failure() -> None:
    assert roles([BEGIN, FRAME, "    raise OSError('No space left on device')", "KeyError: 1"]) == [
        ("python-error", CAUSE)
    ]
    assert roles([BEGIN, FRAME, "    raise OSError('No space left on device')"]) == []


def test_errors_that_python_ignores_are_ignored() -> None:
    ignored = ["Exception ignored in: <function f>", BEGIN, FRAME, "TypeError: x"]
    assert roles(ignored) == []
    assert roles([*ignored, BEGIN, FRAME, "KeyError: 1"]) == [("python-error", CAUSE)]
    assert roles(["Exception ignored in: <f>", "well", BEGIN, FRAME, "KeyError: 1"]) != []


def test_an_exception_group_is_read_by_its_parts() -> None:
    lines = ["  + Exception Group Traceback (most recent call last):", "  | ExceptionGroup: two",
             "    | Traceback (most recent call last):", '    |   File "x.py", line 1',
             "    | KeyError: 'lr'"]  # fmt: skip
    assert explain_lines(lines)[0].cause.startswith("the program ended with KeyError")


def test_lines_are_shown_clean_and_short() -> None:
    found = explain_lines([f"\x1b[31mOSError: Too many open files\x1b[0m\t{'x' * 300}"])
    assert found[0].text.startswith("OSError: Too many open files x")
    assert len(found[0].text) == 201
    found = explain_lines(["An error: No module", "ModuleNotFoundError: No module named 'a.b'"])
    assert found[0].cause.startswith("the Python of this host has no module a.b:")


def test_a_line_may_have_a_number_of_its_own() -> None:
    scanner = LogScanner()
    scanner.feed("", number=7)
    scanner.feed(FULL, number=9)
    scanner.feed(NO_MODULE)
    assert [match.number for match in scanner.finish().matches] == [9, 10]


def test_the_last_alarm_is_kept_if_no_rule_knows_the_log() -> None:
    assert scan("w0", ["error: no config", *["x"] * 19]).alarm == "error: no config"
    assert scan("w0", ["error: no config", *["x"] * 20]).alarm == ""
    assert scan("w0", ["error: a", "\x1b[1mfatal: b ", BEGIN]).alarm == "fatal: b"
    assert scan("w0", ["error: a", FULL]).alarm == ""
    assert scan("w0", ["error: a", FULL]).lines == 2
    for line in ("E1120 11:40:58.1 x", "gpt: access denied", "x.yaml: not found", "ConfigError: x"):
        assert scan("w0", [line]).alarm == line
    for line in ("0 errors", "validation error 0.1", "not found: 0", "denied list", "no panic"):
        assert scan("w0", [line]).alarm == ""


def test_a_fact_is_stated_with_the_lines_that_show_it() -> None:
    found = state_fact(RULES["no-module"], "w1", "ends", [BEGIN, FRAME, NO_MODULE])
    assert (found.role, found.host, found.hosts, found.number) == (CAUSE, "w1", ("w1",), 3)
    assert found.text == NO_MODULE and "no module einops:" in found.cause
    found = state_fact(RULES["tpu-busy-pid"], "w1", "ends", ["nothing"])
    assert (found.text, found.number) == ("ends", 0)
    assert found.cause.startswith("process … on this host")


def test_the_time_of_a_line() -> None:
    glog = find_line_time("F1120 11:42:53.5   15951 client.h:80] Terminating")
    iso = find_line_time("INFO 2026-11-20 11:42:53,5 train")
    assert glog == iso == ((((11 * 31 + 20) * 24 + 11) * 60) + 42) * 60 + 53.5
    assert find_line_time("2025-12-01T00:00:00 x") == ((12 * 31 + 1) * 24) * 3600
    assert find_line_time("step 1120 11:42") is None
