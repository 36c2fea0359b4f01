"""The checks of a project find what is wrong in a world, and are content when it is mended."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.simulated.cloud_user import User, live
from tpuherd.checks.check_all import check_cloud
from tpuherd.checks.check_results import CheckResult, CheckStatus
from tpuherd.checks.check_table import CLOUD_CHECKS
from tpuherd.checks.cloud_checks import cloud_checks
from tpuherd.checks.cloud_view import CloudView
from tpuherd.checks.judge_cloud import describe_login
from tpuherd.checks.machine_facts import Machine
from tpuherd.checks.run_checks import discard_text, run_checks
from tpuherd.clock import LoopClock, WallClock
from tpuherd.jobfile.grants import Allowance, Grant
from tpuherd.jobfile.job_spec import JobSpec, Network
from tpuherd.jobfile.read_job import read_job
from tpuherd.settings.endpoints import CredentialSource, ServiceUrls
from tpuherd.settings.folders import LocalFolders
from tpuherd.settings.host_routes import parse_route
from tpuherd.settings.project_access import ProjectAccess

OK, WARNING, PROBLEM = CheckStatus.OK, CheckStatus.WARNING, CheckStatus.PROBLEM
FIREWALLS = "compute/v1/projects/demo/global/firewalls"
SERVICES = "v1/projects/demo/services"
NOBODY = Path("/nonexistent")
PLACE = ProjectAccess(
    world=None,
    project="demo",
    folders=LocalFolders(config=NOBODY, state=NOBODY, runtime=NOBODY),
    urls=ServiceUrls.of_world("http://world"),
    ssh_port=22,
    login="ada",
    routes=(),
    credentials=CredentialSource(file=NOBODY / "adc.json"),
)


def job(text: str) -> JobSpec:
    found = read_job(f"name: gpt\nrun: x\n{text}")
    assert isinstance(found, JobSpec), found
    return found


def view_of(user: User, **changes: Any) -> CloudView:
    view = CloudView(place=PLACE, cloud=user.cloud, clock=user.clock)
    return replace(view, **changes)


async def look(user: User, check: str, **changes: Any) -> Sequence[CheckResult]:
    """The results of one check."""
    view = view_of(user, **changes)
    one = {check: cloud_checks(view)[check]}
    return await run_checks(one, where=view.where, clock=user.clock)


def in_world(check: str, work: Callable[[Any, User], Awaitable[None]], **changes: Any) -> None:
    """A user who can look at one check, in a new world."""

    async def begin(user: User) -> None:
        async def again() -> CheckResult:
            (found,) = await look(user, check, **changes)
            return found

        await work(again, user)

    live(begin)


def test_a_new_project_is_fine() -> None:
    async def work(user: User) -> None:
        view = view_of(user)
        functions = cloud_checks(view)
        assert list(functions) == [kind.id for kind in CLOUD_CHECKS]
        found = await run_checks(functions, where=view.where, clock=user.clock)
        assert [(one.check, one.status) for one in found] == [
            (kind.id, OK) for kind in CLOUD_CHECKS
        ], found
        assert {one.where for one in found} == {"project demo"}

    live(work)


def test_a_refused_login() -> None:
    async def work(again: Any, user: User) -> None:
        await user.weather("http-error", http=401, times=1)
        found = await again()
        assert found.status is PROBLEM
        assert found.remedy == "log in: gcloud auth application-default login"
        await user.weather("http-error", http=403, times=1)
        assert (await again()).status is OK, "what the account may do is another check"
        await user.weather("http-error", http=503, times=9)
        found = await again()
        assert found.status is PROBLEM, "an exit status of 0 would be a lie"
        await user.weather("clear", rule="all")
        assert (await again()).status is OK

    in_world("login", work)


@pytest.mark.parametrize(
    ("off_s", "status", "says"),
    [
        (0.0, OK, "the clocks agree"),
        (9.0, OK, "the clocks agree"),
        (60.0, WARNING, "this machine's clock is 59 s ahead"),
        (-60.0, WARNING, "this machine's clock is 1 m 00 s behind"),
        (600.0, PROBLEM, "this machine's clock is 9 m 59 s ahead"),
    ],
)
def test_a_wrong_clock(off_s: float, status: CheckStatus, says: str) -> None:
    async def work(user: User) -> None:
        (found,) = await look(user, "clock", clock=LoopClock(user.clock.start + off_s))
        assert (found.status, found.found) == (status, says)

    live(work)


def test_a_proxy_that_answers_without_a_date() -> None:
    async def work(again: Any, user: User) -> None:
        user.wire.instead = lambda request: httpx2.Response(200, content=b"hello")
        found = await again()
        assert found.status is CheckStatus.SKIPPED
        assert "answered without its time" in found.found

    in_world("clock", work)


def test_a_project_of_somebody_else() -> None:
    async def work(user: User) -> None:
        place = replace(PLACE, project="other")
        (found,) = await look(user, "project", place=place)
        assert found.status is PROBLEM
        assert found.found.startswith("the project other does not exist, or your account may not")
        found = (await look(user, "project"))[0]
        assert (found.status, found.found) == (OK, "demo, number 123456789012")

    live(work)


def test_without_resource_manager_compute_tells() -> None:
    async def work(again: Any, user: User) -> None:
        def refuse(request: httpx2.Request) -> httpx2.Response | None:
            if request.url.path != "/v1/projects/demo":
                return None
            return httpx2.Response(403, json={"error": {"message": "it is disabled"}})

        user.wire.instead = refuse
        assert (await again()).status is OK

    in_world("project", work)


def test_a_project_that_is_being_deleted() -> None:
    async def work(again: Any, user: User) -> None:
        content = {"projectNumber": "1", "lifecycleState": "DELETE_REQUESTED"}
        user.wire.instead = lambda request: httpx2.Response(200, json=content)
        found = await again()
        assert (found.status, found.remedy) == (PROBLEM, "gcloud projects undelete demo")

    in_world("project", work)


@pytest.mark.parametrize("listed", [True, False])
def test_disabled_apis(listed: bool) -> None:
    async def work(again: Any, user: User) -> None:
        def hide_list(request: httpx2.Request) -> httpx2.Response | None:
            if listed or not request.url.path.endswith("/services"):
                return None
            return httpx2.Response(403, json={"error": {"message": "not for you"}})

        user.wire.instead = hide_list
        assert (await again()).status is OK
        await user.ask("POST", f"{SERVICES}/tpu.googleapis.com:disable", {})
        found = await again()
        assert (found.status, found.check) == (PROBLEM, "apis")
        assert found.found.startswith("not enabled: tpu.googleapis.com for nodes")
        assert ("as their answers show" in found.found) is not listed
        assert "gcloud services enable tpu.googleapis.com --project=demo" in found.remedy
        await user.ask("POST", f"{SERVICES}/tpu.googleapis.com:enable", {})
        await user.clock.sleep(60)
        assert (await again()).status is OK

    in_world("apis", work)


def test_apis_are_needed_for_what_is_used() -> None:
    async def work(again: Any, user: User) -> None:
        await user.ask("POST", f"{SERVICES}/storage.googleapis.com:disable", {})
        found = await again()
        assert "storage.googleapis.com for the buckets of jobs" in found.found

    bucket = job("accelerator: v4-8\nbuckets: {data: US}\n")
    in_world("apis", work, jobs=[bucket])


async def set_roles(user: User, **roles: list[str]) -> None:
    """Replace the project's policy; roles/tpu.admin is tpu_admin here."""
    bindings = [
        {"role": f"roles/{role.replace('_', '.', 1)}", "members": members}
        for role, members in roles.items()
    ]
    await user.ask("POST", "v1/projects/demo:setIamPolicy", {"policy": {"bindings": bindings}})


