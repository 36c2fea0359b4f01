"""All rules that herd knows, in the order of the tables."""

from collections.abc import Mapping

from tpuherd.diagnosis.chip_rules import CHIP_RULES
from tpuherd.diagnosis.gang_rules import CLUSTER_RULES, DESYNC_RULES, PEER_RULES
from tpuherd.diagnosis.host_rules import (
    AUTH_RULES,
    DISK_RULES,
    INFO_RULES,
    NET_RULES,
    PREEMPT_RULES,
    SSH_RULES,
)
from tpuherd.diagnosis.library_rules import LIBRARY_RULES
from tpuherd.diagnosis.package_rules import VERSION_RULES
from tpuherd.diagnosis.program_rules import OOM_RULES, USER_RULES
from tpuherd.diagnosis.rule import Rule

#: By id.
RULES: Mapping[str, Rule] = {
    rule.id: rule
    for rule in (
        *PREEMPT_RULES,
        *CHIP_RULES,
        *DESYNC_RULES,
        *OOM_RULES,
        *VERSION_RULES,
        *USER_RULES,
        *AUTH_RULES,
        *DISK_RULES,
        *LIBRARY_RULES,
        *NET_RULES,
        *SSH_RULES,
        *CLUSTER_RULES,
        *PEER_RULES,
        *INFO_RULES,
    )
}
