"""What `herd clean` prints about many hosts."""

from typing import Any

from tpuherd.views.clean_report import summary_lines


def answer(*ended: tuple[str, int], **more: Any) -> dict[str, Any]:
    rows = [{"command": command, "pid": pid} for command, pid in ended]
    return {"ended": rows, "left": [], "removed": [], "mended": [], **more}


def test_equal_processes_of_many_hosts_share_a_line() -> None:
    script = "bash -c for i in 1 2\ndo python train.py\ndone"
    told = summary_lines({
        "gpt-0/w0": answer((script, 34), ("sleep 1", 7), ("sleep 1", 8)),
        "gpt-0/w1": answer((script, 35), left=[{"command": "x" * 500, "pid": 9}]),
        "gpt-0/w2": answer(),
    })  # fmt: skip
    assert told == [
        "gpt-0/w[0-1]: ended bash -c for i in 1 2 do python train.py done",
        "gpt-0/w0: ended sleep 1 (pid 7, 8)",
        f"gpt-0/w1: could not end {'x' * 119}… (pid 9)",
        "gpt-0/w2: nothing to clean",
    ]
