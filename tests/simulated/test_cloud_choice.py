"""Which cloud is used, with which identity, and the messages if that is unclear."""

import json
import re
import stat
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tpuherd.errors import HerdError, InvalidInput, NotAllowed, NotFound, NotReached
from tpuherd.jobfile.fields import COPIES_MAX, NAME_MAX, SLICES_MAX
from tpuherd.ports import Host
from tpuherd.remote.client_key import key_pair
from tpuherd.settings import host_routes, project_access
from tpuherd.settings.endpoints import CredentialSource
from tpuherd.settings.project_access import host_login

LOGIN = ("client_id", "client_secret", "refresh_token")
FACTS = {"project": "demo", "url": "http://127.0.0.1:1", "ssh_port": 2222, "pid": 1}


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """That of a user who has nothing yet."""
    return {"HOME": str(tmp_path), "USER": "Ada L", "PATH": str(tmp_path), "NO_GCE_CHECK": "true"}


def world(folder: Path, **facts: Any) -> Path:
    folder.mkdir()
    (folder / "world.json").write_text(json.dumps({**FACTS, **facts}))
    return folder


def context(environ: dict[str, str], **said: Any) -> None:
    folder = Path(environ["HOME"]) / ".config" / "tpuherd"
    folder.mkdir(parents=True)
    text = json.dumps({"current": "mine", "contexts": {"mine": said}})
    (folder / "contexts.json").write_text(text)


def test_a_named_world(environ: dict[str, str], tmp_path: Path) -> None:
    folder = world(tmp_path / "w")
    by_word = project_access.resolve_access(environ, world=folder)
    by_environment = project_access.resolve_access({**environ, "HERD_WORLD": str(folder)})
    assert by_word == by_environment
    assert hash(by_word) == hash(by_environment)
    assert by_word.world == folder
    assert by_word.project == "demo"
    assert by_word.urls.tpu == FACTS["url"]
    assert by_word.ssh_port == 2222
    assert by_word.login == "ada_l"
    assert by_word.folders.config == tmp_path / ".config/tpuherd"


def test_the_world_of_the_context_and_one_that_overrides_it(
    environ: dict[str, str], tmp_path: Path
) -> None:
    mine, other = world(tmp_path / "mine"), world(tmp_path / "other")
    context(environ, world=str(mine), login="root", ways=["internal", "jump:me@bastion:2200"])
    place = project_access.resolve_access(environ)
    assert place.world == mine
    assert place.login == "root"
    assert [way.kind for way in place.routes] == [
        host_routes.RouteKind.INTERNAL,
        host_routes.RouteKind.JUMP,
    ]
    assert project_access.resolve_access(environ, world=other).world == other


@pytest.mark.parametrize(
    ("facts", "kind", "says"),
    [
        (None, NotFound, "there is no world in"),
        ({"pid": None}, NotReached, "is not running"),
    ],
)
def test_missing_worlds(
    environ: dict[str, str],
    tmp_path: Path,
    facts: dict[str, Any] | None,
    kind: type[HerdError],
    says: str,
) -> None:
    folder = tmp_path / "w"
    if facts is not None:
        world(folder, **facts)
    with pytest.raises(kind, match=says) as caught:
        project_access.resolve_access(environ, world=folder)
    assert caught.value.hint == f"start it: herd sim start --state-dir {folder}"