ME = "serviceAccount:123456789012-compute@developer.gserviceaccount.com"
AGENT = "serviceAccount:service-123456789012@cloud-tpu.iam.gserviceaccount.com"


def test_the_service_agent_is_missing() -> None:
    async def work(again: Any, user: User) -> None:
        await set_roles(user, owner=[ME])
        found = await again()
        assert found.status is WARNING
        assert "service-123456789012@cloud-tpu.iam" in found.found
        path = "v1beta1/projects/demo/services/tpu.googleapis.com:generateServiceIdentity"
        await user.ask("POST", path, {})
        assert (await again()).status is OK

    in_world("service-agent", work)


def test_missing_permissions_name_the_role() -> None:
    async def work(user: User) -> None:
        await set_roles(user, viewer=[ME])
        missing = await look(user, "permissions")
        assert [(one.status, one.remedy.rpartition("=")[2]) for one in missing] == [
            (PROBLEM, "roles/tpu.admin"),
            (PROBLEM, "roles/iam.serviceAccountUser"),
            (PROBLEM, "roles/serviceusage.serviceUsageConsumer"),
        ]
        assert missing[0].found == (
            "your account lacks tpu.nodes.create, tpu.nodes.delete, tpu.nodes.update"
        )
        needed = {
            "tpu_admin": [ME],
            "iam_serviceAccountUser": [ME],
            "serviceusage_serviceUsageConsumer": [ME],
        }
        await set_roles(user, **needed)
        (found,) = await look(user, "permissions")
        assert (found.status, found.remedy.rpartition("=")[2]) == (WARNING, "roles/compute.viewer")
        await set_roles(user, **needed, compute_viewer=[ME])
        (found,) = await look(user, "permissions")
        assert found.status is OK

    live(work)


