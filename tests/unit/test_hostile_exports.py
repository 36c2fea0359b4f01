"""Hostile words in every place of a job, exported and run: they stay texts, whoever reads them.

What is exported runs here with stand-ins of the programs that the other engine brings. The
stand-in of `setsid` notes the command and its variables as they arrive.
"""

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.hostile_words import WORDS
from tests.unit.test_exports import BESIDE, VALUES
from tests.unit.test_hostile_fields import hostile_values
from tpuherd.errors import InvalidInput
from tpuherd.exports.exported_job import ExportedJob
from tpuherd.exports.jobset import JobSetOptions, jobset_manifests, secrets_command
from tpuherd.exports.slurm_script import SlurmOptions, slurm_script
from tpuherd.exports.write_export import export_jobset
from tpuherd.exports.yaml_text import yaml_text
from tpuherd.jobfile.cross_checks import CHECKS_ELSEWHERE
from tpuherd.jobfile.fields import FIELDS
from tpuherd.jobfile.job_spec import JobSpec
from tpuherd.jobfile.read_job import read_document
from tpuherd.jobfile.yaml_with_lines import YamlDocument

RUN = "echo done"
LEAST = {"name": "gpt", "accelerator": "v4-8", "run": RUN}
ACTING = {kind: WORDS[kind] for kind in ("shell", "quotes", "option", "newline", "template", "csv")}
PROGRAMS = {"setup", "run", "sweep"}  #: fields whose words are commands, which may do anything
NOTE = """#!/bin/sh
[ "$1" != bash ] || printf '%s\\0' "$@" >{place}/ran
env -0 >{place}/env
"""
STAND_INS = {
    "srun": '#!/bin/sh\nshift\nSLURM_PROCID=0 exec "$@"\n', "scontrol": "#!/bin/sh\necho n0\n",
    "squeue": "#!/bin/sh\necho RUNNING\n", "sinfo": "#!/bin/sh\n", "scancel": "#!/bin/sh\n",
    "git": '#!/bin/sh\n[ "$1" != clone ] || mkdir herd-code\n',
    "kubectl": "#!/bin/sh\ncat >stdin\n", "setsid": NOTE,
}  # fmt: skip


def hostile_jobs(field: str) -> Iterator[JobSpec]:
    """Jobs with hostile words in this field, as far as they are accepted."""
    seen = []
    for word in ACTING.values():
        for value in hostile_values(VALUES[field], word):
            fields = {**LEAST, **BESIDE.get(field, {}), field: value}
            found = read_document(YamlDocument(value=fields), CHECKS_ELSEWHERE)
            if isinstance(found, JobSpec) and found.run is not None and found not in seen:
                seen.append(found)
                yield found


class Elsewhere:
    """A host of another engine, with nothing on it but stand-ins."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.count = 0
        self.bin = folder / "bin"
        self.bin.mkdir()
        for name, text in STAND_INS.items():
            (self.bin / name).write_text(text.replace("{place}", '"$PLACE"'))
            (self.bin / name).chmod(0o755)

    def run(self, script: str, variables: dict[str, str]) -> tuple[Path, int]:
        """Run it in a folder of its own; return the folder and the status."""
        self.count += 1
        place = self.folder / f"place{self.count}"
        place.mkdir()
        env = {"PATH": f"{self.bin}:{os.environ['PATH']}", "HOME": str(place), "PLACE": str(place),
               "SLURM_JOB_ID": "7", "SLURM_NNODES": "1", **variables}  # fmt: skip
        done = subprocess.run(
            ["bash", "-c", script], cwd=place, env=env, capture_output=True, timeout=60
        )
        assert b"syntax error" not in done.stderr, (script, done.stderr)
        return place, done.returncode


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Elsewhere:
    return Elsewhere(tmp_path_factory.mktemp("elsewhere"))


def assert_it_is_as_written(place: Path, job: JobSpec) -> None:
    """The command and its variables are those of the job, and no word of it was run."""
    variables = dict(
        one.split("=", 1) for one in (place / "env").read_text().split("\0") if "=" in one
    )
    run = job.run or ""
    words = ["bash", "-c", run.strip()] if isinstance(run, str) else [*run]
    if words[0] == "bash":
        assert (place / "ran").read_text().split("\0")[:-1] == words
    assert {name: variables.get(name) for name in job.env} == dict(job.env)
    if job.checkpoint and not job.checkpoint.startswith("~/"):
        assert variables["HERD_CHECKPOINT"] == job.checkpoint
    assert not list(place.rglob("*pwned*"))


def is_harmless(job: JobSpec) -> bool:
    """Whether no command of the user's is in it, which may do anything, or need anything."""
    return not job.setup and not job.secrets


@pytest.mark.parametrize("field", [one for one in FIELDS if one not in PROGRAMS])
def test_no_word_of_a_job_is_run_by_slurm(field: str, host: Elsewhere) -> None:
    told = set()
    for job in hostile_jobs(field):
        script = slurm_script(ExportedJob(job=job), SlurmOptions())
        assert not [one for one in script.splitlines() if re.match("#SBATCH .* ", one)]
        if is_harmless(job) and script not in told:
            told.add(script)
            assert_it_is_as_written(host.run(script, {})[0], job)


