"""Advice for refusals, by the reason that Google states (google.rpc.ErrorInfo): a table."""

import re
from collections.abc import Mapping
from typing import Any

#: Projects of Google's own programs: requests without a quota project are billed to them.
PROGRAMS = frozenset({"764086051850", "32555940559"})
NO_QUOTA_PROJECT = (
    "your login has no quota project: gcloud auth application-default set-quota-project {project}"
)
ROLE = (
    "ask for a role that includes it: gcloud projects add-iam-policy-binding {project}"
    " --member=user:YOU --role=roles/tpu.admin"
)
ADVICE: Mapping[str, str] = {
    "SERVICE_DISABLED": "enable the API and wait a minute or two: "
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
    "LOCATION_POLICY_VIOLATED": "the project may not use that zone: choose other zones, "
    "or list the allowed ones with `herd context grant`",
    "SECURITY_POLICY_VIOLATED": "a VPC Service Controls perimeter forbids it: "
    "ask the administrator of your organization",
    "ORG_RESTRICTION_VIOLATION": "your organization forbids it from this network: "
    "ask its administrator",
}
WORD = re.compile(r"[\w./:@-]{1,200}")  #: values end up in commands that people copy
TOO_FAST = re.compile(r"per minute|rate limit|too many requests", re.IGNORECASE)
UNKNOWN = "does the account have the role {role}?"
#: The role that allows what herd does there, by a part of the address.
ROLES: Mapping[str, str] = {
    "/global/firewalls": "roles/compute.securityAdmin",
    "/global/networks": "roles/compute.networkViewer",
    "/setCommonInstanceMetadata": "roles/compute.instanceAdmin.v1",
    ":setIamPolicy": "roles/resourcemanager.projectIamAdmin",
    ":getIamPolicy": "roles/iam.securityReviewer",
    ":enable": "roles/serviceusage.serviceUsageAdmin",
    ":disable": "roles/serviceusage.serviceUsageAdmin",
    ":generateServiceIdentity": "roles/serviceusage.serviceUsageAdmin",
    "/storage/v1/": "roles/storage.admin",
    "/serviceAccounts": "roles/iam.serviceAccountAdmin",
    "/users/": "roles/compute.osLogin",
    "/consumerQuotaMetrics": "roles/servicemanagement.quotaViewer",
    "/services": "roles/serviceusage.serviceUsageViewer",
}


def refusal_advice(error: Mapping[str, Any], url: str) -> str:
    """The hint for the error object of a 403 reply, whatever it contains."""
    known = {name: one for name, one in error_info(error).items() if WORD.fullmatch(str(one))}
    project = re.search(r"/projects/([^/]+)", url)
    words = {"service": "tpu.googleapis.com", "permission": "a permission", "consumer": "it"}
    words |= known | {"project": project[1] if project else "PROJECT"}
    words["role"] = next((role for part, role in ROLES.items() if part in url), "roles/tpu.admin")
    reason = known.get("reason", "")
    if reason == "SERVICE_DISABLED" and words["consumer"].rpartition("/")[2] in PROGRAMS:
        return NO_QUOTA_PROJECT.format_map(words)
    return ADVICE.get(reason, UNKNOWN).format_map(words)


def limit_advice(sentence: str) -> str:
    """The hint for a 429 reply: a quota of chips stays full, that of requests for a minute."""
    if "quota" in sentence.lower() and not TOO_FAST.search(sentence):
        return "`herd quota` shows how much is in use; ask Google for more, or allow other zones"
    return "the cloud's rate limit is reached: wait a minute"


def error_info(error: Mapping[str, Any]) -> Mapping[str, Any]:
    """The metadata of its ErrorInfo with the reason; empty if there is no ErrorInfo."""
    details = error.get("details")
    for one in details if isinstance(details, list) else ():
        if isinstance(one, dict) and "reason" in one:
            more = one.get("metadata")
            return {**(more if isinstance(more, dict) else {}), "reason": one["reason"]}
    return {}
