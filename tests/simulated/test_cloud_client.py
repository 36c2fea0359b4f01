"""How our client reads the cloud's answers, and how it adds keys without harm to others."""

import asyncio
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest

from tests.simulated.cloud_user import ZONE, User, live
from tpuherd.cloud import parse
from tpuherd.cloud.nodes_api import Cloud
from tpuherd.cloud.rest import error_for_status
from tpuherd.errors import (
    HerdError,
    InvalidInput,
    NotAllowed,
    NotFound,
    NotReached,
    OperationFailed,
)
from tpuherd.ports import Host
from tpuherd.remote.resolve_hosts import LATE_KEYS_S
from tpuherd.remote.user_notices import notify_user

PUBLIC = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPzYWQGmSFcFvj53O9qWFTNL1ZP4Gg3U2dYTS7bTE4Dq"
THEIRS = "anna:ssh-rsa AAAAB3NzaC1yc2E anna@home"
PROJECT = "compute/v1/projects/demo"
KEY = "AAAAC3NzaC1lZDI1NTE5AAAAIHostKey"


async def host_of(user: User, name: str, worker: int = 0) -> Host:
    node = await user.cloud.get_node(ZONE, name)
    assert node is not None
    return parse.worker_host(node, worker, 22)


async def project_keys(user: User) -> str:
    project = parse.parse_project(await user.ask("GET", PROJECT))
    return project.items.get("ssh-keys", "")


async def set_project(user: User, **items: str) -> None:
    project = parse.parse_project(await user.ask("GET", PROJECT))
    body = parse.project_metadata_body(replace(project, items={**project.items, **items}))
    await user.ask("POST", f"{PROJECT}/setCommonInstanceMetadata", body)


def test_a_survey_has_every_zone_and_every_page() -> None:
    async def work(user: User) -> None:
        for number in range(7):
            await user.node(f"n{number}", acceleratorType="v4-8")
        await user.node("far", zone="europe-west4-a", acceleratorType="v3-8")
        survey = await Cloud(user.cloud.rest, user.cloud.project, page=3).list_nodes()
        assert sorted(node.name for node in survey.nodes) == ["far", *(f"n{at}" for at in range(7))]
        assert {node.zone for node in survey.nodes} == {ZONE, "europe-west4-a"}
        assert survey.unknown == ()

    live(work)


def test_a_zone_that_does_not_answer_is_unknown_and_named() -> None:
    async def work(user: User) -> None:
        await user.node("pod")
        await user.weather("unreachable-zone", zone=ZONE)
        survey = await user.cloud.list_nodes()
        assert survey.unknown == (ZONE,)
        assert survey.nodes == ()

    live(work)


def test_a_node_and_its_workers() -> None:
    async def work(user: User) -> None:
        await user.node("pod", metadata={"ssh-keys": THEIRS})
        node = await user.cloud.get_node(ZONE, "pod")
        assert node is not None
        assert (node.ready, node.type, len(node.workers)) == (True, "v4-16", 2)
        assert node.metadata["ssh-keys"] == THEIRS
        host = parse.worker_host(node, 1, 2222)
        assert host.name == "pod/w1"
        assert host.internal_ip.startswith("10.")
        assert host.external_ip is not None
        assert host.ssh_port == 2222
        assert await user.cloud.get_node(ZONE, "nobody") is None

    live(work)


def test_a_recreated_node_is_another_incarnation() -> None:
    async def work(user: User) -> None:
        await user.node("pod")
        first = await host_of(user, "pod")
        await user.ask("DELETE", f"v2/projects/demo/locations/{ZONE}/nodes/pod")
        await asyncio.sleep(3600)
        assert await user.directory.find_current(first) is None
        await user.node("pod")
        second = await host_of(user, "pod")
        assert second.incarnation != first.incarnation
        found = await user.directory.find_current(first)
        assert found is not None
        assert found.incarnation == second.incarnation

    live(work)


