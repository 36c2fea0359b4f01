"""Jobs as manifests of Kubernetes and as scripts of Slurm."""

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as some
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from tests.unit.test_jobfile_slots import OTHER
from tpuherd.catalogue import accelerators, generations
from tpuherd.errors import InvalidInput
from tpuherd.exports.exported_job import ExportedJob
from tpuherd.exports.field_table import ENGINES, list_losses
from tpuherd.exports.jobset import JobSetOptions, escape_references
from tpuherd.exports.slurm_script import SlurmOptions
from tpuherd.exports.write_export import Export, export_jobset, export_slurm
from tpuherd.jobfile.cross_checks import CHECKS_ELSEWHERE
from tpuherd.jobfile.fields import FIELDS
from tpuherd.jobfile.job_spec import JobSpec
from tpuherd.jobfile.read_job import read_document
from tpuherd.jobfile.yaml_with_lines import YamlDocument

ROOT = Path(__file__).parents[2]
CRDS = Path(os.environ.get("HERD_CRDS", ROOT.parent / "shared" / "crds"))
#: What a value of a field also needs.
BESIDE: dict[str, dict[str, Any]] = {
    "reservation": {"tier": "reserved"},
    "requirements": {"workdir": "."},
    "deadline": {"tier": ["spot", "on-demand"]},
    "data_disks": {"zones": "us-central2-b"},
}
VALUES: dict[str, Any] = {
    **OTHER, "name": "other", "accelerator": ["v4-16", "v4-8"], "reservation": "x",
    "cluster": "ray", "image": "docker://x:1", "requirements": "x", "deadline": "48h", "work": "2h",
    "data_disks": "projects/p/zones/us-central2-b/disks/d", "tier": ["on-demand", "spot"],
    "sweep": None, "retry": {"failures": 9, "preemptions": 9}, "nfs": {"/data": "10.0.0.2:/share"},
}  # fmt: skip


def job(**fields: Any) -> JobSpec:
    page = YamlDocument(value={"name": "gpt", "accelerator": "v4-8", "run": "true", **fields})
    found = read_document(page, CHECKS_ELSEWHERE)
    assert isinstance(found, JobSpec), found
    return found


def write(engine: str, found: JobSpec, **options: Any) -> Export:
    if engine == "jobset":
        return export_jobset(ExportedJob(job=found), JobSetOptions(**options))
    return export_slurm(ExportedJob(job=found), SlurmOptions(**options))


def manifests(found: JobSpec, **options: Any) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(write("jobset", found, **options).text))


def without_run_id(text: str) -> str:
    """A digest of the whole job is in its run's id."""
    return re.sub(r"gpt-[0-9]+-[0-9a-f]{8}", "ID", text)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", FIELDS)
def test_every_field_is_in_the_export_or_named_as_lost(name: str, engine: str) -> None:
    row = ENGINES[engine][name]
    beside = BESIDE.get(name, {})
    if name == "sweep":
        with pytest.raises(InvalidInput, match="is a sweep"):
            write(engine, job(sweep=OTHER["sweep"]))
        return
    assert name in VALUES, f"give {name} a value in VALUES"
    plain, changed = job(**beside), job(**{**beside, name: VALUES[name]})
    before, after = write(engine, plain), write(engine, changed)
    is_lost = name in [one.field for one in after.lost]
    differs = without_run_id(before.text) != without_run_id(after.text)
    assert differs == bool(row.becomes), (before.text, after.text)
    assert differs or is_lost
    if not row.lost:
        assert not is_lost


@pytest.mark.parametrize("engine", ENGINES)
def test_a_plain_job_loses_nothing_and_is_written_the_same_again(engine: str) -> None:
    assert not list(list_losses(job(), engine))
    assert write(engine, job()) == write(engine, job())


def test_a_multislice_job_asks_for_all_hosts_and_chips() -> None:
    [found] = manifests(job(accelerator="v5litepod-32", slices=2, tier="spot"))
    [replicated] = found["spec"]["replicatedJobs"]
    spec = replicated["template"]["spec"]
    pod = spec["template"]["spec"]
    assert (replicated["replicas"], spec["parallelism"], spec["completions"]) == (2, 8, 8)
    assert pod["containers"][0]["resources"] == {"limits": {"google.com/tpu": 4}}
    assert pod["nodeSelector"] == {
        "cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice",
        "cloud.google.com/gke-tpu-topology": "4x8",
        "cloud.google.com/gke-spot": "true",
    }
    env = {one["name"]: one.get("value") for one in pod["containers"][0]["env"]}
    assert env["HERD_WORKERS"] == "16"
    assert env["HERD_COORDINATOR"] == "gpt-0-slice-0-0.gpt-0:8476"


