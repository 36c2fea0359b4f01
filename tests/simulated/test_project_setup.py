"""`herd setup gcp`: every step, every failure in the middle, and how it is undone."""

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.simulated.cloud_user import User, live
from tests.simulated.setup_user import HOME, KEY, SERVICES, SetupUser, states
from tpuherd.errors import InvalidInput, NotReached, OperationFailed
from tpuherd.project_setup.journal import journal_file, open_journal
from tpuherd.project_setup.run_setup import make_goals, survey_goals
from tpuherd.project_setup.setup_types import GoalState
from tpuherd.settings.contexts_file import edit_contexts, load_contexts
from tpuherd_sim.google_apis.firewalls import complete_rule
from tpuherd_sim.model.compute_state import Firewall, ProjectBinding

THERE, MISSING, MADE = GoalState.THERE, GoalState.MISSING, GoalState.MADE
RULE = "herd-ssh-default-7kq"
#: The calls by which a setup changes a project.
WRITES = (
    "services.enable",
    "projects.setIamPolicy",
    "services.generateServiceIdentity",
    "firewalls.create",
    "setCommonInstanceMetadata.create",
)
#: Everything that the setup of these tests makes.
ALL = ("firewall", "identity", "key", "role roles/tpu.admin", "service tpu.googleapis.com", "way")


def test_an_empty_project_gets_everything_and_loses_it_again(tmp_path: Path) -> None:
    async def work(user: User) -> None:
        me = SetupUser(user, tmp_path)
        await me.empty_project()
        before = me.state()
        planned = await me.survey(way="external", member=me.me)
        assert {planned[name].state for name in ("firewall", "key")} == {GoalState.LATER}
        assert planned["role roles/tpu.admin"].state is MISSING
        assert me.writes() == []
        made = await me.make(way="external", member=me.me)
        assert {made[name].state for name in ALL} == {MADE}
        assert made["service cloudresourcemanager.googleapis.com"].state is THERE
        assert me.services.firewalls[RULE].spec["sourceRanges"] == [f"{HOME}/32"]
        assert me.services.metadata["ssh-keys"] == f"eve:ssh-rsa BBBB eve\nada:{KEY} tpuherd"
        assert load_contexts(me.place.folders.config)["contexts"] == {
            "demo": {"project": "demo", "ways": ["external"]}
        }
        done = me.writes()
        assert states(await me.make(way="external", member=me.me)) == {THERE}
        assert me.writes() == done, "a second run changes nothing"
        shown = await me.undo(act=False)
        assert me.writes() == done
        undone = await me.undo()
        assert [one.sentence for one in undone] == [one.sentence for one in shown]
        kept = [one.sentence for one in undone if not one.undone]
        assert len(kept) == 1
        assert "stays: Google has no way to delete it" in kept[0]
        agent = [one for one in me.state()["policy"] if one[0] == "roles/cloudtpu.serviceAgent"]
        assert me.state() == {**before, "policy": sorted([*before["policy"], *agent])}
        assert load_contexts(me.place.folders.config)["contexts"] == {}
        assert await me.undo() == []

    live(work)


def test_what_was_there_before_stays(tmp_path: Path) -> None:
    async def work(user: User) -> None:
        me = SetupUser(user, tmp_path)
        me.services.metadata["ssh-keys"] = f"ada:{KEY} by hand\n"
        with edit_contexts(me.place.folders.config) as content:
            content["contexts"]["lab"] = {"project": "demo", "ways": ["internal"], "login": "ada"}
        before = me.state()
        made = await me.make(way="jump:ada@bastion")
        assert states(made) == {THERE, MADE}
        assert [name for name, one in made.items() if one.state is MADE] == ["way"]
        assert me.writes() == []
        assert load_contexts(me.place.folders.config)["contexts"]["lab"] == {
            "project": "demo", "ways": ["jump:ada@bastion"], "login": "ada",
        }  # fmt: skip
        await me.undo()
        assert me.state() == before
        contexts = load_contexts(me.place.folders.config)
        assert contexts["contexts"]["lab"]["ways"] == ["internal"]
        assert contexts.get("current") is None

    live(work)