def test_a_preempted_node_cannot_be_used() -> None:
    async def work(user: User) -> None:
        await user.node("pod", schedulingConfig={"spot": True})
        host = await host_of(user, "pod")
        assert user.directory.unreachable_reason(host) is None
        await user.weather("preempt", target="pod", notice_s=0)
        await asyncio.sleep(60)
        await user.directory.list_nodes()
        assert user.directory.unreachable_reason(host) == "its node is PREEMPTED"
        with pytest.raises(NotReached, match="its node is PREEMPTED"):
            await user.directory.find_current(host)

    live(work)


def collect_notices() -> list[str]:
    """Record what users of this test are told from now on."""
    sentences: list[str] = []

    async def keep(sentence: str) -> None:
        sentences.append(sentence)

    notify_user.set(keep)
    return sentences


def test_our_key_is_added_to_the_project_beside_the_others() -> None:
    async def work(user: User) -> None:
        await set_project(user, **{"ssh-keys": THEIRS, "other": "stays"})
        await user.node("pod")
        host = await host_of(user, "pod")
        user.cloud.project_keys = True
        notices = collect_notices()
        await user.directory.install_key(host, "me", PUBLIC)
        assert notices == ["Added your SSH key for me to the metadata of project demo"]
        assert await project_keys(user) == f"{THEIRS}\nme:{PUBLIC} tpuherd"
        project = parse.parse_project(await user.ask("GET", PROJECT))
        assert project.items["other"] == "stays"
        await asyncio.sleep(10)
        asked = len(user.wire.asked)
        await user.directory.install_key(host, "me", PUBLIC)
        assert len(notices) == 1, "nothing was added, so nothing is said"
        assert not [one for one in user.wire.asked[asked:] if not one.startswith("GET")]

    live(work)


def test_two_concurrent_key_writers_lose_nothing() -> None:
    async def work(user: User) -> None:
        await user.node("pod")
        host = await host_of(user, "pod")
        user.cloud.project_keys = True
        others = iter(["bert:ssh-rsa AAAAB", "carl:ssh-rsa AAAAC"])

        def between(request: httpx2.Request) -> None:
            line = next(others, None) if request.url.path.endswith("Metadata") else None
            if line is not None:
                metadata = user.world.services.metadata
                metadata["ssh-keys"] = f"{metadata.get('ssh-keys', '')}\n{line}".strip()

        user.wire.between = between
        await user.directory.install_key(host, "me", PUBLIC)
        lines = (await project_keys(user)).splitlines()
        assert lines == ["bert:ssh-rsa AAAAB", "carl:ssh-rsa AAAAC", f"me:{PUBLIC} tpuherd"]

    live(work)


def test_a_node_that_ignores_project_keys_gets_its_own_and_keeps_the_rest() -> None:
    async def work(user: User) -> None:
        metadata = {"ssh-keys": THEIRS, "block-project-ssh-keys": "TRUE", "startup-script": "true"}
        await user.node("pod", metadata=metadata, labels={"a": "b"})
        host = await host_of(user, "pod")
        notices = collect_notices()
        await user.directory.install_key(host, "me", PUBLIC)
        assert notices == ["Added your SSH key for me to the metadata of node pod"]
        await asyncio.sleep(30)
        node = await user.ask("GET", f"v2/projects/demo/locations/{ZONE}/nodes/pod")
        expected = {**metadata, "ssh-keys": f"{THEIRS}\nme:{PUBLIC} tpuherd"}
        assert node["metadata"] == expected
        assert node["labels"] == {"a": "b"}
        assert await project_keys(user) == ""

    live(work)


