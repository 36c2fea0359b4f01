"""Every block of code in the documentation is run by a test, is parsed here, or has a reason."""

import json
import re

import pytest
import yaml

from tests.integration.test_docs_pages import PAGES as EXAMPLES
from tests.rules.test_docs import PAGES, ROOT
from tpuherd.jobfile.fields import FIELDS

#: Languages whose blocks show what a program prints, or what a mail says.
OUTPUT = {"text", "mail"}
SHELL = {"sh", "bash"}
BLOCK = re.compile(r"^ *```(\w*)[^\n]*\n(.*?)^ *```$", re.M | re.S)
#: The test that runs all shell blocks of a page as written.
RUN = {
    "docs/tutorial.md": "integration/test_docs_run.py",
    "docs/howto/google.md": "integration/test_docs_run.py",
    **{f"docs/{page}.md": "integration/test_docs_pages.py" for page in EXAMPLES},
}
GOOGLE = "it needs a Google Cloud project; its commands are parsed"
JOB = "its jobs stand for the reader's own; its commands are parsed, and tests of each run others"
TOOL = "it needs programs or accounts that a test machine lacks; its commands are parsed"
#: Why the shell blocks of the other pages are not run as written.
NOT_RUN = {
    "README.md": "its job runs in integration/test_docs_run.py; the rest is the tutorial's",
    "CONTRIBUTING.md": "integration/test_jobs_life.py does the same and waits for each step",
    "docs/howto/another-machine.md": "integration/test_another_machine.py does it in two homes",
    "docs/howto/buckets.md": GOOGLE,
    "docs/howto/check.md": JOB,
    "docs/howto/data.md": GOOGLE,
    "docs/howto/engine.md": TOOL,
    "docs/howto/environments.md": JOB,
    "docs/howto/errors.md": JOB,
    "docs/howto/exec-and-sync.md": JOB,
    "docs/howto/gcloud.md": "integration/test_clients_gcloud.py runs gcloud in a world",
    "docs/howto/cost.md": JOB,
    "docs/howto/lab.md": "conformance/test_postgres_store.py does it from Python",
    "docs/howto/install.md": "integration/test_install.py installs the wheel on each Python",
    "docs/howto/jobs.md": JOB,
    "docs/howto/kubernetes.md": TOOL,
    "docs/howto/map.md": JOB,
    "docs/howto/nfs.md": JOB,
    "docs/howto/notify.md": TOOL,
    "docs/howto/open.md": TOOL,
    "docs/howto/page.md": TOOL,
    "docs/howto/performance.md": JOB,
    "docs/howto/ray.md": JOB,
    "docs/howto/containers.md": JOB,
    "docs/howto/real-project.md": GOOGLE,
    "docs/howto/recipes.md": JOB,
    "docs/howto/scenarios.md": "its trace runs in integration/test_docs_run.py",
    "docs/howto/servers.md": TOOL,
    "docs/howto/setup.md": GOOGLE,
    "docs/howto/slurm.md": "integration/test_slurm.py runs exported scripts on Slurm",
    "docs/howto/ssh.md": TOOL,
    "docs/howto/sweeps.md": JOB,
    "docs/howto/training.md": JOB,
    "docs/howto/upgrade.md": "it installs another version",
    "docs/howto/watching.md": JOB,
    "docs/howto/your-launch-script.md": TOOL,
    "docs/howto/your-own-script.md": "unit/test_own_script_page.py runs its Python",
    "docs/reference/checkpoints.md": JOB,
    "docs/reference/weather.md": "its lines are parsed; simulated/test_weather_effects.py strikes",
    "bench/lab/README.md": "it takes minutes; simulated/test_benchmark_lab.py runs small sets",
    "examples/recipes/README.md": JOB,
}


def blocks(*languages: str) -> list[tuple[str, str]]:
    """The page and the text of each block in one of these languages."""
    return [
        (str(page.relative_to(ROOT)), text)
        for page in PAGES
        for language, text in BLOCK.findall(page.read_text())
        if language in languages
    ]


def test_every_block_names_its_language() -> None:
    known = OUTPUT | SHELL | {"yaml", "json", "python"}
    found = [
        f"{page.relative_to(ROOT)}: ```{language} {text[:40]!r}"
        for page in PAGES
        for language, text in BLOCK.findall(page.read_text())
        if language not in known
    ]
    assert found == [], f"write one of {sorted(known)} after the ```: {found}"


def test_shell_blocks_are_run_or_have_a_reason() -> None:
    pages = {page for page, _ in blocks(*SHELL)}
    new, old = sorted(pages - set(RUN) - set(NOT_RUN)), sorted(set(NOT_RUN) - pages)
    assert new == [], f"test_doc_blocks.py: name the test of {new} in RUN, or the reason in NOT_RUN"
    assert old == [], f"test_doc_blocks.py: {old} have no shell blocks any more; remove their rows"
    both = sorted(set(NOT_RUN) & set(RUN))
    assert both == [], f"test_doc_blocks.py: {both} are in RUN and NOT_RUN; remove one row"
    for where in [*RUN.values(), *re.findall(r"\w+/test_\w+\.py", " ".join(NOT_RUN.values()))]:
        is_there = (ROOT / "tests" / where).is_file()
        assert is_there, f"test_doc_blocks.py: tests/{where} is gone; name the test of today"


@pytest.mark.parametrize(("page", "text"), blocks("python"))
def test_python_compiles(page: str, text: str) -> None:
    compile(text, page, "exec", dont_inherit=True)


@pytest.mark.parametrize(("page", "text"), blocks("json"))
def test_json_is_json(page: str, text: str) -> None:
    assert json.loads(text), f"{page}: a block of JSON says nothing; fill or remove it"


@pytest.mark.parametrize(("page", "text"), blocks("yaml"))
def test_yaml_is_yaml_and_jobs_have_known_fields(page: str, text: str) -> None:
    content = yaml.safe_load(text)
    if isinstance(content, dict) and "accelerator" in content:
        unknown = set(content) - set(FIELDS) - {"sweep", "items"}
        assert not unknown, f"{page}: a job has no field {sorted(unknown)}; correct the block"
