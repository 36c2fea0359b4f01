"""The words by which a command starts in a container, and what a failed pull means."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.unit.test_jobfile_slots import job
from tests.unit.test_launch_spec import order
from tpuherd.engine.container_images import container_command
from tpuherd.engine.gang_client import command_arguments
from tpuherd.exports.exported_job import ExportedJob
from tpuherd.exports.jobset import JobSetOptions
from tpuherd.exports.write_export import export_jobset
from tpuherd.jobfile.read_job import JobSpec, read_fields
from tpuherd_host.agent.containers.container_words import (
    ContainerPlan,
    HostPlace,
    container_arguments,
    container_variables,
    split_variables,
)
from tpuherd_host.agent.containers.engine_program import ContainerEngine, client_environment
from tpuherd_host.agent.containers.pull_image import explain_pull
from tpuherd_host.agent.environments.installer_output import FAILED, FULL, UNFIT

DIGEST = f"sha256:{'0af9' * 16}"
PLAN = ContainerPlan(image="img:1", names=["LR", "KEY"], mounts=[])
PLACE = HostPlace(
    home="/home/me", user="me", uid=1001, gids=[1001, 44], directory="/home/me/herd/gpt",
    devices=["/dev/accel0"], folders=["/tmp", "/data"], limits={"nofile": (5, 9)},
)  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        "python", "python:3.12", "library/python", "us-docker.pkg.dev/my-project/train/gpt:1",
        "localhost:5000/x_y/z-1:Ver.2", f"ghcr.io/o/r@{DIGEST}", f"x:1@{DIGEST}",
    ],
)  # fmt: skip
def test_an_image_is_what_docker_pull_takes(name: str) -> None:
    assert job(run="x", image=f"docker://{name}").image == f"docker://{name}"
    assert order(run="x", image=f"docker://{name}").image == name


@pytest.mark.parametrize(
    ("image", "says"),
    [
        ("python:3.12", "write docker://python:3.12 for a container"),
        ("tpu-ubuntu2204-base", "or runtime for the image of the TPU VM"),
        ("docker://", "is not the name of an image"),
        ("docker://--privileged", "is not the name of an image"),
        ("docker://x y", "is not the name of an image"),
        ("docker://Upper", "is not the name of an image"),
        ("docker://x@sha256:12", "is not the name of an image"),
        ("docker://" + "x" * 501, "is not the name of an image"),
        ("oci://x", "use docker://NAME"),
        (7, "should be an image such as docker://python:3.12, not 7"),
    ],
)
def test_anything_else_is_refused_with_a_sentence(image: object, says: str) -> None:
    found = read_fields({"name": "gpt", "accelerator": "v4-32", "run": "x", "image": image})
    assert isinstance(found, list)
    assert says in found[0].sentence


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({}, "is what a command runs in: set run"),
        ({"run": "x", "cluster": "ray"}, "cluster and image can't be combined"),
        ({"run": "x", "python": "3.11"}, "python and image can't be combined"),
        ({"run": "x", "requirements": "r.txt", "workdir": "."}, "requirements and image can't be"),
    ],
)
def test_what_does_not_go_together(fields: Mapping[str, Any], says: str) -> None:
    found = read_fields({"name": "gpt", "accelerator": "v4-32", "image": "docker://x", **fields})
    assert isinstance(found, list)
    assert [says in one.sentence for one in found] == [True]


def test_the_hosts_words_have_names_of_variables_and_no_values() -> None:
    spec = order(run="train | tee x", image="docker://img:1", nfs={"/d": "1.2.3.4:/d"},
                 checkpoint="/mnt/ckpt")  # fmt: skip
    words = container_command(spec, {"KEY": "s3cret", "LR": "0.1"})
    assert words[:3] == ["$PYTHON", "$AGENT", "container"]
    assert words[4:] == ["train | tee x"]
    plan = {"image": "img:1", "names": ["KEY", "LR"], "mounts": ["/d", "/mnt/ckpt"], "shell": True}
    assert json.loads(words[3]) == plan
    assert command_arguments(spec, {"KEY": "s3cret", "LR": "0.1"}) == {"argv": words}


def test_the_container_is_the_host_but_for_its_files() -> None:
    words = container_arguments(PLAN, PLACE, "herd-gpt-0", ["ODD"], ["python3", "train.py"])
    assert words[0] == "run"
    assert words[-3:] == ["--entrypoint=python3", "img:1", "train.py"]
    assert {
        "--rm", "--init", "--name=herd-gpt-0", "--pull=never", "--privileged", "--network=host",
        "--ipc=host", "--log-driver=none", "--user=1001:1001", "--group-add=44",
        "--ulimit=nofile=5:9", "--volume=/home/me:/home/me", "--volume=/tmp:/tmp",
        "--volume=/data:/data", "--volume=/dev/accel0:/dev/accel0", "--workdir=/home/me/herd/gpt",
        "--env-file=/dev/stdin", "--env=ODD",
    } <= set(words)  # fmt: skip
    rootless = container_arguments(PLAN, PLACE._replace(rootless=True), "x", [], ["true"])
    assert "--userns=keep-id" in rootless
    assert not any(word.startswith("--group-add") for word in rootless)


def test_text_is_for_the_images_shell_and_a_root_folder_is_never_mounted() -> None:
    words = container_arguments(
        PLAN._replace(shell=True), PLACE._replace(home="/"), "x", [], ["a | b"]
    )
    assert "--entrypoint=sh" in words
    assert words[-1] == "a | b"
    assert "--volume=/:/" not in words


def test_variables_of_the_job_and_of_herd_reach_it_and_no_others() -> None:
    login = {"PATH": "/usr/bin", "LD_PRELOAD": "x.so", "HOME": "/home/me", "https_proxy": "p"}
    ours = {"HERD_WORK": "gpt-0-a1-x", "LR": "0.1", "KEY": "k"}
    found = container_variables(PLAN, PLACE, {**login, **ours, "PYTHONPATH": "/a/agent.pyz:/own"})
    assert found == {
        **ours, "HOME": "/home/me", "USER": "me", "LOGNAME": "me", "https_proxy": "p",
        "PYTHONNOUSERSITE": "1", "PYTHONPATH": "/a/agent.pyz",
    }  # fmt: skip
    own = PLAN._replace(names=["PATH", "HOME", "PYTHONPATH"])
    found = container_variables(own, PLACE, {**login, "PYTHONPATH": "/a/agent.pyz:/own"})
    assert (found["PATH"], found["PYTHONPATH"]) == ("/usr/bin", "/a/agent.pyz:/own")


def test_variables_that_do_not_fit_on_a_line_are_passed_by_name() -> None:
    variables = {
        "A": "a 'b' #c ",
        "B": "1\n2",
        "C": "x" * 40_000,
        "D": "",
        "E": "\udcff",
        "F": "\r",
    }
    text, passed = split_variables(variables)
    assert text == "A=a 'b' #c \nD=\n"
    assert passed == ["B", "C", "E", "F"]


def test_the_engine_gets_the_logins_variables_and_no_mark() -> None:
    environ = {"HOME": "/h", "KEY": "k", "HERD_WORK": "w", "DOCKER_HOST": "d", "PATH": "/job"}
    found = client_environment(environ, ["KEY", "PATH"])
    assert {"KEY", "HERD_WORK"}.isdisjoint(found)
    assert (found["DOCKER_HOST"], "/job" in found["PATH"]) == ("d", False)


def test_sudo_keeps_what_is_passed_by_name() -> None:
    engine = ContainerEngine("docker", "/usr/bin/docker", True, "", ("--config", "/h/.docker"))
    words = engine.words("run", variables=["A", "B"])
    assert words == [
        "sudo", "-n", "--preserve-env=A,B", "/usr/bin/docker", "--config", "/h/.docker", "run",
    ]  # fmt: skip
    assert engine._replace(sudo=False, options=()).words("ps") == ["/usr/bin/docker", "ps"]


@pytest.mark.parametrize(
    ("line", "status", "says"),
    [
        ("Error response from daemon: manifest for x:9 not found: manifest unknown: gone", UNFIT,
         "x:9 can't be pulled: manifest for x:9 not found: manifest unknown: gone"),
        ("Error: initializing source docker://x:9: reading manifest 9 in r/x: name unknown", UNFIT,
         "x:9 can't be pulled: initializing source"),
        ("Error response from daemon: pull access denied for x, may require 'docker login'", UNFIT,
         "log in to its registry in setup"),
        ("Error: dial tcp 127.0.0.1:5999: connect: connection refused", FAILED,
         "x:9 can't be pulled: dial tcp 127.0.0.1:5999: connect: connection refused"),
        ("failed to register layer: write /x: no space left on device", FULL,
         "the disk is full: x:9 can't be pulled"),
        ("", FAILED, "the engine printed nothing"),
    ],
)  # fmt: skip
def test_a_pull_that_fails_has_a_sentence_and_says_whether_to_try_again(
    line: str, status: int, says: str
) -> None:
    found = explain_pull("x:9", ["Trying to pull x:9...", line] if line else [])
    assert says in found["sentence"]
    assert found["status"] == status


def test_kubernetes_gets_the_same_image() -> None:
    spec = job(run="x", accelerator="v5litepod-16", image="docker://us-docker.pkg.dev/p/r/gpt:1")
    assert isinstance(spec, JobSpec)
    exported = ExportedJob(job=spec, run_ids=("gpt-0-x",))
    made = export_jobset(exported, JobSetOptions(queue="q"))
    assert "us-docker.pkg.dev/p/r/gpt:1" in made.text
    assert made.notes == ()
    other = export_jobset(exported, JobSetOptions(queue="q", image="other:2"))
    assert "other:2" in other.text
    assert "gpt:1" not in other.text