def test_two_processes_that_change_a_nodes_metadata_undo_nothing(tmp_path: Path) -> None:
    """Such as an engine that adds an SSH key while `herd engine adopt` writes its card."""

    async def work(user: User) -> None:
        metadata = {"startup-script": "true", "block-project-ssh-keys": "TRUE"}
        lock = tmp_path / "state" / "lock"
        engine, adopt = (Cloud(user.cloud.rest, user.cloud.project, lock_folder=lock) for _ in "ab")

        async def add_key(name: str, delay_s: float) -> None:
            await asyncio.sleep(delay_s)
            assert await engine.install_key(ZONE, name, "me", PUBLIC) == f"node {name}"

        for delay_s in range(8):  # the cloud applies a change some seconds after its call
            name = f"pod-{delay_s}"
            await user.node(name, metadata=metadata)
            added = asyncio.create_task(add_key(name, delay_s / 2))
            await adopt.write_card(ZONE, name, "the card")
            await added
            node = await user.cloud.get_node(ZONE, name)
            assert node is not None
            keys = f"me:{PUBLIC} tpuherd"
            assert node.metadata == {**metadata, "ssh-keys": keys, parse.CARD: "the card"}

    live(work)


def test_nodes_do_not_wait_for_each_other_to_get_a_key(tmp_path: Path) -> None:
    async def work(user: User) -> None:
        cloud = Cloud(user.cloud.rest, user.cloud.project, clock=user.clock, lock_folder=tmp_path)
        names = [f"pod-{number}" for number in range(20)]
        for name in names:
            await user.node(name)

        async def seconds_for(some: list[str]) -> float:
            begun = user.clock.now()
            await asyncio.gather(*(cloud.install_key(ZONE, name, "me", PUBLIC) for name in some))
            return user.clock.now() - begun

        alone_s = await seconds_for(names[:1])
        assert alone_s > 0
        assert await seconds_for(names[1:]) < 3 * alone_s

    live(work)


def test_a_card_that_another_program_overwrites_is_written_again() -> None:
    """A change of metadata is applied a moment after its call, and replaces all of it."""

    async def work(user: User) -> None:
        await user.node("pod")
        path = f"v2/projects/demo/locations/{ZONE}/nodes/pod?updateMask=metadata"
        other = asyncio.create_task(user.ask("PATCH", path, {"metadata": {"other": "1"}}))
        await user.cloud.write_card(ZONE, "pod", "the card")
        await other
        await asyncio.sleep(60)
        node = await user.cloud.get_node(ZONE, "pod")
        assert node is not None and node.metadata[parse.CARD] == "the card"

    live(work)


def test_a_node_that_is_being_created_takes_no_key_yet() -> None:
    async def work(user: User) -> None:
        spec = {"acceleratorType": "v4-8", "runtimeVersion": "tpu-ubuntu2204-base"}
        nodes = f"v2/projects/demo/locations/{ZONE}/nodes"
        await user.ask("POST", f"{nodes}?nodeId=pod", spec)
        with pytest.raises(NotReached, match="still being created and can't take your SSH key"):
            await user.cloud.install_key(ZONE, "pod", "me", PUBLIC)
        async with asyncio.timeout(3600):
            while (await user.ask("GET", f"{nodes}/pod"))["state"] != "READY":
                await asyncio.sleep(1)
        assert await user.cloud.install_key(ZONE, "pod", "me", PUBLIC) == "node pod"

    live(work)


@pytest.mark.parametrize("where", ["project", "node"])
def test_a_project_with_os_login_is_reported(where: str) -> None:
    async def work(user: User) -> None:
        if where == "project":
            await set_project(user, **{"enable-oslogin": "TRUE"})
        await user.node("pod", metadata={"enable-oslogin": "TRUE"} if where == "node" else {})
        with pytest.raises(NotAllowed, match="OS Login") as caught:
            await user.directory.install_key(await host_of(user, "pod"), "me", PUBLIC)
        assert "enable-oslogin=FALSE" in caught.value.hint

    live(work)


def test_a_node_may_opt_out_of_os_login() -> None:
    async def work(user: User) -> None:
        await set_project(user, **{"enable-oslogin": "TRUE"})
        await user.node("pod", metadata={"enable-oslogin": "FALSE"})
        await user.directory.install_key(await host_of(user, "pod"), "me", PUBLIC)
        await asyncio.sleep(30)
        node = await user.cloud.get_node(ZONE, "pod")
        assert node is not None and f"me:{PUBLIC}" in node.metadata["ssh-keys"]
        assert await project_keys(user) == "", "the project's is left alone unless it is asked for"

    live(work)


