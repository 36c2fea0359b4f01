"""A rule: the line by which a known failure shows, its cause, and how to fix it."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class RuleClass(StrEnum):
    """What kind of failure; in the order in which they are suspected."""

    PREEMPT = "preempt"
    HARDWARE = "hw"
    ABSENT = "absent"
    BUSY = "busy"
    DESYNC = "desync"
    OOM = "oom"
    VERSION = "version"
    USER = "user"
    AUTH = "auth"
    DISK = "disk"
    NET = "net"
    SSH = "ssh"
    CLUSTER = "cluster"
    PEER = "peer"
    INFO = "info"


#: What each class means, and what usually helps.
CLASS_MEANINGS: Mapping[RuleClass, str] = {
    RuleClass.PREEMPT: "the node is taken away: a new one continues",
    RuleClass.HARDWARE: "a chip or a link is broken: another node helps",
    RuleClass.ABSENT: "the chips of the host are not there: another node helps",
    RuleClass.BUSY: "another process holds what this one needs: end it and try again",
    RuleClass.DESYNC: "hosts run different programs: make them equal",
    RuleClass.OOM: "memory ran out: the program must need less",
    RuleClass.VERSION: "packages are missing or do not fit: fix the environment on every host",
    RuleClass.USER: "the program or how it is started: change it",
    RuleClass.AUTH: "a login or a permission is missing",
    RuleClass.DISK: "the disk is full, or a limit of files is reached",
    RuleClass.NET: "a service or the network: wait and try again",
    RuleClass.SSH: "the way to the host, not the host",
    RuleClass.CLUSTER: "hosts did not find each other: start all of them together",
    RuleClass.PEER: "another host was lost: a consequence, never the cause",
    RuleClass.INFO: "harmless, but good to know: never the cause",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """`{name}` in `cause` and `fix` stands for what the group of that name has matched."""

    id: str
    kind: RuleClass
    pattern: str  #: a regular expression, searched in each line; "": concluded otherwise
    cause: str
    fix: str
    source: str = ""  #: where this is known from
    evidence: str = ""  #: measured, source (read), report, assumed
    #: One of them is in every line that matches, so that other lines cost little; (): unknown.
    words: tuple[str, ...] = ()
    generic: bool = False  #: another rule that matches on the host says more
    hint: bool = False  #: a warning that is no failure if anything follows
    lasting: bool = False  #: it stays true, whatever follows
    secondary: bool = False  #: hosts print it that outlive another, though it may be all we know
    stop: bool = False  #: the program is told to end: what follows is a consequence
    chips: bool = False  #: the chips of the host did not come up: its node's fault
    exits: tuple[int, ...] = ()  #: exit statuses that mean the same, if the log is silent
    traceback: bool = False  #: only for the last line of a Python traceback

    @property
    def is_consequence(self) -> bool:
        """Whether it only tells that another host was lost."""
        return self.secondary or self.kind is RuleClass.PEER
