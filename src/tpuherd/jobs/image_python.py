"""Says which Python a job's commands will have, and whether that is too old for the script."""

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from tpuherd.catalogue import runtimes
from tpuherd.jobfile.code_calls import process_group_call
from tpuherd.jobfile.environment_key import PROJECT_FILE
from tpuherd.jobfile.job_spec import JobSpec
from tpuherd.jobfile.run_script import find_script
from tpuherd.jobfile.script_python import NeededPython, needed_python, required_by_project
from tpuherd.model.slots_and_plan import Offer

SCRIPT_MAX = 1 << 20
SCRIPTS_MAX = 400
FOREIGN = re.compile(r"\.|venv$|site-packages$")  #: folders of packages, not of the job's code


def python_notes(
    job: JobSpec, offers: Sequence[Offer], base: Path, *, simulated: bool
) -> Iterator[str]:
    """Yield a sentence for each image: its Python, and what follows from it."""
    folder = base / Path(job.workdir).expanduser()
    script = find_script(job) if job.workdir else ""
    if job.workdir:
        yield from torch_notes(job, folder, script)
    if job.image:
        return  # the container has a Python of its own
    needed = find_needed_python(folder, script)
    for version in dict.fromkeys(one.runtime for one in offers):
        image = runtimes().get(version)
        if image is not None:
            yield from image_notes(job, version, image.python, needed)
    if simulated and (job.python or job.requirements or needed):
        yield "hosts of a simulated world have the Python of its machine, whatever their image is"


def torch_notes(job: JobSpec, folder: Path, script: str) -> Iterator[str]:
    """Propose our launcher where the code expects that somebody gives processes their ranks."""
    paths = (one.relative_to(folder) for one in folder.glob("**/*.py"))
    own = (str(one) for one in paths if not any(map(FOREIGN.match, one.parts)))
    texts = {path: read_text(folder / path) for path in (script, *islice(own, SCRIPTS_MAX)) if path}
    where = process_group_call(job, texts)
    if where:
        yield (
            f"{where} calls init_process_group, which needs RANK and WORLD_SIZE:"
            f" run: python3 -m tpuherd_host.torch {script or '-m PACKAGE'} …"
        )


def find_needed_python(folder: Path, script: str) -> tuple[str, NeededPython] | None:
    """Return the file that needs the newest Python, and which that is."""
    found = []
    for name, read in ((script, needed_python), (PROJECT_FILE, required_by_project)):
        text = read_text(folder / name) if name else ""
        needed = read(text) if text else None
        if needed is not None:
            found.append((name, needed))
    return max(found, key=lambda one: one[1].minor, default=None)


def read_text(file: Path) -> str:
    """Return a file's text; "" if it is missing, too long or not text."""
    try:
        return file.read_text(encoding="utf-8") if file.stat().st_size <= SCRIPT_MAX else ""
    except (OSError, UnicodeDecodeError):
        return ""


def image_notes(
    job: JobSpec, version: str, python: str, needed: tuple[str, NeededPython] | None
) -> Iterator[str]:
    has = f"{version} has Python {python}"
    if needed is not None and minor_of(job.python or python) < needed[1].minor:
        file, what = needed
        use = f'set python: "{what.version}"'
        given = f"python is {job.python}" if job.python else has
        yield f"{given}, too old for {file}, which needs {what.version} ({what.why}): {use}"
    if job.python and minor_of(job.python) != minor_of(python):
        older = "older" if minor_of(python) < minor_of(job.python) else "newer"
        yield f"{has}, {older} than python: uv puts Python {job.python} into the environment"


def minor_of(version: str) -> int:
    """11 for 3.11.2"""
    return int(version.split(".")[1])
