"""What to do about a refusal, by the reason that Google states (google.rpc.ErrorInfo): a table."""

import re
from collections.abc import Mapping
from typing import Any

#: Projects of Google's own programs: a login without a quota project counts as theirs.
PROGRAMS = frozenset({"764086051850", "32555940559"})
NO_QUOTA_PROJECT = (
    "your login names no quota project: gcloud auth application-default set-quota-project {project}"
)
ROLE = (
    "ask for a role that has it: gcloud projects add-iam-policy-binding {project}"
    " --member=user:YOU --role=roles/tpu.admin"
)
ADVICE: Mapping[str, str] = {
    "SERVICE_DISABLED": "enable it, and wait a minute or two: "
    "gcloud services enable {service} --project={project}",
    "IAM_PERMISSION_DENIED": f"{{permission}} is missing; {ROLE}",
    "USER_PROJECT_DENIED": "you may not use {consumer} as the quota project: "
    "gcloud auth application-default set-quota-project {project}",
    "ACCESS_TOKEN_SCOPE_INSUFFICIENT": "the token lacks the scope cloud-platform: "
    "gcloud auth application-default login, or give this machine's service account that scope",
    "BILLING_DISABLED": "link a billing account: "
    "gcloud billing projects link {project} --billing-account=ACCOUNT",
    "CONSUMER_INVALID": "is {project} the id of your project? gcloud projects list",
    "CONSUMER_SUSPENDED": "Google has suspended the project {project}: ask its owner",
    "LOCATION_POLICY_VIOLATED": "the project may not use that zone: choose others, "
    "`herd context grant` says once which",
    "SECURITY_POLICY_VIOLATED": "a perimeter of VPC Service Controls forbids it: "
    "ask who administers your organization",
    "ORG_RESTRICTION_VIOLATION": "your organization forbids it from here: ask who administers it",
}
WORD = re.compile(r"[\w./:@-]{1,200}")  #: it ends up in commands that people copy
UNKNOWN = "does the account have the role roles/tpu.admin?"


def refusal_advice(said: Mapping[str, Any], url: str) -> str:
    """For the error object of an answer with status 403, whatever is in it."""
    known = {name: one for name, one in error_info(said).items() if WORD.fullmatch(str(one))}
    project = re.search(r"/projects/([^/]+)", url)
    words = {"service": "tpu.googleapis.com", "permission": "a permission", "consumer": "it"}
    words |= known | {"project": project[1] if project else "PROJECT"}
    reason = known.get("reason", "")
    if reason == "SERVICE_DISABLED" and words["consumer"].rpartition("/")[2] in PROGRAMS:
        return NO_QUOTA_PROJECT.format_map(words)
    return ADVICE.get(reason, UNKNOWN).format_map(words)


def error_info(said: Mapping[str, Any]) -> Mapping[str, Any]:
    """The reason, with what is told about it."""
    details = said.get("details")
    for one in details if isinstance(details, list) else ():
        if isinstance(one, dict) and "reason" in one:
            more = one.get("metadata")
            return {**(more if isinstance(more, dict) else {}), "reason": one["reason"]}
    return {}
