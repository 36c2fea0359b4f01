"""What `herd bucket` does: creates buckets, gives accounts their roles, and tells who may what."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from tpuherd.catalogue import regions, zones
from tpuherd.cloud import buckets_api
from tpuherd.cloud.buckets_api import BucketInfo
from tpuherd.cloud.rest import CloudConflict
from tpuherd.errors import InvalidInput, NotAllowed, NotFound, OperationFailed
from tpuherd.jobfile.bucket_scan import BUCKET
from tpuherd.jobfile.data_egress import is_known_location, nearby_regions, read_price
from tpuherd.jobs.open_project import Session
from tpuherd.near_names import near_names

WRITER = "roles/storage.objectUser"  #: get, list, create, delete, and nothing else
READER = "roles/storage.objectViewer"
LOOKS = "roles/storage.legacyBucketReader"  #: many libraries look at the bucket itself first
ID_MAX = 30
ACCOUNT = re.compile(r"[^\s@]+@[^\s@]+\.[^\s@]+")
VERBS = {
    "storage.objects.get": "read",
    "storage.objects.list": "list",
    "storage.objects.create": "write",
    "storage.objects.delete": "delete",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class BucketReport:
    """Where a bucket is, who may use it, and what reading it costs."""

    bucket: BucketInfo
    you: tuple[str, ...]  #: what the user may do: read, list, write, delete
    accounts: dict[str, tuple[str, ...]] | None  #: service accounts and roles; None: not shown
    near: tuple[str, ...]  #: zones with TPUs where a job may use it
    prices: dict[str, float | None]  #: dollars per GiB, by the zones asked for

    def as_json(self) -> dict[str, Any]:
        zones = [
            {"zone": zone, "near": zone in self.near, "per_gib": price}
            for zone, price in self.prices.items()
        ]
        return {
            "bucket": self.bucket.name,
            "location": self.bucket.location,
            "uniform": self.bucket.uniform,
            "you": list(self.you),
            "accounts": self.accounts and {name: list(has) for name, has in self.accounts.items()},
            "near": list(self.near),
            "zones": zones,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class GrantResult:
    account: str
    created: bool
    roles: tuple[str, ...]  #: what it has now
    added: tuple[str, ...]


def bucket_name(text: str) -> str:
    """Return the name of gs://NAME or NAME."""
    name = text.removeprefix("gs://").partition("/")[0]
    if not re.fullmatch(BUCKET, name):
        raise InvalidInput(
            f"{text!r} is not a bucket's name: 3 to 222 of a-z, 0-9, -, _ and .",
            hint="such as my-project-runs or gs://my-project-runs",
        )
    return name


def chosen_location(text: str) -> str:
    """Return the location of a zone, a region or a location of Cloud Storage."""
    if is_known_location(text):
        return text.upper()
    region = text.rpartition("-")[0]
    if region in regions() and text in regions()[region].zones:
        return region.upper()
    near = near_names(text.lower(), [*regions(), *zones()], most=2)
    raise InvalidInput(
        f"{text} is neither a location nor a zone that herd knows",
        hint=f"did you mean {' or '.join(near)}?" if near else "such as us-central1, US or NAM4",
    )


def known_zone(zone: str) -> str:
    if zone in zones():
        return zone
    near = near_names(zone, zones(), most=2)
    said = f"did you mean {' or '.join(near)}?" if near else ""
    raise InvalidInput(f"{zone} is not a zone with TPUs", hint=said)


async def existing_bucket(name: str, here: Session) -> BucketInfo:
    """Return the bucket; one sentence if it does not exist or may not be seen."""
    rest = (await here.cloud()).rest
    try:
        found = await buckets_api.get_bucket(rest, name)
    except NotAllowed as error:
        raise NotAllowed(f"you are not allowed to see bucket {name}", hint=error.hint) from error
    if found is None:
        raise NotFound(
            f"bucket {name} does not exist", hint=f"herd bucket create {name} --location LOCATION"
        )
    return found


