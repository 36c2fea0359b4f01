"""`herd sim` as typed: its output, its refusals, and its exit statuses."""

import json
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.integration.worlds import Running, herd, running, until

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("cli") / "world"
    with running(folder, "--time-scale", "1000") as world:
        for name in ("gpt-0", "gpt-1", "bert"):
            world.create(name)
        until(lambda: set(world.nodes().values()) == {"READY"}, "the nodes to be READY")
        yield world


def sim(world: Running, *words: str) -> tuple[int, str, str]:
    """A command about this world: exit status, stdout, stderr."""
    done = herd("sim", *words, "--state-dir", str(world.folder), home=world.folder.parent)
    return done.returncode, done.stdout, done.stderr


def test_status_shows_addresses_and_contents(world: Running) -> None:
    status, out, err = sim(world, "status")
    assert (status, err) == (0, "")
    assert world.facts["url"] in out
    assert "3 READY" in out
    assert f"port {world.facts['ssh_port']}" in out
    assert "\x1b" not in out


def test_status_as_json_is_world_json_and_numbers(world: Running) -> None:
    status, out, _ = sim(world, "status", "--json")
    found = json.loads(out)
    assert status == 0
    assert found["running"] is True
    assert found["nodes"] == {"READY": 3}
    assert {name: found[name] for name in world.facts} == world.facts


def test_preempt_takes_one_node(world: Running) -> None:
    assert sim(world, "preempt", "gpt-1", "--no-notice") == (0, "us-central2-b/gpt-1 is gone\n", "")
    assert world.nodes()["gpt-1"] == "PREEMPTED"
    assert world.nodes()["gpt-0"] == "READY"
    _, log, _ = sim(world, "log")
    assert "preempted us-central2-b/gpt-1 (no notice)" in log


def test_preempt_of_an_unknown_node_names_the_existing_ones(world: Running) -> None:
    status, out, err = sim(world, "preempt", "gtp-0")
    assert (status, out) == (2, "")
    assert err.startswith(
        "herd sim preempt: no node or host matches 'gtp-0'; did you mean 'gpt-0'?; "
    )
    assert "us-central2-b/bert, us-central2-b/gpt-0" in err
    assert err.count("\n") == 1


def test_preempt_in_another_zone_hits_nothing(world: Running) -> None:
    assert sim(world, "preempt", "bert", "--zone", "us-east1-d")[0] == 2
    assert world.nodes()["bert"] == "READY"