def test_late_host_keys_are_waited_for() -> None:
    async def work(user: User) -> None:
        await user.node("pod")
        await user.directory.list_nodes()
        host = await host_of(user, "pod", 1)

        async def later() -> None:
            await asyncio.sleep(7)
            await user.publish("pod", 1, KEY)

        before = user.clock.now()
        async with asyncio.TaskGroup() as group:
            group.create_task(later())
            vouched, instance = await user.directory.look_up_host(host)
        assert vouched.host_keys == (f"ssh-ed25519 {KEY}",)
        assert instance == "t1v-n-x-w-1"
        assert 7 <= user.clock.now() - before < 10

    live(work)


def test_missing_host_keys_are_waited_for_briefly_and_on_old_nodes_not_at_all() -> None:
    async def work(user: User) -> None:
        await user.node("pod")
        await user.directory.list_nodes()
        host = await host_of(user, "pod")
        before = user.clock.now()
        assert (await user.directory.look_up_host(host))[0].host_keys == ()
        assert LATE_KEYS_S <= user.clock.now() - before < LATE_KEYS_S + 2
        await asyncio.sleep(3600)
        before = user.clock.now()
        await user.directory.look_up_host(host)
        assert user.clock.now() == before

    live(work)


def test_many_hosts_share_one_request() -> None:
    async def work(user: User) -> None:
        await user.node("pod", acceleratorType="v4-64")
        hosts = [await host_of(user, "pod", worker) for worker in range(8)]
        await user.publish("pod", 0, KEY)
        await asyncio.sleep(3600)
        asked = len(user.wire.asked)
        await asyncio.gather(*(user.directory.find_current(host) for host in hosts))
        assert len(user.wire.asked) - asked == 2  # the node, and what its guests say

    live(work)


def test_a_failed_request_is_sent_again() -> None:
    async def work(user: User) -> None:
        await user.node("pod")
        host = await host_of(user, "pod")
        await user.weather("http-error", http=503, times=1)
        with pytest.raises(OperationFailed):
            await user.directory.find_current(host)
        assert await user.directory.find_current(host) is not None

    live(work)


def test_a_truncated_answer_is_an_error() -> None:
    async def work(user: User) -> None:
        await user.node("pod")
        await user.weather("lost-response", times=1)
        with pytest.raises(NotReached, match="can't be reached"):
            await user.cloud.list_nodes()

    live(work)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, InvalidInput),
        (401, NotAllowed),
        (403, NotAllowed),
        (404, NotFound),
        (409, OperationFailed),
        (412, OperationFailed),
        (429, OperationFailed),
        (500, OperationFailed),
        (503, OperationFailed),
    ],
)
def test_refusals_are_sentences(status: int, kind: type[HerdError]) -> None:
    error = error_for_status(status, {"error": {"message": "The thing is so."}})
    assert type(error).__mro__[0] is kind or isinstance(error, kind)
    assert error.sentence == "The thing is so"
    assert str(status) in error_for_status(status, "<html>").sentence


@pytest.mark.parametrize(
    ("sentence", "hint"),
    [
        ("Quota limit 'TPUV4' has been exceeded. Limit: 8 in zone us-central2-b.", "herd quota"),
        ("Quota exceeded for quota metric 'Requests' and limit 'Requests per minute'", "a minute"),
        ("Too many requests", "a minute"),
    ],
)
def test_a_full_quota_is_no_rate_limit(sentence: str, hint: str) -> None:
    assert hint in (error_for_status(429, {"error": {"message": sentence}}).hint or "")


URL = "https://tpu.googleapis.com/v2/projects/mine/locations/-/nodes"


def disabled(consumer: str) -> dict[str, object]:
    metadata = {"service": "tpu.googleapis.com", "consumer": consumer}
    return {"reason": "SERVICE_DISABLED", "metadata": metadata}


