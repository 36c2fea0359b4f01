"""What roles on the project permit, as far as users of Cloud TPU need it."""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from tpuherd_sim.google_apis import storage_roles

#: Patterns of permissions.
ROLES: Mapping[str, tuple[str, ...]] = {
    "roles/owner": ("*",),
    "roles/editor": ("compute.*", "iam.serviceAccounts.*", "serviceusage.*", "storage.*", "tpu.*"),
    "roles/viewer": ("*.get", "*.list"),
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


def permitted_names(roles: Iterable[str], names: Iterable[str]) -> list[str]:
    """Return those permissions that one of the roles gives."""
    patterns = [pattern for role in roles for pattern in ROLES.get(role, ())]
    return [name for name in names if any(fnmatchcase(name, one) for one in patterns)]