def test_os_login_in_the_projects_metadata() -> None:
    async def work(again: Any, user: User) -> None:
        async def write(items: list[dict[str, str]]) -> None:
            about = await user.ask("GET", "compute/v1/projects/demo")
            body = {
                "fingerprint": about["commonInstanceMetadata"]["fingerprint"], "items": items,
            }  # fmt: skip
            await user.ask("POST", "compute/v1/projects/demo/setCommonInstanceMetadata", body)

        await write([{"key": "enable-oslogin", "value": "true"}])
        found = await again()
        assert found.status is WARNING
        assert "os-login ssh-keys add" in found.remedy
        (found,) = await look(user, "ssh-login", chosen_login="ada_example_com")
        assert (found.status, "logs in as ada_example_com" in found.found) == (OK, True)
        await write([{"key": "ssh-keys", "value": "ada:ssh-ed25519 AAAA x"}])
        found = await again()
        assert (found.status, "has the key of ada" in found.found) == (OK, True)

    in_world("ssh-login", work, place=replace(PLACE, project_keys=True))


def test_a_network_that_does_not_exist() -> None:
    async def work(user: User) -> None:
        mine = job("accelerator: v4-8\nnetwork: lab\n")
        (found,) = await look(user, "network", jobs=[mine])
        assert (found.status, found.found) == (
            PROBLEM,
            "there is no network lab; there are default",
        )
        (found,) = await look(user, "firewall", jobs=[mine])
        assert found.status is CheckStatus.SKIPPED
        await user.ask("POST", "compute/v1/projects/demo/global/networks", {"name": "lab"})
        (found,) = await look(user, "network", jobs=[mine])
        assert found.status is OK
        closed, apart = await look(user, "firewall", jobs=[mine])
        assert closed.found == "no rule of network lab lets SSH in from 0.0.0.0/0"
        assert apart.matters == "Programs on several hosts hang when they start"
        shared = job("accelerator: v4-8\nnetwork: projects/host/global/networks/x\n")
        (found,) = await look(user, "network", jobs=[shared])
        assert found.found.endswith("the networks of your jobs belong to another project")

    live(work)


def test_the_firewall() -> None:
    async def work(again: Any, user: User) -> None:
        async def add(name: str, source: str, **more: Any) -> None:
            rule = {"name": name, "sourceRanges": [source], "network": "global/networks/default"}
            await user.ask("POST", FIREWALLS, {**rule, **more})

        ssh = [{"IPProtocol": "tcp", "ports": ["22"]}]
        await user.ask("DELETE", f"{FIREWALLS}/default-allow-ssh")
        found = await again()
        assert found.status is PROBLEM
        assert found.found == "no rule of network default lets SSH in from 0.0.0.0/0"
        assert "firewall-rules create allow-ssh --network=default --allow=tcp:22" in found.remedy
        await add("tagged", "0.0.0.0/0", allowed=ssh, targetTags=["ssh"])
        found = await again()
        assert found.status is WARNING
        assert "only in part (tagged:" in found.found
        await add("home", "203.0.113.0/24", allowed=ssh)
        found = await again()
        assert found.status is OK
        assert "lets SSH in from 203.0.113.0/24 only" in found.found
        await add("all", "0.0.0.0/0", allowed=ssh)
        assert (await again()).found == "network default lets SSH in from anywhere"
        await add("none", "0.0.0.0/0", denied=ssh, priority=900)
        found = await again()
        assert (found.status, "rule none of" in found.found) == (PROBLEM, True)
        await user.ask("DELETE", f"{FIREWALLS}/none")
        assert (await again()).status is OK
        await add("allow-all", "0.0.0.0/0", allowed=[{"IPProtocol": "all"}])
        found = await again()
        assert found.status is WARNING
        assert found.found == "rule allow-all of network default lets all in from anywhere"
        assert found.remedy.startswith("gcloud compute firewall-rules delete allow-all")
        await user.ask("PATCH", f"{FIREWALLS}/allow-all", {"disabled": True})
        assert (await again()).status is OK
        await user.ask("DELETE", f"{FIREWALLS}/default-allow-internal")
        assert "does not let hosts talk to each other" in (await again()).found

    in_world("firewall", work)