@pytest.mark.parametrize(
    ("details", "says"),
    [
        ([disabled("projects/123")], "gcloud services enable tpu.googleapis.com --project=mine"),
        ([disabled("projects/764086051850")], "set-quota-project mine"),
        ([{"reason": "IAM_PERMISSION_DENIED", "metadata": {"permission": "tpu.nodes.list"}}],
         "tpu.nodes.list is missing; ask for a role that includes it: gcloud projects"),
        ([{"@type": "x"}, {"reason": "USER_PROJECT_DENIED"}], "set-quota-project mine"),
        ([{"reason": "ACCESS_TOKEN_SCOPE_INSUFFICIENT"}], "cloud-platform"),
        ([{"reason": "BILLING_DISABLED"}], "gcloud billing projects link mine"),
        ([{"reason": "LOCATION_POLICY_VIOLATED"}], "choose other zones"),
        ([{"reason": "SECURITY_POLICY_VIOLATED"}], "perimeter"),
        ([{"reason": "OF_TOMORROW"}], "roles/tpu.admin"),
        ([{"reason": 7, "metadata": []}], "roles/tpu.admin"),
        ([{"reason": "SERVICE_DISABLED", "metadata": {"service": "x; rm -rf /", "consumer": {}}}],
         "gcloud services enable tpu.googleapis.com --project=mine"),
        ("all of them", "roles/tpu.admin"),
        (None, "roles/tpu.admin"),
    ],
    ids=str,
)  # fmt: skip
def test_a_refusal_says_what_to_do(details: object, says: str) -> None:
    error = error_for_status(403, {"error": {"message": "No.", "details": details}}, URL)
    assert isinstance(error, NotAllowed)
    assert says in error.hint


def test_missing_and_new_fields_are_accepted() -> None:
    name = "projects/p/locations/z/nodes/n"
    node = parse.parse_node({"name": name, "state": "DANCING", "networkEndpoints": [{}], "new": 1})
    assert (node.state, node.ready, node.created) == ("DANCING", False, 0.0)
    assert node.workers == (parse.WorkerAddress(internal_ip="", external_ip=None),)
    assert parse.parse_nodes({}) == ([], [], "", "")
    assert parse.parse_guests({}) == []
    assert parse.parse_project({}).items == {}


def test_of_several_network_interfaces_the_first_counts() -> None:
    ends = [{"ipAddress": f"10.0.0.{at}"} for at in range(4)]
    node = parse.parse_node(
        {
            "name": "projects/p/locations/z/nodes/n",
            "networkConfigs": [{}, {}],
            "networkEndpoints": ends,
        }
    )
    assert [worker.internal_ip for worker in node.workers] == ["10.0.0.0", "10.0.0.2"]


@pytest.mark.parametrize(
    ("there", "then"),
    [
        ("", f"me:{PUBLIC} tpuherd"),
        ("x:ssh-rsa A", f"x:ssh-rsa A\nme:{PUBLIC} tpuherd"),
        ("x:ssh-rsa A\n", f"x:ssh-rsa A\nme:{PUBLIC} tpuherd"),
        (f"you:{PUBLIC} c", f"you:{PUBLIC} c\nme:{PUBLIC} tpuherd"),
        (f"x:ssh-rsa A\nme:{PUBLIC} whoever", None),
    ],
)
def test_keys_are_added_and_never_changed(there: str, then: str | None) -> None:
    new = parse.add_ssh_key({"ssh-keys": there, "k": "v"}, "me", PUBLIC)
    assert new == (None if then is None else {"ssh-keys": then, "k": "v"})


def test_timestamps() -> None:
    assert parse.parse_timestamp("2026-11-20T10:46:01.123456789Z") == pytest.approx(
        1795171561.123456
    )
    assert parse.parse_timestamp("2026-11-20T10:46:01Z") == 1795171561.0
    assert parse.parse_timestamp("soon") == 0.0