def test_copies_are_jobsets_with_runs_of_their_own() -> None:
    found = manifests(job(copies=2))
    assert [one["metadata"]["name"] for one in found] == ["gpt-0", "gpt-1"]
    ids = re.findall(r"(?m)RUN_ID\n +value: (.*)", write("jobset", job(copies=2)).text)
    assert len(set(ids)) == 2


def test_a_job_of_herd_goes_on_with_the_ids_of_its_runs() -> None:
    known = ExportedJob(job=job(copies=2), run_ids=("gpt-0-aa", "gpt-1-bb"))
    for text in (export_jobset(known, JobSetOptions()).text,
                 export_slurm(known, SlurmOptions()).text):  # fmt: skip
        assert "gpt-0-aa" in text and "gpt-1-bb" in text


@pytest.mark.parametrize(
    ("options", "label"),
    [({"provisioning": "flex-start"}, "flex-start"), ({"provisioning": "queued"}, "queued")],
)
def test_flex_start_replaces_the_tier(options: dict[str, str], label: str) -> None:
    [found] = manifests(job(), **options)
    text = yaml.safe_dump(found)
    assert f"cloud.google.com/gke-{label}: 'true'" in text and "gke-spot" not in text
    assert ("maxRunDurationSeconds" in text) == (label == "queued")


def test_a_preempted_node_counts_only_if_preemptions_are_limited() -> None:
    def policy(**retry: Any) -> Any:
        return manifests(job(retry=retry))[0]["spec"]["failurePolicy"]

    assert policy(failures=5)["maxRestarts"] == 5
    assert "RestartJobSetAndIgnoreMaxRestarts" in [one["action"] for one in policy()["rules"]]
    assert policy(failures=5, preemptions=2)["maxRestarts"] == 7
    assert [one["action"] for one in policy(preemptions=2)["rules"]] == ["FailJobSet"]


@pytest.mark.parametrize("type_", ["v2-8", "v3-32"])
def test_a_type_that_gke_does_not_have_is_refused(type_: str) -> None:
    with pytest.raises(InvalidInput, match=f"GKE has no {type_}") as found:
        write("jobset", job(accelerator=type_))
    assert "v4" in found.value.hint
    assert "--nodes=" in write("slurm", job(accelerator=type_)).text


def test_the_newest_type_which_only_gke_has_can_be_exported() -> None:
    [found] = manifests(job(accelerator="tpu7x-32"))
    assert "gke-tpu-accelerator: tpu7x" in yaml.safe_dump(found)


def test_what_can_not_run_elsewhere_is_refused() -> None:
    page = YamlDocument(value={"name": "gpt", "accelerator": "v4-8"})
    idle = read_document(page, CHECKS_ELSEWHERE)
    assert isinstance(idle, JobSpec)
    for engine in ENGINES:
        with pytest.raises(InvalidInput, match="has no command"):
            write(engine, idle)
    with pytest.raises(InvalidInput, match="too long a name"):
        write("jobset", job(name="a" * 40, accelerator="v4-8192", copies=10_000))


@pytest.mark.parametrize(("engine", "options"), [
    ("jobset", {"image": "a b"}), ("jobset", {"queue": "Q\n"}), ("jobset", {"image": "x\ny: z"}),
    ("slurm", {"partition": "a\n#SBATCH --uid=0"}), ("slurm", {"gres": "tpu 4"}),
])  # fmt: skip
def test_an_option_that_is_no_name_is_refused(engine: str, options: dict[str, str]) -> None:
    with pytest.raises(InvalidInput, match=f"--{next(iter(options))} .* is not "):
        write(engine, job(), **options)


