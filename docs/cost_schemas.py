"""JSON Schemas of what `herd cost` prints."""

from collections.abc import Mapping

from schema_types import Schema, schema_of

from tpuherd import cost_results

#: By command.
COST_SCHEMAS: Mapping[str, Schema] = {
    "herd cost JOB --json": schema_of(cost_results.JobReport),
    "herd cost --json": schema_of(cost_results.CostReport),
}