@pytest.mark.parametrize("field", [one for one in FIELDS if one not in PROGRAMS])
def test_no_word_of_a_job_is_run_by_kubernetes(field: str, host: Elsewhere) -> None:
    told = set()
    for job in hostile_jobs(field):
        try:
            manifests = jobset_manifests(ExportedJob(job=job), JobSetOptions(image="i", queue="q"))
        except InvalidInput:
            continue
        text = yaml_text(manifests)
        assert list(yaml.safe_load_all(text)) == manifests
        if not is_harmless(job) or text in told:
            continue
        told.add(text)
        [container] = find_pod(manifests[-1])["containers"]
        given = {one["name"]: unescape(one.get("value", "0")) for one in container["env"]}
        script = unescape(container["command"][-1])
        place, _ = host.run(script, {**given, "JOB_COMPLETION_INDEX": "0"})
        assert_it_is_as_written(place, job)


@pytest.mark.parametrize("kind", ["run", "setup"])
@pytest.mark.parametrize("word", ACTING.values(), ids=ACTING)
def test_a_command_arrives_as_one_word(kind: str, word: str, host: Elsewhere) -> None:
    """Its shell may do with it what it likes; the script around it is not changed by it."""
    value: Any = [f"echo {shlex.quote(word)} >said"] if kind == "setup" else word
    for tail in ("", "\nHERD_TASK\n", " # the end", " '"):
        if kind == "setup" and tail == " '":
            continue
        changed = [f"{value[0]}{tail}"] if kind == "setup" else f"{value}{tail}"
        job = read_document(YamlDocument(value={**LEAST, kind: changed}), CHECKS_ELSEWHERE)
        assert isinstance(job, JobSpec)
        script = slurm_script(ExportedJob(job=job), SlurmOptions())
        if kind == "setup" and "HERD_TASK" in tail:
            continue  # no program of this name
        place, _ = host.run(script, {})
        assert_it_is_as_written(place, job)
        if kind == "setup":
            assert (place / "said").read_text() == f"{word}\n"


@pytest.mark.parametrize("source", ["env", "file", "command"])
@pytest.mark.parametrize("word", ACTING.values(), ids=ACTING)
def test_where_a_secret_comes_from_is_not_run(source: str, word: str, host: Elsewhere) -> None:
    value = f"printf %s {shlex.quote(word)} # a secret (" if source == "command" else word
    job = read_document(
        YamlDocument(value={**LEAST, "secrets": {"KEY": {source: value}}}), CHECKS_ELSEWHERE
    )
    assert isinstance(job, JobSpec)
    slurm = slurm_script(ExportedJob(job=job), SlurmOptions())
    place, status = host.run(slurm, {})
    assert not list(place.rglob("*pwned*"))
    assert (status == 0) == (source == "command"), "no secret, no start"
    if source == "command":
        assert f"KEY={word}".rstrip("\n").encode() in (place / "env").read_bytes()
    [line] = [one for one in export_jobset(ExportedJob(job=job), JobSetOptions()).notes
              if "kubectl" in one]  # fmt: skip
    assert secrets_command(job) in line
    place, _ = host.run(secrets_command(job), {})
    assert not list(place.rglob("*pwned*"))


@pytest.mark.parametrize("text", [
    "1e-4", "1E5", "+.5e3", "0o17", "0b12", "09", "1_000", "y", "N", "on", "null", "~", "12:30:45",
    "2001-01-01", "-.inf", "0x1F", ".5", "1.", "", " ", "=", "- a", "a: b", "#a",
])  # fmt: skip
def test_no_value_becomes_a_number_in_kubernetes(text: str) -> None:
    """Its YAML is a later one than PyYAML's, and a variable that is no text is refused there."""
    job = read_document(YamlDocument(value={**LEAST, "env": {"LR": text}}), CHECKS_ELSEWHERE)
    assert isinstance(job, JobSpec)
    written = export_jobset(ExportedJob(job=job), JobSetOptions()).text
    found = re.search(r"name: LR\n +value: (.*)", written)
    assert found and found[1] == f"'{text}'"


def test_a_commit_that_is_an_option_is_refused() -> None:
    repo = {"repo": "https://example.com/x.git@--orphan=x"}
    job = read_document(YamlDocument(value={**LEAST, **repo}), CHECKS_ELSEWHERE)
    assert isinstance(job, JobSpec)
    with pytest.raises(InvalidInput, match="'--orphan=x' is not a commit"):
        export_jobset(ExportedJob(job=job), JobSetOptions())


def find_pod(manifest: dict[str, Any]) -> dict[str, Any]:
    [replicated] = manifest["spec"]["replicatedJobs"]
    pod: dict[str, Any] = replicated["template"]["spec"]["template"]["spec"]
    return pod


def unescape(text: str) -> str:
    """As Kubernetes reads it: there is no variable that a reference could mean."""
    assert not re.search(r"(?<!\$)(\$\$)*\$\(", text), "a reference"
    return re.sub(r"\$\$", "$", text)