def test_a_broken_world_file_and_a_broken_context(environ: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "w"
    folder.mkdir()
    (folder / "world.json").write_text("{")
    with pytest.raises(InvalidInput, match="can't be read"):
        project_access.resolve_access(environ, world=folder)
    (folder / "world.json").write_text("{}")
    with pytest.raises(InvalidInput, match=r"has no pid, project, ssh_port, url"):
        project_access.resolve_access(environ, world=folder)
    context(environ, ways=["teleport"])
    with pytest.raises(InvalidInput, match="'teleport' is not a route"):
        project_access.resolve_access(environ)
    config = tmp_path / ".config/tpuherd/contexts.json"
    config.write_text("[]")
    with pytest.raises(InvalidInput, match=r"contexts\.json can't be used"):
        project_access.resolve_access(environ)


def test_without_credentials_the_simulator_is_suggested(environ: dict[str, str]) -> None:
    with pytest.raises(NotAllowed, match="no credentials for Google Cloud") as caught:
        project_access.resolve_access(environ)
    assert "herd sim start" in caught.value.hint


def test_google_by_a_credentials_file(environ: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "account.json"
    file.write_text(json.dumps({"type": "service_account", "project_id": "of-the-file"}))
    named = {**environ, "GOOGLE_APPLICATION_CREDENTIALS": str(file)}
    place = project_access.resolve_access(named)
    assert place.world is None
    assert place.project == "of-the-file"
    assert place.urls == project_access.GOOGLE
    assert place.ssh_port == 22
    assert (
        project_access.resolve_access({**named, "GOOGLE_CLOUD_PROJECT": "said"}).project == "said"
    )


def test_google_by_gcloud(environ: dict[str, str], tmp_path: Path) -> None:
    gcloud = tmp_path / "gcloud"
    gcloud.write_text("#!/bin/sh\n")
    gcloud.chmod(0o755)
    with pytest.raises(InvalidInput, match="no project is configured") as caught:
        project_access.resolve_access(environ)
    assert "GOOGLE_CLOUD_PROJECT" in caught.value.hint
    folder = tmp_path / ".config/gcloud"
    (folder / "configurations").mkdir(parents=True)
    (folder / "active_config").write_text("work\n")
    (folder / "configurations/config_work").write_text("[core]\nproject = from-gcloud\n")
    place = project_access.resolve_access(environ)
    assert place.project == "from-gcloud"
    assert (place.credentials.gcloud, place.credentials.file) == (str(gcloud), None)
    assert dict(place.credentials.settings) == {"HOME": str(tmp_path), "PATH": str(tmp_path)}
    (folder / "configurations/config_play").write_text("[core]\nproject = for-play\n")
    play = project_access.resolve_access({**environ, "CLOUDSDK_ACTIVE_CONFIG_NAME": "play"})
    assert play.project == "for-play"
    assert ("CLOUDSDK_ACTIVE_CONFIG_NAME", "play") in play.credentials.settings


def test_gcloud_is_not_asked_if_there_are_default_credentials(
    environ: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "gcloud").write_text("#!/bin/sh\n")
    (tmp_path / "gcloud").chmod(0o755)
    folder = tmp_path / ".config/gcloud"
    folder.mkdir(parents=True)
    file = folder / "application_default_credentials.json"
    file.write_text("{}")
    found = project_access.find_credentials({**environ, "GOOGLE_CLOUD_QUOTA_PROJECT": "payer"})
    assert found == CredentialSource(file=file, quota_project="payer")
    named = project_access.find_credentials(
        {**environ, "GOOGLE_APPLICATION_CREDENTIALS": "/nowhere.json"}
    )
    assert named == CredentialSource(file=Path("/nowhere.json"))
    machine = project_access.find_credentials(
        {**environ, "HOME": "/nowhere", "GCE_METADATA_HOST": "md:80"}
    )
    assert machine == CredentialSource(metadata_url="http://md:80")


@pytest.mark.parametrize(
    ("user", "name"),
    [
        ("ada", "ada"),
        ("Ada.Lovelace", "ada_lovelace"),
        ("root", "herd"),
        ("", "herd"),
        ("7of9", "herd"),
        ("ünal", "_nal"),
        ("x" * 40, "x" * 32),
    ],
)
def test_the_login_name(user: str, name: str) -> None:
    assert host_login(user) == name


def test_the_key_is_made_once_and_for_us_alone(tmp_path: Path) -> None:
    folder = tmp_path / "config"
    first, second = key_pair(folder), key_pair(folder)
    assert first.public == second.public
    assert first.public.startswith("ssh-ed25519 AAAA")
    assert stat.S_IMODE(first.file.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert sorted(file.name for file in folder.iterdir()) == ["id_ed25519", "id_ed25519.pub"]
    first.file.write_text("nonsense")
    with pytest.raises(InvalidInput, match="is not a private key"):
        key_pair(folder)


def test_the_owner_is_made_once(tmp_path: Path) -> None:
    first = project_access.get_owner_id(tmp_path / "config")
    assert first == project_access.get_owner_id(tmp_path / "config")
    assert re.fullmatch(r"[a-z0-9]{6}", first)


def test_an_owner_id_of_before_stays(tmp_path: Path) -> None:
    (tmp_path / "owner").write_text("7kq")
    assert project_access.get_owner_id(tmp_path) == "7kq"


def test_letters_of_owner_ids_are_equally_likely() -> None:
    letters = Counter("".join(project_access.new_owner_id() for _ in range(60_000)))
    assert len(letters) == 36
    assert max(letters.values()) < 1.1 * min(letters.values())  # 10,000 of each, ± 100


def test_the_longest_name_of_a_node_is_short_enough_for_the_cloud() -> None:
    name = f"{'j' * NAME_MAX}-{COPIES_MAX - 1}-g9999-{project_access.new_owner_id()}"
    assert len(f"{name}-{SLICES_MAX - 1}") <= 63


HOST = Host(
    node="pod",
    zone="z",
    worker=1,
    incarnation="i",
    internal_ip="10.0.0.1",
    external_ip=None,
    ssh_port=22,
)


@pytest.mark.parametrize("text", ["", "external:x", "jump", "jump:", "command:", "by bus"])
def test_invalid_routes(text: str) -> None:
    with pytest.raises(InvalidInput, match="is not a route to a host"):
        host_routes.parse_route(text)


def test_a_proxy_command_says_where() -> None:
    way = host_routes.parse_route("command:tunnel '%n a' %p --zone=%z %h 100%%h")
    words = host_routes.proxy_command(way, HOST, "t1v-n-0-w-1")
    assert words == ["tunnel", "t1v-n-0-w-1 a", "22", "--zone=z", "10.0.0.1", "100%h"]
