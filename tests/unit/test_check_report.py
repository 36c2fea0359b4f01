"""The page of `herd check`: by place, equal findings folded, and the counts."""

from typing import Any

from tpuherd.checks.check_results import CheckResult, CheckStatus
from tpuherd.views.check_report import check_report


def row(check: str, where: str, status: str, found: str, **more: str) -> dict[str, Any]:
    return CheckResult(
        check=check, where=where, status=CheckStatus(status), found=found, **more
    ).as_json()


def test_findings_by_place_with_why_and_what_to_do() -> None:
    rows = [
        row("disk", "this machine", "ok", "9 GB are free"),
        row("ssh-key", "this machine", "warning", "open", matters="It is secret", remedy="chmod"),
        row("quota", "project p", "skipped", "could not look: no login"),
        row("apis", "project p", "skipped", "could not look: no login"),
        row("clock", "project p", "problem", "could not look: late", matters="Time"),
        row("network", "project p", "problem", "could not look: late", matters="Nodes"),
        row("firewall", "project p", "problem", "closed", matters="SSH", remedy="open it"),
    ]
    assert check_report(rows).splitlines() == [
        "this machine",
        "  ✓ disk: 9 GB are free",
        "  ! ssh-key: open",
        "      why: It is secret",
        "      do: chmod",
        "project p",
        "  - quota, apis: could not look: no login",
        "  ✗ clock: could not look: late",
        "      why: Time",
        "  ✗ network: could not look: late",
        "      why: Nodes",
        "  ✗ firewall: closed",
        "      why: SSH",
        "      do: open it",
        "",
        "7 checks: 1 fine, 3 problems, 1 warning, 2 not looked at",
    ]
    assert "\x1b[31m✗\x1b[0m firewall" in check_report(rows, colour=True)
    assert all(len(line) <= 20 or " " not in line.strip() for line in
               check_report(rows, width=20).splitlines()[:-1])  # fmt: skip


def test_equal_findings_of_hosts_are_one() -> None:
    rows = [
        *(row("disk", f"gpt/w{at}", "ok", f"{at} GB are free") for at in range(4)),
        *(row("chip-lock", f"gpt/w{at}", "problem", "stale", remedy="rm") for at in (1, 2, 3)),
        row("chip-lock", "gpt/w0", "ok", "none"),
        *(row("python", f"gpt/w{at}", "ok", "3.10") for at in range(4)),
        row("agent", "gpt/w2", "skipped", "could not look: cut"),
        row("collective", "gpt", "ok", "right on 4 hosts"),
    ]
    assert check_report(rows).splitlines() == [
        "gpt/w[0-3]",
        "  ✓ disk: fine on all 4",
        "  ✓ python: 3.10",
        "gpt/w[1-3]",
        "  ✗ chip-lock: stale",
        "      do: rm",
        "gpt/w0",
        "  ✓ chip-lock: none",
        "gpt/w2",
        "  - agent: could not look: cut",
        "gpt",
        "  ✓ collective: right on 4 hosts",
        "",
        "14 checks: 10 fine, 3 problems, 1 not looked at",
    ]
