"""Managed folders of a bucket: parts of it with a policy of their own."""

import re
from dataclasses import replace
from urllib.parse import quote

from tpuherd_sim.google_apis.bucket_access import (
    check_metageneration,
    find_bucket,
    find_folder,
    storage_error,
    unserved_error,
)
from tpuherd_sim.google_apis.objects import read_flag
from tpuherd_sim.google_apis.pagination import take_page
from tpuherd_sim.model.compute_state import Bucket, ManagedFolder, format_compute_time
from tpuherd_sim.model.http_types import ApiCall, Json, Response
from tpuherd_sim.model.world import World
from tpuherd_sim.tpu.router import Route

FOLDER = re.compile(r"(?!\.well-known/acme-challenge/|\.\.?/)[^\r\n]{1,1023}/")


def folder_json(bucket: Bucket, name: str) -> Json:
    created = format_compute_time(bucket.folders[name].created)
    path = f"{bucket.name}/managedFolders/{quote(name, safe='')}"
    return {
        "kind": "storage#managedFolder",
        "id": f"{bucket.name}/{name}",
        "selfLink": f"https://www.googleapis.com/storage/v1/b/{path}",
        "name": name,
        "bucket": bucket.name,
        "metageneration": "1",
        "createTime": created,
        "updateTime": created,
    }


def insert_folder(world: World, call: ApiCall, now: float) -> Json:
    """Create a managed folder."""
    bucket = find_bucket(world, call, "storage.managedFolders.create")
    name = call.body.get("name")
    name = f"{name}/" if isinstance(name, str) and not name.endswith("/") else name
    if not isinstance(name, str) or not FOLDER.fullmatch(name):
        raise storage_error(400, f"Invalid managed folder name: '{name}'")
    if call.body.get("rapidCacheConfig"):
        raise unserved_error("The field rapidCacheConfig")
    if not bucket.uniform:  # words assumed
        raise storage_error(400, "Managed folders need uniform bucket-level access.")
    if name in bucket.folders:
        raise storage_error(409, "The managed folder you tried to create already exists.")
    bucket = replace(bucket, folders={**bucket.folders, name: ManagedFolder(created=now)})
    world.services.buckets[bucket.name] = bucket
    return folder_json(bucket, name)


def list_folders(world: World, call: ApiCall, now: float) -> Json:
    bucket = find_bucket(world, call, "storage.managedFolders.list")
    names = sorted(name for name in bucket.folders if name.startswith(call.query.get("prefix", "")))
    shown = [folder_json(bucket, name) for name in names]
    return {"kind": "storage#managedFolders", **take_page("items", shown, call.query, 1000)}


def show_folder(world: World, call: ApiCall, now: float) -> Json:
    """Return a managed folder: the world serves nothing of what a client could change."""
    found = find_folder(world, call, "get" if call.request.method == "GET" else "create")
    if call.body.get("rapidCacheConfig"):
        raise unserved_error("The field rapidCacheConfig")
    check_metageneration(call, 1)
    return folder_json(*found)


def delete_folder(world: World, call: ApiCall, now: float) -> Response:
    """Delete a managed folder, not what is in it."""
    bucket, name = find_folder(world, call, "delete")
    check_metageneration(call, 1)
    forced = read_flag(call.query, "allowNonEmpty")
    if forced:
        find_folder(world, call, "setIamPolicy")
    start = f"{bucket.name}/{name}"
    inside = [key for key in world.services.storage.objects if key.startswith(start)]
    inside += [other for other in bucket.folders if other.startswith(name) and other != name]
    if inside and not forced:
        raise storage_error(409, "The managed folder you tried to delete is not empty.")
    folders = {other: held for other, held in bucket.folders.items() if other != name}
    world.services.buckets[bucket.name] = replace(bucket, folders=folders)
    return Response(status=204)


FOLDERS = "/storage/v1/b/{bucket}/managedFolders"
ROUTES = (
    Route("GET", FOLDERS, list_folders),
    Route("POST", FOLDERS, insert_folder),
    Route("GET", f"{FOLDERS}/{{folder}}", show_folder),
    Route("PATCH", f"{FOLDERS}/{{folder}}", show_folder),
    Route("DELETE", f"{FOLDERS}/{{folder}}", delete_folder),
)