@pytest.mark.parametrize("method", WRITES)
def test_a_refused_step_leaves_the_others_and_a_second_run_completes(
    tmp_path: Path, method: str
) -> None:
    async def work(user: User) -> None:
        me = SetupUser(user, tmp_path)
        await me.empty_project()
        before = me.state()
        await user.weather("http-error", http=403, method=method)
        made = await me.make(member=me.me)
        assert GoalState.FAILED in states(made)
        with me.session() as here:
            recorded = {one.kind for one in here.journal.changes}
            assert all(one.settled for one in here.journal.changes)
        assert recorded == {one.goal.kind for one in made.values() if one.state is MADE}
        user.world.weather.rules.clear()
        made = await me.make(member=me.me)
        assert states(made) <= {THERE, MADE}
        await me.undo()
        assert {**me.state(), "policy": ()} == {**before, "policy": ()}

    live(work)


@pytest.mark.parametrize("kind", ["lost-response", "http-error"])
@pytest.mark.parametrize("method", WRITES)
def test_after_a_cut_or_a_server_error_a_second_run_completes(
    tmp_path: Path, method: str, kind: str
) -> None:
    async def work(user: User) -> None:
        me = SetupUser(user, tmp_path)
        await me.empty_project()
        before = me.state()
        await user.weather(kind, method=method, times=1)
        try:
            made = await me.make(member=me.me)
            assert GoalState.FAILED in states(made)
        except NotReached:
            assert kind == "lost-response"
        with me.session() as here:
            assert [one.settled for one in here.journal.changes].count(False) == 1
        assert states(await me.make(member=me.me)) <= {THERE, MADE}
        with me.session() as here:
            assert all(one.settled for one in here.journal.changes)
        await me.undo()
        assert {**me.state(), "policy": ()} == {**before, "policy": ()}
        assert not any(self_made(one) for one in me.state()["policy"])

    live(work)


def self_made(binding: tuple[str, tuple[str, ...]]) -> bool:
    return binding[0].startswith(("roles/tpu", "roles/iam", "roles/serviceusage"))


class Killed(BaseException):
    """The process ends at once."""


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("number", range(8))
def test_a_kill_at_any_change_loses_nothing(tmp_path: Path, number: int, when: str) -> None:
    """`number`: which change is under way; `when`: whether the cloud has got it."""

    async def work(user: User) -> None:
        me = SetupUser(user, tmp_path)
        await me.empty_project()
        before, seen = me.state(), len(me.writes())

        async def make() -> None:
            await me.make(member=me.me, mosh=True)

        def kill(request: httpx2.Request) -> httpx2.Response | None:
            if len(me.writes()) <= seen + number or Killed in done:
                return None
            done.append(Killed)
            if when == "after":
                me.send(request)
            raise Killed

        done: list[type] = []
        user.wire.instead = kill
        with pytest.raises(Killed):
            await make()
        with me.session() as here:
            assert [one.settled for one in here.journal.changes].count(False) == 1
        if number % 2:
            assert states(await me.make(member=me.me, mosh=True)) <= {THERE, MADE}
        await me.undo()
        assert {**me.state(), "policy": ()} == {**before, "policy": ()}
        assert not any(self_made(one) for one in me.state()["policy"])

    live(work)


def add_rule(me: SetupUser, name: str, **spec: Any) -> None:
    rule = complete_rule(spec)
    me.services.firewalls[name] = Firewall(
        name=name, id=1, created=0.0, network="default", spec=rule
    )


def test_what_others_changed_since_stays(tmp_path: Path) -> None:
    async def work(user: User) -> None:
        me = SetupUser(user, tmp_path)
        await me.empty_project()
        await me.make(way="external", member=me.me)
        me.services.metadata["ssh-keys"] += "\nbob:ssh-rsa CCCC bob\n"
        path = f"compute/v1/projects/demo/global/firewalls/{RULE}"
        await user.ask("PATCH", path, {"sourceRanges": ["198.51.100.0/24"]})
        policy = await user.ask("POST", "v1/projects/demo:getIamPolicy", {})
        kept = [one for one in policy["bindings"] if one["role"] != "roles/tpu.admin"]
        added = {"role": "roles/iam.serviceAccountUser", "members": ["user:bob@example.com"]}
        await user.ask(
            "POST", "v1/projects/demo:setIamPolicy", {"policy": {"bindings": [*kept, added]}}
        )
        with edit_contexts(me.place.folders.config) as content:
            content["contexts"]["demo"]["ways"] = ["internal"]
        await user.ask("POST", f"{SERVICES}/tpu.googleapis.com:disable", {})
        said = [one.sentence for one in await me.undo()]
        assert f"the firewall rule {RULE} stays: somebody has changed it" in said
        assert f"{me.me} does not have roles/tpu.admin any more" in said
        assert "the context demo has another way now" in said
        assert "tpu.googleapis.com is disabled" in said
        keys = "eve:ssh-rsa BBBB eve\nbob:ssh-rsa CCCC bob\n"
        assert me.services.metadata["ssh-keys"] == keys
        assert RULE in me.services.firewalls
        bindings = me.state()["policy"]
        assert ("roles/iam.serviceAccountUser", ("user:bob@example.com",)) in bindings
        assert load_contexts(me.place.folders.config)["contexts"]["demo"]["ways"] == ["internal"]

    live(work)


