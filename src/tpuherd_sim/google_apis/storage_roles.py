"""What each predefined role of Cloud Storage permits, as far as programs on hosts need it."""

from collections.abc import Iterable, Mapping

#: Storage classes of buckets and objects.
CLASSES = frozenset(
    {
        "STANDARD", "NEARLINE", "COLDLINE", "ARCHIVE",
        "MULTI_REGIONAL", "REGIONAL", "DURABLE_REDUCED_AVAILABILITY",
    }
)  # fmt: skip
OBJECTS = frozenset(
    f"storage.objects.{verb}" for verb in ("create", "delete", "get", "list", "update")
)
OBJECT_POLICIES = frozenset(f"storage.objects.{verb}IamPolicy" for verb in ("get", "set"))
FOLDER_READ = frozenset(("storage.managedFolders.get", "storage.managedFolders.list"))
FOLDERS = FOLDER_READ | {"storage.managedFolders.create", "storage.managedFolders.delete"}
FOLDER_POLICIES = frozenset(f"storage.managedFolders.{verb}IamPolicy" for verb in ("get", "set"))
BUCKETS = frozenset(
    f"storage.buckets.{verb}"
    for verb in ("create", "delete", "get", "getIamPolicy", "list", "setIamPolicy", "update")
)
READ = FOLDER_READ | {"storage.objects.get", "storage.objects.list"}
LEGACY_READER = FOLDER_READ | {"storage.buckets.get", "storage.objects.list"}
LEGACY_WRITER = LEGACY_READER | FOLDERS | {"storage.objects.create", "storage.objects.delete"}
LEGACY_OBJECT_OWNER = OBJECT_POLICIES | {"storage.objects.get", "storage.objects.update"}
RESTORE = frozenset(("storage.buckets.restore",))
ALL_PERMISSIONS = OBJECTS | OBJECT_POLICIES | FOLDERS | FOLDER_POLICIES | BUCKETS | RESTORE
ROLES: Mapping[str, frozenset[str]] = {
    "roles/storage.admin": ALL_PERMISSIONS,
    "roles/storage.bucketViewer": frozenset(("storage.buckets.get", "storage.buckets.list")),
    "roles/storage.legacyBucketOwner": LEGACY_WRITER | FOLDER_POLICIES | BUCKETS,
    "roles/storage.legacyBucketReader": LEGACY_READER,
    "roles/storage.legacyBucketWriter": LEGACY_WRITER,
    "roles/storage.legacyObjectOwner": LEGACY_OBJECT_OWNER,
    "roles/storage.legacyObjectReader": frozenset(("storage.objects.get",)),
    "roles/storage.objectAdmin": OBJECTS | OBJECT_POLICIES | FOLDERS,
    "roles/storage.objectCreator": frozenset(("storage.objects.create",)),
    "roles/storage.objectUser": OBJECTS | FOLDERS,
    "roles/storage.objectViewer": READ,
}


def permitted(bindings: Mapping[str, Iterable[str]], members: Iterable[str]) -> frozenset[str]:
    """Return all permissions that these bindings give to one of the members."""
    known = frozenset(members)
    roles = [role for role, bound in bindings.items() if known & frozenset(bound)]
    return frozenset().union(*(ROLES.get(role, frozenset()) for role in roles))
