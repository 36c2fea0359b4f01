"""JSON Schemas of what `herd report` prints."""

from collections.abc import Mapping

from schema_types import COUNT, NUMBER, TEXT, Schema, map_of, object_of, schema_of

from tpuherd import report_results
from tpuherd.views.ml_goodput import BADPUT

ML_GOODPUT = object_of({
    "job": (TEXT, "its name"),
    "goodput_time": (map_of(["TOTAL"], NUMBER), "seconds of work that counts"),
    "badput_time": (map_of(BADPUT, NUMBER),
                    "seconds by the categories of ml-goodput-measurement; their sum with"
                    " `goodput_time` is `total_elapsed_time`"),
    "custom_badput_events": (map_of(None, NUMBER), "seconds of CUSTOM_BADPUT_EVENTS by our state"),
    "max_productive_step": (COUNT, "the furthest step that counts"),
    "total_elapsed_time": (NUMBER, "seconds in which the slots should have run"),
    "total_excluded_time": (NUMBER, "seconds in which they should not have: stopped, idle, done"),
    "disruption_count": (COUNT, "losses"),
})  # fmt: skip

#: By command.
REPORT_SCHEMAS: Mapping[str, Schema] = {
    "herd report JOB --json": schema_of(report_results.JobReport),
    "herd report --json": schema_of(report_results.CostReport),
    "herd report JOB --format ml-goodput": ML_GOODPUT,
}