def test_an_api_in_use_stays_enabled_until_it_is_not(tmp_path: Path) -> None:
    async def work(user: User) -> None:
        me = SetupUser(user, tmp_path)
        await me.empty_project()
        await me.make(member=me.me)
        await user.clock.sleep(10)
        await user.node("n")
        (left,) = [one for one in await me.undo() if one.kept]
        assert left.sentence.startswith("tpu.googleapis.com stays enabled: The service")
        await user.ask("DELETE", "v2/projects/demo/locations/us-central2-b/nodes/n")
        await user.clock.sleep(600)
        (done,) = await me.undo()
        assert (done.sentence, done.undone) == ("Disable tpu.googleapis.com", True)
        assert await me.undo() == []

    live(work)


def test_a_new_address_replaces_the_old_one_in_our_rule(tmp_path: Path) -> None:
    async def work(user: User) -> None:
        me = SetupUser(user, tmp_path)
        me.services.firewalls.clear()
        await me.make(mosh=True)
        moved = await me.survey(sources=["198.51.100.9"])
        assert "lets tcp:22, udp:60000-61000 from 203.0.113.7/32 in now" in moved["firewall"].note
        await me.make(sources=["198.51.100.9"])
        spec = me.services.firewalls[RULE].spec
        assert spec["sourceRanges"] == ["198.51.100.9/32"]
        assert [one["IPProtocol"] for one in spec["allowed"]] == ["tcp", "udp"]
        await me.undo()
        assert me.services.firewalls == {}

    live(work)


@pytest.mark.parametrize(
    ("said", "note"),
    [
        ({"network": "lab"}, "the project has no network lab: there are default"),
        ({"sources": ["198.51.100.9"]}, f"somebody else made or changed the rule {RULE}"),
        ({}, "another rule of default denies it"),
        ({"sources": []}, "name it with --from ADDRESS"),
        ({"network": "own", "way": "internal", "sources": []}, "own has its own address ranges"),
    ],
    ids=str,
)
def test_a_rule_that_would_not_help_is_not_made(
    tmp_path: Path, said: dict[str, Any], note: str
) -> None:
    async def work(user: User) -> None:
        me = SetupUser(user, tmp_path)
        me.services.firewalls.clear()
        path = "compute/v1/projects/demo/global/networks"
        await user.ask("POST", path, {"name": "own", "autoCreateSubnetworks": False})
        add_rule(me, "deny-home", denied=[{"IPProtocol": "tcp"}], sourceRanges=["203.0.113.0/24"])
        ssh = [{"IPProtocol": "tcp", "ports": ["22"]}]
        add_rule(me, RULE, allowed=ssh, sourceRanges=["192.0.2.1/32"])
        if not said:
            del me.services.firewalls[RULE]
        found = (await me.make(**said, keys="node"))["firewall"]
        assert found.state is GoalState.BLOCKED
        assert note in found.note
        assert me.writes() == []

    live(work)


def test_the_way_by_iap_needs_its_api_role_and_range(tmp_path: Path) -> None:
    async def work(user: User) -> None:
        me = SetupUser(user, tmp_path)
        me.services.firewalls.clear()
        await user.ask("POST", f"{SERVICES}/iap.googleapis.com:disable", {})
        me.services.policy = (ProjectBinding(role="roles/editor", members=(me.me,)),)
        me.services.policy = (*me.services.policy, ProjectBinding(
            role="roles/resourcemanager.projectIamAdmin", members=(me.me,)))  # fmt: skip
        made = await me.make(way="iap", sources=[], member=me.me)
        assert made["service iap.googleapis.com"].state is MADE
        assert made["role roles/iap.tunnelResourceAccessor"].state is MADE
        assert me.services.firewalls["herd-iap-default-7kq"].spec["sourceRanges"] == [
            "35.235.240.0/20"
        ]
        assert load_contexts(me.place.folders.config)["contexts"]["demo"]["ways"] == ["iap"]

    live(work)


