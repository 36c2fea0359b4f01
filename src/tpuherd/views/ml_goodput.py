"""A job's time in the categories of Google's ml-goodput-measurement.

Only the names are theirs: the time comes from our accounts, where an outage is one even if the next
attempt resumes at exactly the next step.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from tpuherd.accounting.goodput import REST, GoodputState, SlotAccount, find_recoveries

#: Their types of badput, by value.
BADPUT = (
    "TPU_INITIALIZATION",
    "TRAINING_PREP",
    "PROGRAM_STARTUP",
    "DATA_LOADING_SYNC",
    "DATA_LOADING_ASYNC",
    "UNPRODUCTIVE_CHECKPOINT_SAVE_TIME",
    "UNPRODUCTIVE_CHECKPOINT_RESTORE_TIME",
    "WASTED_PROGRESS_FROM_DISRUPTION",
    "INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION",
    "CUSTOM_BADPUT_EVENTS",
    "OTHER",
    "ELASTIC_SLICE_DOWN",
    "ELASTIC_SCALE_UP",
    "ELASTIC_REINITIALIZATION",
)
INFRASTRUCTURE = "INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION"
CUSTOM = "CUSTOM_BADPUT_EVENTS"
#: The type of each state. They do not know the time before the first node: it is an event of ours.
TYPES: Mapping[GoodputState, str] = {
    GoodputState.QUEUE_FIRST: CUSTOM,
    GoodputState.CAPACITY_WAIT: INFRASTRUCTURE,
    GoodputState.CONTROLLER_GAP: INFRASTRUCTURE,
    GoodputState.PROVISION: INFRASTRUCTURE,
    GoodputState.HOST_SETUP: INFRASTRUCTURE,
    GoodputState.STARTING: "TRAINING_PREP",
    GoodputState.RESTORE: "UNPRODUCTIVE_CHECKPOINT_RESTORE_TIME",
    GoodputState.COMPILE: "PROGRAM_STARTUP",
    GoodputState.SAVING: "UNPRODUCTIVE_CHECKPOINT_SAVE_TIME",
    GoodputState.WASTED: "WASTED_PROGRESS_FROM_DISRUPTION",
    GoodputState.STOPPING: INFRASTRUCTURE,
    GoodputState.DETECT: INFRASTRUCTURE,
    GoodputState.PROCESS_DOWN: "OTHER",
    GoodputState.HUNG: CUSTOM,
}
MEETING = "meet_s"  #: of a start: the processes meet, which begins with their chips


def ml_goodput_page(job: str, accounts: Iterable[SlotAccount]) -> dict[str, Any]:
    """What `herd report JOB --format ml-goodput` prints."""
    known = list(accounts)
    badput = dict.fromkeys(BADPUT, 0.0)
    custom: dict[str, float] = {}
    productive = excluded = 0.0
    for account in known:
        for state, seconds in account.seconds.items():
            if state in REST:
                excluded += seconds
            elif state is GoodputState.PRODUCTIVE:
                productive += seconds
            else:
                badput[TYPES[state]] += seconds
                if TYPES[state] == CUSTOM:
                    custom[f"herd_{state}"] = custom.get(f"herd_{state}", 0.0) + seconds
    meeting = sum(run.startup.get(MEETING, 0.0) for account in known for run in account.runs)
    meeting = min(meeting, badput["TRAINING_PREP"])
    badput["TRAINING_PREP"] -= meeting
    badput["TPU_INITIALIZATION"] += meeting
    return {
        "job": job,
        "goodput_time": {"TOTAL": productive},
        "badput_time": badput,
        "custom_badput_events": custom,
        "max_productive_step": max((account.step or 0 for account in known), default=0),
        "total_elapsed_time": productive + sum(badput.values()),
        "total_excluded_time": excluded,
        "disruption_count": sum(len(find_recoveries(account)) for account in known),
    }
