"""Jobs as users submit, change and remove them, in a world with an engine."""

import json
import re
import shutil
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from json_schemas import SCHEMAS

import tpuherd
from tests.conformance.world import until
from tests.integration.engines import Owner

pytestmark = pytest.mark.real


@pytest.fixture(autouse=True)
def clean(user: Owner) -> Iterator[None]:
    """Every test leaves nothing, and it is `down` that proves it."""
    yield
    done = user.herd("down", "--all", "--yes", seconds=120)
    assert done.returncode == 0, done.stderr
    assert user.all_there_is() == []
    # `down` asks the cloud itself; the engine, and with it `ls`, knows after the next survey.
    until(lambda: of_json(user, "ls") == [], "the engine to know it, too", seconds=60)


def of_json(user: Owner, *words: str) -> Any:
    done = user.herd(*words, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    dry = next((f" {one}" for one in ("--dry-run", "--nodes") if one in words), "")
    named = " ".join(words[:2]) if words[0] == "engine" else words[0]
    keys = [f"herd {named}{dry} --json", f"herd {named} NAME --json"]
    jsonschema.validate(found, next(SCHEMAS[key] for key in keys if key in SCHEMAS))
    return found


def bids(user: Owner) -> set[str]:
    """What the cloud has, by its last names."""
    return {name.rpartition("/")[2] for name in user.all_there_is()}


def slot_of(bid: str) -> str:
    """gpt-0 of gpt-0-g3-7kq; an owner may begin with a g, too."""
    found = re.fullmatch(r"(.+)-g\d+-\w+", bid)
    assert found, bid
    return found[1]


@pytest.mark.parametrize(("status", "tries"), [(0, "3"), (3, "0")])
def test_following_shows_the_log_and_returns_the_exit_status(
    user: Owner, status: int, tries: str
) -> None:
    done = user.herd(
        "run", "--name", "gpt", "--accelerator", "v4-8", "--set", f"retry.failures={tries}",
        "--follow", "--", f"echo said-$((1+1)); exit {status}", cwd=user.home / "code", seconds=180,
    )  # fmt: skip
    assert done.returncode == status, done.stderr
    assert "said-2" in done.stdout
    assert "Submitted gpt: v4-8 spot" in done.stderr
    assert "gpt-0: granted in us-central2-b" in done.stderr


def test_without_a_terminal_run_says_that_it_detached_and_how_to_wait(user: Owner) -> None:
    words = ("run", "--name", "gpt", "--accelerator", "v4-8")
    done = user.herd(*words, "--", "echo hi; exit 3", cwd=user.home / "code")
    assert done.returncode == 0
    assert "herd run: detached, because there is no terminal: `herd wait gpt` waits" in done.stderr
    assert "--follow or --wait" in done.stderr
    for quiet in ("--detach", "-q", "--json"):
        assert "detached" not in user.herd(*words, quiet, "--", "echo hi; exit 3").stderr
    gone = ("run", "--name", "gpu", "--accelerator", "v4-8", "--set", "retry.failures=0")
    done = user.herd(*gone, "--wait", "--", "echo out; exit 3", cwd=user.home / "code", seconds=180)
    assert (done.returncode, done.stdout) == (3, "")
    assert "herd wait: gpu-0 gave up" in done.stderr
    until(lambda: not any("gpu-0" in name for name in bids(user)), "its node to go", seconds=60)
    over = user.herd("exec", "gpu", "--", "true")
    assert over.returncode == 4
    assert over.stderr.startswith("herd exec: gpu gave up and its node is deleted")


def test_several_tiers_are_separated_by_commas_and_slices_are_shown(user: Owner) -> None:
    words = ("up", "--name", "ms", "--accelerator", "v4-8,v4-16", "--tier", "spot,on-demand",
             "--zones", "us-central2-b", "--slices", "2")  # fmt: skip
    dry = json.loads(user.herd(*words, "--dry-run", "--json").stdout)
    assert dry["job"]["tier"] == ["spot", "on-demand"]
    assert dry["job"]["accelerator"] == ["v4-8", "v4-16"]
    assert "ms, 2 slices each: " in user.herd(*words, "--dry-run").stdout
    done = user.herd(*words)
    assert "2 slices of v4-8 spot in us-central2-b" in done.stderr
    assert "ms: 2 slices of v4-8 or v4-16 spot or on-demand" in user.herd("status", "ms").stdout
    assert "2 slices" in user.herd("ls").stdout


@pytest.fixture(autouse=True, scope="module")
def code(user: Owner) -> None:
    (user.home / "code").mkdir()
    (user.home / "code/train.py").write_text("print('hello')\n")


def test_ctrl_c_detaches(user: Owner) -> None:
    words = ("run", "--name", "gpt", "--accelerator", "v4-8", "--follow", "--", "sleep 5; echo end")
    begun = len(user.events("attempt.started"))
    with user.begun(*words, cwd=user.home / "code") as process:
        user.happened("attempt.started", many=begun + 1)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "gpt keeps running; `herd logs gpt -f` shows it again" in said
    assert user.herd("wait", "gpt", seconds=180).returncode == 0


def test_json_output_of_commands(user: Owner) -> None:
    words = ("--name", "dev", "--accelerator", "v4-8", "--set", "workdir=")
    assert of_json(user, "up", *words)["did"] == "submitted"
    assert of_json(user, "up", *words)["did"] == "unchanged"
    assert of_json(user, "engine", "plan")["states"].keys() == {"dev-0"}
    assert of_json(user, "set", "dev", "max_cost=5")["needs"] == "nothing"
    assert of_json(user, "stop", "dev") == [{"job": "dev", "changed": True}]
    assert of_json(user, "engine", "plan", "dev")["frozen"] == ""
    assert of_json(user, "resume", "dev") == [{"job": "dev", "changed": True}]
    assert of_json(user, "engine", "adopt")["adopted"] == []
    assert of_json(user, "down", "dev", "--yes")["all_deleted"] is True


def test_down_waits_only_as_long_as_requested_and_says_for_what(user: Owner) -> None:
    words = ("--name", "late", "--accelerator", "v4-8", "--set", "workdir=")
    assert user.herd("up", *words).returncode == 0
    user.happened("bid.ready")
    done = user.herd("down", "late", "--yes", "--timeout", "0s")
    assert (done.returncode, done.stdout) == (124, "")
    assert re.search(r"still deleting late-0-g\d+-\w+.*the engine continues", done.stderr), (
        done.stderr
    )


def test_a_kept_node_gets_other_code_at_once(user: Owner) -> None:
    code = user.home / "other"
    code.mkdir()
    (code / "word.txt").write_text("new")
    assert user.herd("up", "--name", "dev", "--accelerator", "v4-8").returncode == 0
    assert user.herd("wait", "dev", seconds=120).returncode == 0
    (row,) = of_json(user, "ls", "--nodes")
    assert (row["job"], row["type"], row["state"]) == ("dev", "v4-8", "READY")
    done = user.herd("sync", str(code), "dev")
    assert done.returncode == 0 and "on its nodes at once" in done.stdout, done.stderr
    until(
        lambda: "new" in user.herd("exec", "dev", "--", "cat", "herd/dev/word.txt").stdout,
        "the new code on the node",
        seconds=60,
    )
    assert "already" in user.herd("sync", str(code), "dev").stdout


def test_reading_commands_keep_no_engine_alive(user: Owner) -> None:
    until(lambda: of_json(user, "ls") == [], "the jobs of earlier tests to be gone")
    words = ("run", "--name", "gpt", "--accelerator", "v4-8", "--copies", "2", "--dry-run")
    found = of_json(user, *words, "--set", "run=x", "--set", "workdir=")
    assert found["slots"] == ["gpt-0", "gpt-1"]
    assert found["per_hour"]["least"] == pytest.approx(2 * 4 * 0.9215)
    assert found["offers"][0]["zone"] == "us-central2-b"
    withdrawn = user.herd(*words, "--set", "run=x", "--set", "head_start=python")
    assert withdrawn.returncode == 0
    assert "herd run: head_start: python was withdrawn and is ignored: " in withdrawn.stderr
    assert of_json(user, "ls") == []


def test_scaling_removes_the_last_copies_and_touches_no_other(user: Owner) -> None:
    begun = len(user.events("attempt.started"))
    user.job("gpt", "sleep 60", copies=2, accelerator="v4-8")
    user.job("gptx", "sleep 60", accelerator="v4-8")
    user.happened("attempt.started", many=begun + 3)
    refused = user.herd("set", "gpt", "copies=1")
    assert refused.returncode == 2
    assert "1 of its nodes is deleted, with what runs there" in refused.stderr
    assert of_json(user, "set", "gpt", "copies=1", "--yes")["difference"] == ["copies: 2 → 1"]
    until(
        lambda: not any(one.startswith("gpt-1-") for one in bids(user)), "gpt-1 to go", seconds=60
    )
    assert {slot_of(one) for one in bids(user)} == {"gpt-0", "gptx-0"}
    done = user.herd("down", "gpt", "--yes")
    assert done.returncode == 0
    assert done.stdout.startswith("Deleted gpt; nothing is left")
    assert {slot_of(one) for one in bids(user)} == {"gptx-0"}
    assert user.herd("down", "gp", "--yes").returncode == 4
    assert user.herd("stop", "gptx").stdout == "Stopped gptx\n"
    until(lambda: not bids(user), "its node to go", seconds=60)
    assert user.herd("resume", "gptx").stdout == "Resumed gptx\n"
    until(
        lambda: {slot_of(one) for one in bids(user)} == {"gptx-0"},
        "another node",
        seconds=60,
    )


def test_a_lost_store_is_adopted_and_orphans_are_shown(user: Owner) -> None:
    begun = len(user.events("attempt.started"))
    for name in ("mine", "left"):
        user.job(name, "sleep 40; echo end-$HERD_ATTEMPT", accelerator="v4-8")
    user.happened("attempt.started", many=begun + 2)
    user.herd("engine", "stop")
    shutil.rmtree(user.store_folder)
    shown = of_json(user, "gc")
    names = {slot_of(one["name"]) for one in shown["orphans"]}
    assert names == {"mine-0", "left-0"}
    stray = next(one for one in shown["orphans"] if one["name"].startswith("left"))
    assert stray["per_hour"] == pytest.approx(4 * 0.9215)
    assert stray["command"] == f"herd gc {stray['name']}"
    assert user.herd("gc", "mine").returncode == 4
    assert user.herd("gc", stray["name"]).returncode == 2  # there is no terminal to ask
    assert user.herd("gc", stray["name"], "--yes").returncode == 0
    until(lambda: stray["name"] not in bids(user), "it to go", seconds=60)
    assert "mine-0" in user.herd("engine", "adopt").stdout
    assert user.herd("wait", "mine", seconds=180).returncode == 0
    assert not user.events("attempt.launched") or all(
        event.facts["number"] == 1 for event in user.events("attempt.launched")
    )


def test_nodes_of_another_owner_are_left_alone_until_adopted(user: Owner, tmp_path: Path) -> None:
    begun = len(user.events("attempt.started"))
    user.job("gpt", "sleep 60", accelerator="v4-8")
    user.happened("attempt.started", many=begun + 1)
    other = replace(user, home=tmp_path)
    assert of_json(other, "gc")["orphans"] == []
    assert other.herd("down", "--all", "--yes").stdout == "Nothing to delete\n"
    assert bids(user)
    (name,) = bids(user)
    assert other.herd("engine", "adopt", "zzz").returncode == 4
    user.herd("engine", "stop")
    assert of_json(other, "engine", "adopt", name.rpartition("-")[2])["jobs"] == ["gpt"]
    assert [one["job"] for one in of_json(other, "ls")] == ["gpt"]
    assert other.herd("down", "gpt", "--yes").returncode == 0
    assert not bids(user)
    other.leave_all()


def test_jobs_from_python(user: Owner) -> None:
    herd = tpuherd.Herd(environ=user.env)
    job = tpuherd.Job(name="gpt", accelerator="v4-8", run="echo $HERD_SLOT; sleep 1", copies=2)
    assert herd.run(job).did == "submitted"
    assert herd.run(job).did == "unchanged"
    assert herd.change("gpt", max_cost=5).did == "changed"
    with pytest.raises(tpuherd.HerdError, match="1 of its nodes is deleted"):
        herd.scale("gpt", 1)
    with pytest.raises(TimeoutError):
        herd.wait("gpt", timeout=0.0)
    try:
        ended = herd.wait("gpt", timeout=180)
    except TimeoutError:
        raise AssertionError(user.herd("why", "gpt").stdout) from None
    assert ended == 0
    assert [one.job for one in herd.jobs()] == ["gpt"]
    assert herd.status("gpt").slot_details[0].attempts[0].verdict == "success"
    logged = herd.logs("gpt")
    assert {(line.host, line.text) for line in logged if line.port == "stdout"} == {
        ("gpt-0/w0", "0"), ("gpt-1/w0", "1"),
    }  # fmt: skip
    assert "slot.done" in {event.kind for event in herd.events("gpt")}
    assert set(herd.why("gpt").slots) == set(herd.plan("gpt").states) == {"gpt-0", "gpt-1"}
    assert [one.type for one in herd.capacity()] == ["v4-8"]
    assert not herd.gc().orphans and not herd.adopt().adopted
    assert herd.run(job).did == "restarted"
    with pytest.raises(tpuherd.HerdError, match="yes=True"):
        try:
            herd.down("gpt")
        except tpuherd.HerdError as refused:
            assert refused.hint == "pass yes=True to confirm"
            raise tpuherd.HerdError(refused.hint) from refused
    assert herd.down("gpt", yes=True) == ("gpt",)
    assert herd.jobs() == []
    with pytest.raises(tpuherd.HerdError, match="did you mean accelerator"):
        tpuherd.Job(name="gpt", acelerator="v4-8")  # type: ignore[call-arg]


def test_python_works_on_hosts(user: Owner, tmp_path: Path) -> None:
    import asyncio

    (tmp_path / "data.txt").write_text("shipped")
    herd = tpuherd.Herd(environ=user.env)
    herd.up(tpuherd.Job(name="dev", accelerator="v4-16"))
    assert herd.wait("dev", timeout=180) == 0
    shipment = herd.sync(tmp_path, "dev", "data")
    assert shipment.got == ("dev-0/w0", "dev-0/w1")
    done = herd.exec("dev", shell="cat data/data.txt; echo no >&2; exit 3")
    assert done.status == 3
    assert [(one.host, one.status, one.stdout, one.stderr) for one in done.hosts] == [
        ("dev-0/w0", 3, "shipped", "no\n"), ("dev-0/w1", 3, "shipped", "no\n"),
    ]  # fmt: skip
    assert [one.stdout for one in herd.exec("dev/w0", "echo", "a b").hosts] == ["a b\n"]
    assert herd.exec("dev/w0", "sleep", "100", timeout=0.5).status == 124
    assert {line.text for line in herd.logs("dev", attempt=done.id)} == {"shipped", "no"}
    with pytest.raises(tpuherd.HerdError, match="did you mean dev"):
        herd.exec("dex", "true")
    assert herd.sync(tmp_path, "dev").got == ()

    async def work() -> tuple[int, int]:
        async with tpuherd.AsyncHerd(environ=user.env) as inside:
            first = await inside.exec("dev", "true")
            return first.status, (await inside.exec("dev", "false")).status

    assert asyncio.run(work()) == (0, 1)


def test_python_within_a_running_loop(user: Owner) -> None:
    import asyncio

    async def work() -> tuple[str, bool]:
        inside = tpuherd.Herd(environ=user.env)
        job = tpuherd.Job(name="gpt", accelerator="v4-8", run="sleep 9")
        return inside.run(job).did, await tpuherd.AsyncHerd(environ=user.env).stop("gpt")

    assert asyncio.run(work()) == ("submitted", True)


TRAIN = """
import time
from tpuherd_host.report import report
memory = bytearray(200 << 20)
chip = open("/dev/accel2")
for step in range(100_000):
    report(step=step, loss=8.0 / (step + 1))
    time.sleep(0.2)
"""


def test_what_chips_and_scripts_do_is_kept(user: Owner, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    words = ("--name", "seen", "--accelerator", "v4-8", "--workdir", ".", "--detach")
    done = user.herd("run", *words, "--", "python3 train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr

    def series(name: str) -> list[Any]:
        done = user.herd("metrics", "seen", name, "--json")
        return json.loads(done.stdout) if done.returncode == 0 else []

    until(lambda: series("duty") and series("loss"), "samples of both", seconds=90)
    assert user.kill_engine()
    assert user.herd("ls").returncode == 0  # which starts another one
    seen = len(series("loss")[0]["points"])
    until(lambda: len(series("loss")[0]["points"]) > seen, "another report", seconds=60)
    chips = {one["chip"]: [point[2] for point in one["points"]] for one in series("hbm_used")}
    assert sorted(chips) == [0, 1, 2, 3]
    assert max(chips[2]) == pytest.approx((200 << 20) + 12e6, rel=0.1)
    assert max(chips[0]) == 0
    assert {one["points"][-1][2] for one in series("hbm_total")} == {32 << 30}
    (cpu,) = series("cpu")
    assert cpu["host"].startswith("seen-0-g1-") and 0 <= cpu["points"][-1][2] <= 100
    (loss,) = series("loss")
    lows = [point[1] for point in loss["points"]]
    assert lows == sorted(lows, reverse=True) and lows[0] > 0.5
    steps = [point[2] for point in series("step")[0]["points"]]
    assert steps == sorted(steps)