@pytest.mark.parametrize("way", ["iap", "internal", "jump:ada@bastion"])
def test_a_world_keeps_the_only_way_to_its_hosts(tmp_path: Path, way: str) -> None:
    async def work(user: User) -> None:
        me = SetupUser(user, tmp_path, world=True)
        made = await me.make(way=way, sources=[])
        assert made["way"].state is THERE
        assert made["way"].note.startswith("only in Google Cloud")
        assert load_contexts(me.place.folders.config)["contexts"] == {}

    live(work)


def test_from_inside_the_range_of_automatic_subnetworks_is_enough(tmp_path: Path) -> None:
    async def work(user: User) -> None:
        me = SetupUser(user, tmp_path)
        me.services.firewalls.clear()
        await me.make(way="internal", sources=[])
        assert me.services.firewalls[RULE].spec["sourceRanges"] == ["10.128.0.0/9"]

    live(work)


def test_missing_roles_name_what_to_do(tmp_path: Path) -> None:
    async def work(user: User) -> None:
        me = SetupUser(user, tmp_path)
        me.services.policy = ()
        found = (await me.survey())["role roles/tpu.admin"]
        assert found.state is GoalState.BLOCKED
        assert found.note.startswith("you lack tpu.nodes.create: name your account with --member")
        await user.weather("http-error", http=400, method="projects.testIamPermissions", times=1)
        found = (await me.survey())["role roles/tpu.admin"]
        assert found.state is GoalState.BLOCKED
        assert found.note.startswith("herd can't tell (")
        await user.weather("http-error", http=403, method="projects.getIamPolicy")
        found = (await me.survey(member="ada@example.com"))["role roles/tpu.admin"]
        assert found.state is GoalState.BLOCKED
        assert found.note.endswith(
            "gcloud projects add-iam-policy-binding demo --member=user:ada@example.com"
            " --role=roles/tpu.admin"
        )

    live(work)


def test_the_account_of_nodes_gets_its_roles(tmp_path: Path) -> None:
    async def work(user: User) -> None:
        me = SetupUser(user, tmp_path)
        account = "trainer@demo.iam.gserviceaccount.com"
        failed = await me.make(service_account=account)
        assert failed["role roles/logging.logWriter"].state is GoalState.FAILED
        assert "does not exist; is the account's name right?" in (
            failed["role roles/logging.logWriter"].note
        )
        path = "v1/projects/demo/serviceAccounts"
        await user.ask("POST", path, {"accountId": "trainer"})
        made = await me.make(service_account=account)
        assert made["role roles/monitoring.metricWriter"].state is MADE
        who = f"serviceAccount:{account}"
        assert ("roles/logging.logWriter", (who,)) in me.state()["policy"]
        await me.undo()
        assert not any(who in members for _, members in me.state()["policy"])

    live(work)


def test_keys_are_not_put_where_os_login_ignores_them(tmp_path: Path) -> None:
    async def work(user: User) -> None:
        me = SetupUser(user, tmp_path)
        me.services.metadata["enable-oslogin"] = "TRUE"
        assert "use --keys os-login" in (await me.make())["key"].note
        assert "key" not in await me.make(keys="node")
        assert me.services.metadata == {"enable-oslogin": "TRUE"}

    live(work)


def test_a_key_in_an_os_login_profile(tmp_path: Path) -> None:
    async def work(user: User) -> None:
        me = SetupUser(user, tmp_path)
        await user.ask("POST", f"{SERVICES}/oslogin.googleapis.com:disable", {})
        theirs = "ssh-rsa BBBB"
        me.services.login_keys["ada@example.com"] = (theirs,)
        said = {"keys": "os-login", "member": "ada@example.com"}
        made = await me.make(**said)
        assert made["service oslogin.googleapis.com"].state is MADE
        assert made["role roles/compute.osAdminLogin"].state is MADE
        assert made["os-login"].state is MADE
        assert made["os-login"].note.startswith("log in as ada_example_com: herd context add")
        assert me.services.login_keys == {"ada@example.com": (theirs, KEY)}
        assert states(await me.make(**said)) == {THERE}
        await me.undo()
        assert me.services.login_keys == {"ada@example.com": (theirs,)}
        assert me.services.disabled["oslogin.googleapis.com"] is None
        await me.make(**said)
        me.services.login_keys.clear()
        said_last = [one.sentence for one in await me.undo()]
        assert any("does not have the SSH key any more" in one for one in said_last)

    live(work)


