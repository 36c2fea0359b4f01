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
BUCKETS = frozenset(
    f"storage.buckets.{verb}"
    for verb in ("create", "delete", "get", "getIamPolicy", "list", "setIamPolicy", "update")
)
READ = frozenset(("storage.objects.get", "storage.objects.list"))
LEGACY_READER = frozenset(("storage.buckets.get", "storage.objects.list"))
LEGACY_WRITER = LEGACY_READER | {"storage.objects.create", "storage.objects.delete"}
ROLES: Mapping[str, frozenset[str]] = {
    "roles/storage.admin": OBJECTS | BUCKETS,
    "roles/storage.bucketViewer": frozenset(("storage.buckets.get", "storage.buckets.list")),
    "roles/storage.legacyBucketOwner": LEGACY_WRITER | BUCKETS,
    "roles/storage.legacyBucketReader": LEGACY_READER,
    "roles/storage.legacyBucketWriter": LEGACY_WRITER,
    "roles/storage.legacyObjectOwner": frozenset(("storage.objects.get", "storage.objects.update")),
    "roles/storage.legacyObjectReader": frozenset(("storage.objects.get",)),
    "roles/storage.objectAdmin": OBJECTS,
    "roles/storage.objectCreator": frozenset(("storage.objects.create",)),
    "roles/storage.objectUser": OBJECTS,
    "roles/storage.objectViewer": READ,
}
ALL_PERMISSIONS = OBJECTS | BUCKETS


def permitted(bindings: Mapping[str, Iterable[str]], members: Iterable[str]) -> frozenset[str]:
    """Return all permissions that these bindings give to one of the members."""
    known = frozenset(members)
    roles = [role for role, bound in bindings.items() if known & frozenset(bound)]
    return frozenset().union(*(ROLES.get(role, frozenset()) for role in roles))