def test_a_queue_of_its_own_has_a_name() -> None:
    found = manifests(job(), with_queue=True)
    assert {one["kind"]: one["metadata"]["name"] for one in found} == {
        "ResourceFlavor": "tpu", "ClusterQueue": "tpu", "LocalQueue": "tpu", "JobSet": "gpt-0",
    }  # fmt: skip
    assert found[-1]["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "tpu"


def test_no_value_of_a_secret_and_no_unset_place_is_hidden() -> None:
    found = write("jobset", job(secrets={"A": {"env": "B"}, "C": {"command": "pass c"}}))
    assert found.text.count("# fill in: ") == 2
    assert "pass c" not in found.text
    assert any(
        """"${B?}" "$(sh -c 'pass c')" | kubectl create secret""" in one for one in found.notes
    )
    filled = write("jobset", job(), image="i", queue="q")
    assert "fill" not in filled.text.lower() and not filled.notes


@given(some.text(alphabet="$()aH{} ", max_size=12))
def test_kubernetes_reads_the_text_that_was_meant(text: str) -> None:
    written = escape_references(text)
    read = re.sub(r"\$(\$|\([^)]*\))", lambda one: "$" if one[1] == "$" else "REPLACED", written)
    assert read == text


def schema_of(name: str, kind: str) -> dict[str, Any]:
    """The schema of a kind, which forbids unknown fields."""
    if not CRDS.is_dir():
        pytest.skip("needs a folder with the CRDs of JobSet and Kueue: HERD_CRDS")
    for file in CRDS.glob("*.yaml"):
        found = yaml.safe_load(file.read_text())
        for version in found["spec"]["versions"]:
            if (f"{found['spec']['group']}/{version['name']}", found["spec"]["names"]["kind"]) == (
                name, kind,
            ):  # fmt: skip
                closed: dict[str, Any] = close_schema(version["schema"]["openAPIV3Schema"])
                return closed
    pytest.fail(f"no schema of {kind} in {name}")


def close_schema(schema: Any) -> Any:
    """Forbid fields that the schema does not name."""
    if isinstance(schema, list):
        return [close_schema(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: close_schema(one) for key, one in schema.items() if key != "default"}
    if "(?" in str(closed.get("pattern", "")):
        del closed["pattern"]  # flags as Go writes them
    if isinstance(closed.get("properties"), dict) and closed.get("type") == "object":
        keeps = closed.get("x-kubernetes-preserve-unknown-fields")
        if not keeps and "additionalProperties" not in closed:
            closed["additionalProperties"] = False
    return closed


FULL = {
    "accelerator": "v5p-32", "slices": 2, "zones": "us-east5-a", "tier": "reserved",
    "reservation": "r", "repo": "https://example.com/x.git@main", "setup": ["pip install a"],
    "run": "cd x\npython3 train.py --lr $LR", "env": {"LR": "0.1"}, "secrets": ["WANDB_API_KEY"],
    "checkpoint": "gs://bucket/gpt", "profiler": True, "nfs": {"/data": "10.0.0.2:/share"},
    "max_lifetime": "3d", "grace": "1m", "service_account": "a@b.c", "labels": {"team": "x"},
}  # fmt: skip


@pytest.mark.parametrize("provisioning", ["", "flex-start", "queued"])
@pytest.mark.parametrize("fields", [{}, FULL])
def test_manifests_fit_the_schemas(fields: dict[str, Any], provisioning: str) -> None:
    for one in manifests(job(**fields), provisioning=provisioning, with_queue=True, queue="q"):
        if one["kind"] == "ServiceAccount":
            continue
        schema = schema_of(one["apiVersion"], one["kind"])
        schema["properties"]["metadata"] = {"type": "object"}
        errors = [e.message for e in Draft202012Validator(schema).iter_errors(one)]
        assert not errors, one["kind"]


@pytest.mark.parametrize("type_", [name for name, one in accelerators().items()
                                   if generations()[one.generation].gke])  # fmt: skip
def test_every_type_of_gke_is_asked_for_by_its_topology(type_: str) -> None:
    [found] = manifests(job(accelerator=type_))
    known, text = accelerators()[type_], yaml.safe_dump(found)
    assert f"gke-tpu-topology: {known.topology}" in text
    assert f"google.com/tpu: {known.chips_per_host}" in text


@pytest.mark.parametrize("fields", [
    {}, FULL | {"workdir": ""} | {"repo": "https://example.com/y"}, {"copies": 3},
    {"run": ["python3", "it's.py", "$HOME", "a b"]}, {"run": "HERD_TASK\nHERD_TASK_\n'"},
    {"env": {"A": "'\"$(x)`\n"}}, {"checkpoint": "~/it's here"},
    {"secrets": {"A": {"file": "~/a b"}, "B": {"command": 'echo "$(date)"'}}},
])  # fmt: skip
def test_every_script_is_shell(fields: dict[str, Any]) -> None:
    found = job(**{name: it for name, it in fields.items() if it != ""})
    script = write("slurm", found).text
    [jobset, *_] = [one for one in manifests(found) if one["kind"] == "JobSet"]
    pod = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    for text in (script, pod["containers"][0]["command"][2].replace("$$", "$")):
        checked = subprocess.run(
            ["bash", "-n"], input=text, text=True, capture_output=True, check=False
        )
        assert (checked.returncode, checked.stderr) == (0, "")
    if isinstance(found.run, tuple):
        assert shlex.join(found.run) in script


def start_script(found: JobSpec, folder: Path, index: int = 1) -> "subprocess.Popen[str]":
    """Start a pod's command as a container would."""
    [manifest] = manifests(found)
    spec = manifest["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    main = spec["containers"][0]
    plain = {one["name"]: one["value"].replace("$$", "$") for one in main["env"] if "value" in one}
    command = [word.replace("$$", "$") for word in main["command"]]
    ours = {"HERD_SLICE": "1", "HERD_RESTARTS": "2", "JOB_COMPLETION_INDEX": str(index)}
    return subprocess.Popen(
        command, env={"PATH": os.environ["PATH"], **plain, **ours}, cwd=folder, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def test_the_command_knows_its_place_and_its_status_is_kept(tmp_path: Path) -> None:
    said = "echo $HERD_WORKER of $HERD_WORKERS $HERD_ATTEMPT $HERD_RESUME $(echo $X); exit 7"
    found = job(accelerator="v4-16", slices=2, run=said, setup="echo ready", env={"X": "$(PATH)"})
    with start_script(found, tmp_path) as pod:
        assert pod.communicate()[0] == "ready\n3 of 4 3 1 $(PATH)\n"
    assert pod.returncode == 7


def test_term_reaches_the_command_alone_and_is_waited_for(tmp_path: Path) -> None:
    said = """trap 'echo saved; exit 75' TERM; echo started; while :; do sleep 0.05; done"""
    with start_script(job(run=said), tmp_path) as pod:
        assert pod.stdout is not None
        assert pod.stdout.readline() == "started\n"
        pod.terminate()
        assert pod.communicate()[0] == "saved\n"
    assert pod.returncode == 75


def test_a_setup_that_fails_ends_the_pod(tmp_path: Path) -> None:
    with start_script(job(run="echo never", setup="false"), tmp_path) as pod:
        assert pod.communicate()[0] == ""
    assert pod.returncode == 1


#: Slurm's programs, in small. `squeue` shows the step to who asks twice; the job runs.
SLURM = {
    "scontrol": 'echo "scontrol $1" >> calls; [ "$1" != show ] || echo n0; {show}',
    "sinfo": "true",
    "squeue": """case "$*" in
*--steps*) [ ! -e asked ] || echo 7.0; touch asked;;
*) echo RUNNING;;
esac""",
    "srun": """trap 'echo step stopped >> calls; exit 75' TERM
echo srun >> calls; echo $$ > step; {step}; while :; do sleep 0.05; done""",
    "scancel": 'echo scancel >> calls; kill "$(cat step)"',
}


@pytest.mark.parametrize(
    ("moment", "calls"),
    [("show", ["scontrol show"]), ("step", ["scontrol show", "srun", "scancel", "step stopped"])],
)
def test_slurm_may_ask_to_stop_before_the_step_is_there(
    tmp_path: Path, moment: str, calls: list[str]
) -> None:
    for name, text in SLURM.items():
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        asks = {"show": "true", "step": "true", moment: 'kill "$(cat batch)"'}
        for word, line in asks.items():
            text = text.replace(f"{{{word}}}", line)
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
    script = f"echo $$ > batch\n{write('slurm', job()).text}"
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    variables = {"PATH": path, "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n0", "SLURM_NNODES": "1"}
    subprocess.run(["bash", "-c", script], env=variables, cwd=tmp_path, check=True)
    assert (tmp_path / "calls").read_text().splitlines() == [*calls, "scontrol requeue"]


@pytest.mark.skipif(not shutil.which("kubectl"), reason="needs kubectl")
def test_kubectl_reads_the_manifests(tmp_path: Path) -> None:
    """`kustomize` is the part of kubectl that needs no cluster."""
    text = write("jobset", job(**FULL), with_queue=True, provisioning="queued", queue="q").text
    (tmp_path / "gpt.yaml").write_text(text)
    (tmp_path / "kustomization.yaml").write_text("resources: [gpt.yaml]\n")
    command = ["kubectl", "kustomize", str(tmp_path)]
    said = subprocess.run(command, text=True, capture_output=True, check=False)
    assert said.returncode == 0, said.stderr
    read, written = (sorted(yaml.safe_load_all(one), key=str) for one in (said.stdout, text))
    assert read == written