def test_the_firewall_for_ways_within_the_network() -> None:
    async def work(again: Any, user: User) -> None:
        await user.ask("DELETE", f"{FIREWALLS}/default-allow-ssh")
        assert (await again()).found == "network default lets SSH in from 10.128.0.0/9"

    way = parse_route("jump:me@bastion")
    in_world("firewall", work, place=replace(PLACE, routes=(way,)))


V4 = "TPUV4sPreemptiblePodPerProjectPerZoneForTPUAPI"


def test_quotas_of_grants_and_jobs() -> None:
    async def work(user: User) -> None:
        grant = Grant(zone="us-central2-b", type="v4", tier="spot", chips=4)
        mine = job("accelerator: v4-64\nzones: [us-central2-b]\n")
        more = {"allowance": Allowance(grants=(grant,)), "jobs": [mine]}
        assert [one.status for one in await look(user, "quota", **more)] == [OK]
        await user.weather("quota", zone="us-central2-b", quota=V4, limit=32)
        (found,) = await look(user, "quota", **more)
        assert (found.status, found.found) == (
            PROBLEM,
            "gpt needs 64 cores of spot v4 in us-central2-b, and the quota allows 32",
        )
        await user.weather("quota", zone="us-central2-b", quota=V4, limit=0)
        assert [one.status for one in await look(user, "quota", **more)] == [PROBLEM, PROBLEM]
        await user.weather("quota", zone="us-central2-b", quota=V4, limit=64)
        assert [one.status for one in await look(user, "quota", **more)] == [OK]
        await user.node("a", schedulingConfig={"spot": True}, acceleratorType="v4-16")
        (found,) = await look(user, "quota", **more)
        assert found.status is WARNING
        assert found.found == (
            "8 of 4 chips of spot v4 in us-central2-b are used: more than is granted"
        )
        assert found.matters == "What is beyond a grant is billed"

    live(work)


def test_quotas_that_may_not_be_read_are_not_guessed() -> None:
    async def work(again: Any, user: User) -> None:
        user.wire.instead = lambda request: (
            httpx2.Response(403, json={"error": {"message": "not for you"}})
            if "consumerQuotaMetrics" in request.url.path
            else None
        )
        found = await again()
        assert (found.status, found.found) == (
            CheckStatus.SKIPPED,
            "could not look: not for you",
        )
        assert "roles/servicemanagement.quotaViewer" in found.remedy

    in_world("quota", work)


def test_external_addresses() -> None:
    async def work(user: User) -> None:
        async def see(*jobs: JobSpec) -> CheckResult:
            (found,) = await look(user, "external-addresses", jobs=jobs)
            return found

        assert (await see()).found == "none is in use"
        await user.node("a", acceleratorType="v4-16")
        assert (await see()).found == "in use: 2 of 65024 in us-central2"
        region = {"zone": "us-central2-b", "quota": "IN_USE_ADDRESSES"}
        await user.weather("quota", **region, limit=2)
        found = await see()
        assert (found.status, found.found) == (
            WARNING,
            "all 2 external addresses of us-central2 are in use",
        )
        large = job("accelerator: v4-64\nzones: [us-central2-b]\ncopies: 2\n")
        found = await see(large)
        assert (found.status, found.found) == (
            PROBLEM,
            "gpt needs 16 external addresses in us-central2, and the quota allows 2",
        )
        await user.weather("quota", **region, limit=16)
        assert (await see(large)).status is OK
        await user.weather("quota", **region, limit=2)
        inner = replace(large, network=Network(external_ips=False))
        assert (await see(inner)).status is WARNING

    live(work)