@pytest.mark.parametrize("kind", ["lost-response", "http-error"])
def test_an_imported_key_whose_answer_is_lost_is_known(tmp_path: Path, kind: str) -> None:
    async def work(user: User) -> None:
        me = SetupUser(user, tmp_path)
        said = {"keys": "os-login", "member": "ada@example.com"}
        await user.weather(kind, method="users.importSshPublicKey", times=1)
        try:
            assert (await me.make(**said))["os-login"].state is GoalState.FAILED
        except NotReached:
            assert kind == "lost-response"
        assert states(await me.make(**said)) <= {THERE, MADE}
        await me.undo()
        assert me.services.login_keys.get("ada@example.com", ()) == ()

    live(work)


def test_the_profile_of_another_user_is_theirs(tmp_path: Path) -> None:
    async def work(user: User) -> None:
        me = SetupUser(user, tmp_path)
        await user.weather("http-error", http=403, method="loginProfile.list")
        found = (await me.make(keys="os-login", member="eve@example.com"))["os-login"]
        assert (found.state, found.note) == (
            GoalState.BLOCKED, "only its user may see and change it: that user can run this command"
        )  # fmt: skip

    live(work)


def test_an_item_that_we_added_goes_as_a_whole(tmp_path: Path) -> None:
    async def work(user: User) -> None:
        me = SetupUser(user, tmp_path)
        for before in ({}, {"ssh-keys": ""}, {"ssh-keys": "eve:ssh-rsa B eve\n"}):
            me.services.metadata = dict(before)
            await me.make()
            assert f"ada:{KEY} tpuherd" in me.services.metadata["ssh-keys"]
            await me.undo()
            assert me.services.metadata == before

    live(work)


# ---- the journal ---------------------------------------------------------------------------------


def test_nothing_is_changed_that_can_not_be_recorded(tmp_path: Path) -> None:
    async def work(user: User) -> None:
        me = SetupUser(user, tmp_path)
        await me.empty_project()
        with me.session() as here:
            here.journal.file = tmp_path / "gone" / "demo.json"  # there is no such folder
            ends = [one async for one in make_goals(me.goals(member=me.me), here)]
        failed = [one for one in ends if one.state is GoalState.FAILED]
        assert "can't be written (No such file or directory)" in failed[0].note
        assert all("nothing is changed without a record" in one.note for one in failed[:2])
        assert me.writes() == []

    live(work)


@pytest.mark.parametrize(
    "text",
    ["{", "[]", "{}", '{"version": 2}', '{"version": 1, "changes": [{"kind": "moon"}]}',
     '{"version": 1}'],
)  # fmt: skip
def test_a_damaged_journal_is_a_sentence_and_stays(tmp_path: Path, text: str) -> None:
    async def work(user: User) -> None:
        me = SetupUser(user, tmp_path)
        file = journal_file(me.place)
        file.parent.mkdir(parents=True)
        file.write_text(text)
        for run in (me.make, me.undo, me.survey):
            with pytest.raises(InvalidInput, match="can't be used") as caught:
                await run()
            assert str(file) in caught.value.sentence
            assert "it says what herd made" in caught.value.hint
        assert file.read_text() == text
        assert me.writes() == []

    live(work)


def test_a_damaged_record_is_named_and_the_others_are_undone(tmp_path: Path) -> None:
    async def work(user: User) -> None:
        me = SetupUser(user, tmp_path)
        await me.empty_project()
        await me.make(member=me.me)
        file = journal_file(me.place)
        content = json.loads(file.read_text())
        for change in content["changes"]:
            if change["kind"] == "key":
                change["facts"] = {}
        file.write_text(json.dumps(content))
        results = await me.undo()
        (failed,) = [one for one in results if one.failed]
        assert failed.sentence.endswith("its record is damaged")
        assert me.services.firewalls == {}
        assert len(await me.undo()) == 1

    live(work)


def test_two_setups_do_not_run_at_once(tmp_path: Path) -> None:
    async def work(user: User) -> None:
        me = SetupUser(user, tmp_path)
        with open_journal(me.place).hold():
            await survey_goals(me.goals(), me.reader())
            with pytest.raises(OperationFailed, match="another herd setup"):
                await me.make()
        await me.make()

    live(work)
