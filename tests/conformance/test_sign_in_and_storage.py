"""How google-auth gets a token, and how google-cloud-storage locates a bucket."""

import json
from typing import Any

import pytest

from tests.conformance.world import World, client, run

pytestmark = pytest.mark.filterwarnings("ignore")  # the client's own, not ours

SIGN_IN = """
import json, google.auth, google.auth.transport.requests as wire
found, project = google.auth.default(scopes=["https://www.googleapis.com/auth/cloud-platform"])
found.refresh(wire.Request())
kind = type(found)
mail = found.service_account_email
print(json.dumps([kind.__module__, project, bool(found.token), found.expired, mail]))
"""


def sign_in(env: dict[str, str]) -> list[Any]:
    done = run([client("light"), "-c", SIGN_IN], env)
    assert done.returncode == 0, done.stderr
    said: list[Any] = json.loads(done.stdout)
    return said


def test_the_key_file_of_a_service_account(world: World) -> None:
    module, project, token, expired, mail = sign_in(world.env)
    assert module == "google.oauth2.service_account"
    assert (project, token, expired) == ("demo", True, False)
    assert mail.endswith("-compute@developer.gserviceaccount.com")


def test_default_credentials_from_the_metadata_server(world: World) -> None:
    place = world.url.removeprefix("http://")
    told = {"GCE_METADATA_HOST": place, "GCE_METADATA_IP": place}
    rest = {name: value for name, value in world.env.items() if not name.startswith("GOOGLE_")}
    module, project, token, expired, mail = sign_in(rest | told)
    assert module == "google.auth.compute_engine.credentials"
    assert (project, token, expired) == ("demo", True, False)
    assert mail.endswith("-compute@developer.gserviceaccount.com")


@pytest.mark.parametrize(
    ("location", "kind"),
    [("us-central2", "region"), ("NAM4", "dual-region"), ("EU", "multi-region")],
)
def test_the_location_of_a_bucket(storage: Any, location: str, kind: str) -> None:
    bucket = storage.create_bucket(f"tpuherd-{location.lower()}", location=location)
    found = storage.get_bucket(bucket.name)
    assert (found.location, found.location_type) == (location.upper(), kind)
    assert found.time_created is not None
    assert bucket.name in {one.name for one in storage.list_buckets()}
    found.delete()


def test_a_missing_bucket_and_the_emulator_variable(
    world: World, storage: Any, errors: Any
) -> None:
    with pytest.raises(errors.NotFound, match="The specified bucket does not exist"):
        storage.get_bucket("nobody-has-this")
    script = "from google.cloud import storage; c = storage.Client.create_anonymous_client()\n"
    script += "print(c.lookup_bucket('nobody-has-this'))"
    done = run([client("light"), "-c", script], world.env)
    assert (done.returncode, done.stdout) == (0, "None\n"), done.stderr