def test_buckets_far_from_their_jobs() -> None:
    async def work(user: User) -> None:
        body = {"name": "data", "location": "EUROPE-WEST4"}
        await user.ask("POST", "storage/v1/b?project=demo", body)
        far = job("accelerator: v4-8\nzones: [us-central2-b]\nbuckets: {data: US-CENTRAL2}\n")
        (found,) = await look(user, "bucket-region", jobs=[far])
        assert found.status is WARNING, "it is elsewhere than when the job was submitted"
        assert found.found.startswith("gpt: bucket data is in EUROPE-WEST4, and reading it from")
        near = job("accelerator: v5litepod-8\nzones: [europe-west4-b]\nbuckets: {data: EU}\n")
        (found,) = await look(user, "bucket-region", jobs=[near])
        assert (found.status, found.found) == (OK, "near their jobs: data in EUROPE-WEST4")
        lost = job("accelerator: v4-8\nbuckets: {lost: EU}\n")
        (found,) = await look(user, "bucket-region", jobs=[lost])
        assert (found.status, found.found) == (PROBLEM, "gpt: bucket lost does not exist")
        grant = Grant(zone="us-central2-b", type="v4", tier="spot")
        allowed = Allowance(grants=(grant,), buckets={"data": "EUROPE-WEST4"})
        (found,) = await look(user, "bucket-region", allowance=allowed)
        assert found.found == ("bucket data is in EUROPE-WEST4, near none of the granted zones")

    live(work)


@pytest.mark.parametrize(
    ("source", "world", "kind", "says"),
    [
        (CredentialSource(), "/w", "", "a simulated world needs no login"),
        (CredentialSource(file=Path("/a")), "", "authorized_user", "your own login in /a"),
        (CredentialSource(file=Path("/a")), "", "new_kind", "credentials in /a"),
        (CredentialSource(metadata_url="u"), "", "", "the service account of this machine"),
        (CredentialSource(gcloud="/g"), "", "", "gcloud's active account (/g)"),
    ],
)
def test_logins_are_named(source: CredentialSource, world: str, kind: str, says: str) -> None:
    assert describe_login(source, world, kind) == says


def cloud_results(environ: dict[str, str], world: Path | None = None) -> list[CheckResult]:
    import asyncio

    machine = Machine(environ=environ, world=world, clock=WallClock())
    return asyncio.run(check_cloud(machine, discard_text))


def test_a_newcomer_without_a_login_or_a_world(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "PATH": str(tmp_path), "NO_GCE_CHECK": "true"}
    login, *rest = cloud_results(environ)
    assert (login.check, login.status) == ("login", PROBLEM)
    assert "herd sim start" in login.remedy
    assert {one.found for one in rest} == {"could not look: there is no login"}
    assert [one.check for one in (login, *rest)] == [kind.id for kind in CLOUD_CHECKS]
    login, *rest = cloud_results(environ, tmp_path / "world")
    assert {one.found for one in (login, *rest)} == {
        f"could not look: there is no world in {tmp_path}/world"
    }


def test_a_login_is_tried_even_if_no_project_is_known(tmp_path: Path) -> None:
    gcloud = tmp_path / "gcloud"
    gcloud.write_text("#!/bin/sh\necho 'ERROR: you are not logged in' >&2; exit 1\n")
    gcloud.chmod(0o755)
    environ = {"HOME": str(tmp_path), "PATH": f"{tmp_path}:/bin", "NO_GCE_CHECK": "true"}
    login, *rest = cloud_results(environ)
    assert login.status is PROBLEM
    assert login.found == "gcloud returned no token (ERROR: you are not logged in)"
    assert {one.found for one in rest} == {"could not look: no project is configured"}


def test_the_way_through_googles_proxy_needs_more() -> None:
    async def work(user: User) -> None:
        more = {"place": replace(PLACE, routes=(parse_route("iap"),))}
        (found,) = await look(user, "firewall", **more)
        assert (found.status, found.found) == (
            OK,
            "network default lets SSH in from 35.235.240.0/20",
        )
        await user.ask("DELETE", f"{FIREWALLS}/default-allow-ssh")
        (found,) = await look(user, "firewall", **more)
        assert found.remedy.endswith("--source-ranges=35.235.240.0/20")
        (found,) = await look(user, "apis", **more)
        assert found.status is OK
        await user.ask("POST", f"{SERVICES}/iap.googleapis.com:disable", {})
        (found,) = await look(user, "apis", **more)
        assert "iap.googleapis.com for the way to hosts" in found.found
        await set_roles(user, editor=[ME])
        (found,) = await look(user, "permissions", **more)
        assert found.remedy.endswith("--role=roles/iap.tunnelResourceAccessor")

    live(work)
