"""What roles on the project permit, as far as users of Cloud TPU need it."""

import re
from collections.abc import Container, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from tpuherd_sim.google_apis import storage_roles
from tpuherd_sim.model.http_types import ApiError

ROLE = re.compile(r"((projects|organizations)/[\w.:-]+/)?roles/\w+(\.\w+)*", re.ASCII)
ROLE_FORM = (
    'The role name must be in the form "roles/{role}", "organizations/{organization_id}/roles/'
    '{role}", or "projects/{project_id}/roles/{role}".'
)
#: Patterns of permissions.
ROLES: Mapping[str, tuple[str, ...]] = {
    "roles/owner": ("*",),
    "roles/editor": ("compute.*", "iam.serviceAccounts.*", "serviceusage.*", "storage.*", "tpu.*"),
    "roles/viewer": ("*.get", "*.list"),
    "roles/browser": ("resourcemanager.projects.get", "resourcemanager.projects.list"),
    "roles/cloudtpu.serviceAgent": ("compute.*", "tpu.*"),
    "roles/compute.admin": ("compute.*",),
    "roles/compute.instanceAdmin.v1": (
        "compute.instances.*", "compute.networks.get", "compute.networks.list",
        "compute.projects.*",
    ),
    "roles/compute.networkUser": ("compute.networks.*", "compute.subnetworks.*"),
    "roles/compute.osAdminLogin": ("compute.instances.osAdminLogin", "compute.instances.osLogin"),
    "roles/compute.osLogin": ("compute.instances.osLogin",),
    "roles/compute.securityAdmin": (
        "compute.firewalls.*", "compute.networks.get", "compute.networks.list",
        "compute.networks.updatePolicy", "compute.projects.get",
    ),
    "roles/compute.viewer": ("compute.*.get", "compute.*.list"),
    "roles/iam.serviceAccountAdmin": ("iam.serviceAccounts.*",),
    "roles/iam.serviceAccountUser": (
        "iam.serviceAccounts.actAs", "iam.serviceAccounts.get", "iam.serviceAccounts.list",
    ),
    "roles/iap.tunnelResourceAccessor": ("iap.tunnelInstances.accessViaIAP",),
    "roles/logging.logWriter": ("logging.logEntries.create",),
    "roles/monitoring.metricWriter": ("monitoring.timeSeries.create",),
    "roles/resourcemanager.projectIamAdmin": ("resourcemanager.projects.*",),
    "roles/serviceusage.serviceUsageAdmin": ("serviceusage.*",),
    "roles/serviceusage.serviceUsageConsumer": ("serviceusage.*.get", "serviceusage.services.*"),
    "roles/tpu.admin": ("tpu.*",),
    "roles/tpu.viewer": ("tpu.*.get", "tpu.*.list"),
    **{role: tuple(sorted(held)) for role, held in storage_roles.ROLES.items()},
}  # fmt: skip


def read_role(binding: Any, known: Container[str]) -> str:
    """Return the role of a binding: a known one, or any other that Google may have."""
    role = binding.get("role") if isinstance(binding, dict) else None
    if not isinstance(role, str) or not ROLE.fullmatch(role):
        raise ApiError(400, "INVALID_ARGUMENT", ROLE_FORM)
    if role not in known and role.startswith("roles/") and "." not in role:
        text = f"Role {role} is not supported for this resource."
        raise ApiError(400, "INVALID_ARGUMENT", text)
    return role


def permitted_names(roles: Iterable[str], names: Iterable[str]) -> list[str]:
    """Return those permissions that one of the roles gives."""
    patterns = [pattern for role in roles for pattern in ROLES.get(role, ())]
    return [name for name in names if any(fnmatchcase(name, one) for one in patterns)]