def test_weather_lists_starts_and_ends(world: Running) -> None:
    status, out, _ = sim(world, "weather")
    assert status == 0
    assert "http-error 429 method=nodes.create" in out
    status, out, err = sim(world, "weather", "http-error", "429", "method=nodes.create", "times=1")
    assert (status, err) == (0, "")
    rule = out.split()[1]
    assert rule in sim(world, "weather")[1]
    _, answer = world.ask("POST", "/v2/projects/demo/locations/us-central2-b/nodes?nodeId=x", {})
    assert answer["error"]["code"] == 429
    assert sim(world, "weather", "delay", "0.01")[0] == 0
    assert sim(world, "weather", "capacity", "us-east1-d", "v3-32", "4")[0] == 0
    assert sim(world, "weather", "clear")[0] == 0
    left = json.loads(sim(world, "weather", "--json")[1])
    assert (left["rules"], left["capacity"], left["planned"]) == ([], {}, 0)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["dorught"], "did you mean 'drought'?"),
        (["drought", "mars"], "not 'mars'"),
        (["drought", "us-central2-b", "fro=2h"], "did you mean 'for'?"),
        (["skew", "gpt-0", "soon"], "'seconds' of skew must be a number"),
        (["clear", "delay-99"], "no rule 'delay-99' is in force"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_impossible_weather_is_a_sentence(world: Running, words: list[str], sentence: str) -> None:
    status, out, err = sim(world, "weather", *words)
    assert (status, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1


def test_a_negative_number_is_no_option(world: Running) -> None:
    assert sim(world, "weather", "skew", "gpt-0", "-300")[0] == 0
    assert "behind" in sim(world, "log")[1]


def test_env_as_json(world: Running) -> None:
    named = json.loads(sim(world, "env", "--json")[1])
    assert named["HERD_WORLD"] == str(world.folder)
    assert named["CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU"] == world.facts["url"] + "/"
    assert "HTTPS_PROXY" not in named
    account = json.loads(Path(named["GOOGLE_APPLICATION_CREDENTIALS"]).read_text())
    assert account["token_uri"] == world.facts["url"] + "/token"
    assert named["CLOUDSDK_CORE_ACCOUNT"] == account["client_email"]
    with closing(sqlite3.connect(Path(named["CLOUDSDK_CONFIG"]) / "credentials.db")) as found:
        (signed_in,) = found.execute("SELECT value FROM credentials")
    assert json.loads(signed_in[0]) == account
    proxied = json.loads(sim(world, "env", "--json", "--proxy")[1])
    assert proxied["HTTPS_PROXY"] == f"http://127.0.0.1:{world.facts['tunnel_port']}"
    assert Path(proxied["SSL_CERT_FILE"]).exists()


def test_herd_world_selects_the_world(world: Running) -> None:
    done = herd("sim", "status", "--json", home=world.folder.parent, HERD_WORLD=str(world.folder))
    assert json.loads(done.stdout)["url"] == world.facts["url"]


# -- starting -------------------------------------------------------------------------------------


def test_detach_returns_when_the_world_answers_and_stop_ends_it(tmp_path: Path) -> None:
    place = ["--state-dir", str(tmp_path / "w")]
    start = herd("sim", "start", "--detach", "--json", "--hosts", "none", *place, home=tmp_path)
    assert start.returncode == 0, start.stderr
    facts = json.loads(start.stdout)
    with socket.create_connection(("127.0.0.1", facts["port"]), 5):
        pass
    second = herd("sim", "start", "--detach", "--hosts", "none", *place, home=tmp_path)
    assert second.returncode == 2
    assert f"is in use by the world with pid {facts['pid']}" in second.stderr
    assert second.stderr.count("\n") == 1
    assert herd("sim", "stop", *place, home=tmp_path).returncode == 0
    assert herd("sim", "status", *place, home=tmp_path).returncode == 7
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", facts["port"]), 5)


def test_the_default_world_is_in_xdg_state_home(tmp_path: Path) -> None:
    state = {"XDG_STATE_HOME": str(tmp_path / "state")}
    start = herd("sim", "start", "--detach", "--hosts", "none", home=tmp_path, **state)
    assert start.returncode == 0, start.stderr
    try:
        assert (tmp_path / "state" / "tpuherd" / "world" / "world.json").exists()
        assert herd("sim", "status", home=tmp_path, **state).returncode == 0
    finally:
        herd("sim", "stop", home=tmp_path, **state)


@pytest.mark.parametrize("detach", [[], ["--detach"]], ids=["here", "detached"])
def test_a_port_in_use_is_a_sentence(tmp_path: Path, detach: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        place = ["--state-dir", str(tmp_path / "w"), "--hosts", "none"]
        done = herd("sim", "start", "--port", port, *detach, *place, home=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"herd sim start: port {port} is in use; choose another --port, "
        "or omit it to get a free port\n"
    )


BAD_STARTS = {
    "unknown hosts": (["--hosts", "docker"], "'docker' is not one of"),
    "scale": (["--time-scale", "0"], "--time-scale"),
    "no scenario": (["--scenario", "nowhere.yaml"], "nowhere.yaml"),
    "two storms": (["--weather", "storm", "--scenario", __file__], "can't be combined"),
    "weather": (["--weather", "hail"], "'hail' is not"),
}


@pytest.mark.parametrize("case", BAD_STARTS)
def test_a_failed_start_is_a_sentence(tmp_path: Path, case: str) -> None:
    words, sentence = BAD_STARTS[case]
    done = herd("sim", "start", *words, "--state-dir", str(tmp_path / "w"), home=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_malformed_scenario_is_reported_with_line_and_field(tmp_path: Path) -> None:
    scenario = tmp_path / "bad.yaml"
    scenario.write_text("steps:\n  - {at: 10m, do: drought,\n     zon: us-central2-b}\n")
    done = herd("sim", "start", "--scenario", str(scenario), home=tmp_path)
    assert done.returncode == 2
    assert done.stderr == (
        f"herd sim start: {scenario}, line 3: "
        "'zon' is not an argument of drought; did you mean 'zone'?\n"
    )


def test_a_folder_of_another_version_is_a_sentence(tmp_path: Path) -> None:
    folder = tmp_path / "w"
    folder.mkdir()
    (folder / "lock").touch()
    (folder / "world.json").write_text('{"format": 2}')
    for command in ("start", "status"):
        done = herd("sim", command, "--state-dir", str(folder), home=tmp_path)
        assert done.returncode == 2
        assert "was written by another version (format 2, this one reads 1)" in done.stderr
        assert done.stderr.count("\n") == 1


def test_a_folder_of_another_user_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("dear")
    done = herd("sim", "start", "--state-dir", str(tmp_path), home=tmp_path)
    assert done.returncode == 2
    assert "is not empty and is not the folder of a world" in done.stderr


def test_the_seed_is_chosen_once(tmp_path: Path) -> None:
    folder = tmp_path / "w"
    with running(folder, "--seed", "7") as world:
        world.stop()
    place = ["--state-dir", str(folder), "--hosts", "none"]
    done = herd("sim", "start", "--seed", "8", *place, home=tmp_path)
    assert done.returncode == 2
    assert "has the seed 7, which can't be changed" in done.stderr


def test_a_scenario_is_executed(tmp_path: Path) -> None:
    scenario = tmp_path / "s.yaml"
    scenario.write_text("weather:\n  - {do: http-error, http: 503}\n")
    with running(tmp_path / "w", "--scenario", str(scenario)) as world:
        status, _ = world.ask("GET", "/v2/projects/demo/locations/us-central2-b/nodes")
        assert status == 503
