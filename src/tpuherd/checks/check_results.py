"""What a check found: values only."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class CheckStatus(StrEnum):
    OK = "ok"
    WARNING = "warning"  #: works now, but will cost time or money, or is unsafe
    PROBLEM = "problem"  #: something does not work
    SKIPPED = "skipped"  #: could not be looked at


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckResult:
    """What one check found in one place."""

    check: str  #: its id in the table of checks
    where: str  #: this machine, project P, or a host such as gpt-0/w3
    status: CheckStatus
    found: str  #: what is, in one sentence
    matters: str = ""  #: why it matters; empty: as the table of checks says
    remedy: str = ""  #: how to fix it, with the command
    fix: str = ""  #: the id of a safe repair that --fix does; empty: none

    def as_json(self) -> dict[str, Any]:
        return {
            "check": self.check,
            "where": self.where,
            "status": str(self.status),
            "found": self.found,
            "matters": self.matters,
            "remedy": self.remedy,
            "fix": self.fix,
        }