async def create(name: str, location: str, here: Session) -> tuple[BucketInfo, bool] | None:
    """Create a bucket after a question; return whether it is new, too. None: the user said no."""
    rest = (await here.cloud()).rest
    try:
        found = await buckets_api.get_bucket(rest, name)
    except NotAllowed as error:  # somebody else's, or there is no right to look
        raise taken_name_error(name) from error
    if found is not None:
        if found.location != location:
            raise InvalidInput(
                f"bucket {name} already exists in {found.location}, and a bucket can't move",
                hint="choose another name",
            )
        return found, False
    details = (
        f"gs://{name} in {location}: uniform access, never public, project {here.place.project}"
    )
    if not await here.prompter.ask_confirmation(f"create bucket {name} in {location}", details):
        return None
    try:
        return await buckets_api.create_bucket(rest, here.place.project, name, location), True
    except CloudConflict as error:
        raise taken_name_error(name) from error


def taken_name_error(name: str) -> InvalidInput:
    return InvalidInput(
        f"the name {name} is taken: all users of Google Cloud share the names of buckets",
        hint="choose another name, such as one that begins with your project's",
    )


def account_id(bucket: str) -> str:
    """Return the id of the account of one bucket: 6 to 30 letters, digits and -."""
    id = f"herd-{re.sub(r'[^a-z0-9]+', '-', bucket).strip('-')}"
    if len(id) <= ID_MAX and id == f"herd-{bucket}":
        return id
    return f"{id[: ID_MAX - 7].rstrip('-')}-{sha256(bucket.encode()).hexdigest()[:6]}"


async def grant(bucket: str, account: str, here: Session, *, write: bool) -> GrantResult | None:
    """Give an account just the roles it needs, after a question; None: the user said no.

    Without an account, the bucket's own is used, and created if it is missing.
    """
    rest, project = (await here.cloud()).rest, here.place.project
    if account and not ACCOUNT.fullmatch(account):
        raise InvalidInput(f"{account!r} is not an account's e-mail address")
    await existing_bucket(bucket, here)
    id = account_id(bucket)
    email = account or f"{id}@{project}.iam.gserviceaccount.com"
    member = f"serviceAccount:{email}"
    missing = not account and not await buckets_api.has_account(rest, project, email)
    before = (await buckets_api.account_roles(rest, bucket)).get(member, frozenset())
    added = tuple(one for one in (WRITER if write else READER, LOOKS) if one not in before)
    result = GrantResult(
        account=email, created=missing, roles=tuple(sorted(before | {*added})), added=added
    )
    if not added and not missing:
        return result
    details = [f"create service account {email}"] if missing else []
    details += [f"give {email} {role} on gs://{bucket}" for role in added]
    question = f"let {email} {'read and write' if write else 'read'} gs://{bucket}"
    if not await here.prompter.ask_confirmation(question, "\n".join(details)):
        return None
    if missing:
        await buckets_api.create_account(rest, project, id, f"tpuherd: gs://{bucket}"[:100])
    try:
        await buckets_api.add_roles(rest, bucket, member, added)
    except InvalidInput as error:
        hint = "a new account is known everywhere after a minute: run the command again"
        raise OperationFailed(error.sentence, hint=hint if missing else "") from error
    return result


async def check(bucket: str, asked: Iterable[str], here: Session) -> BucketReport:
    """Report where a bucket is and who may use it; `asked`: zones to compare it with."""
    rest = (await here.cloud()).rest
    found = await existing_bucket(bucket, here)
    held = await buckets_api.held_permissions(rest, bucket, VERBS)
    accounts: dict[str, tuple[str, ...]] | None = None
    try:
        roles = await buckets_api.account_roles(rest, bucket)
        accounts = {
            member.partition(":")[2]: tuple(sorted(has))
            for member, has in sorted(roles.items())
            if member.startswith("serviceAccount:")
        }
    except NotAllowed:
        pass  # to see a policy is a right of its own
    close = nearby_regions(found.location)
    return BucketReport(
        bucket=found,
        you=tuple(verb for permission, verb in VERBS.items() if permission in held),
        accounts=accounts,
        near=tuple(zone.name for zone in zones().values() if zone.region in close),
        prices={zone: read_price(found.location, zone) for zone in asked},
    )
