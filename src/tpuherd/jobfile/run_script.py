"""Finds which files of the code commands need, and what can't run, as far as the text shows. Pure.

What is not sure is not found: a job is refused only for what would fail on every host.
"""

import posixpath
import re
import shlex
from collections.abc import Sequence
from itertools import pairwise

from tpuherd.jobfile.bucket_scan import split_folder
from tpuherd.jobfile.job_spec import JobSpec
from tpuherd.jobfile.launch_spec import BEFORE, KNOWN, find_programs

INTERPRETER = re.compile(r"(?:python[0-9.]*|bash|sh)")
#: Prefixes that change neither the folder nor the files.
HARMLESS = frozenset(("set", "export", "ulimit", "echo", "true"))
#: Setup steps of these programs install packages and create no files of the code.
INSTALLING = KNOWN - {"git", "curl", "wget", "cd", "ln", "touch", "mkdir"}
WITH_VALUE = frozenset(("-W", "-X", "-o"))  #: options whose value is the next word


LAUNCHER = "tpuherd_host.torch"  #: runs the script that comes after it
#: Options of pip and uv that name a file.
NAMES_FILE = frozenset(("-r", "--requirement", "--requirements", "-c", "--constraint"))
GLUE = frozenset(("&&", "||", "&>", "2>&1", "2>"))
MEANS_ELSEWHERE = frozenset(("|", ">", ">>", "<", ";", "&"))  #: also words of some programs
WITH_THESE = frozenset(("test", "[", "[[", "expr", "find", "awk", "xargs", "parallel"))


def find_script(job: JobSpec) -> str:
    """Return the script's path in the command's folder; "" if unknown or if setup may create it."""
    if job.run is None or "startup-script" in job.metadata:
        return ""
    if any(map(may_create, job.setup)):
        return ""
    folder, text = split_folder(job.run) if isinstance(job.run, str) else ("", "")
    words = first_command(text) if isinstance(job.run, str) else list(job.run)
    return plain_path(script_argument(words), folder)


def is_run_by_image_python(job: JobSpec) -> bool:
    """Whether the script is run by the Python of the job or of its image."""
    _, text = split_folder(job.run) if isinstance(job.run, str) else ("", "")
    words = first_command(text) if isinstance(job.run, str) else list(job.run or ())
    program = next((word for word in words if word not in BEFORE and "=" not in word), "")
    return program in ("python3", "python") and not job.image


def may_create(step: str) -> bool:
    """Whether a setup step may create files of the code."""
    return ">" in step or not set(find_programs(step)) <= INSTALLING


def find_setup_files(job: JobSpec) -> list[tuple[int, str]]:
    """Return the files that setup steps name, with the number of the step: those that no step
    before it could have made."""
    if "startup-script" in job.metadata:
        return []
    found = []
    for number, step in enumerate(job.setup):
        words = first_command(step)
        named = []
        if not {"pip", "pip3", "uv"}.isdisjoint(words[:4]):
            named = [after for word, after in pairwise(words) if word in NAMES_FILE]
        elif words and words[0] in ("bash", "sh"):
            named = [script_argument(words)]
        for path in map(plain_path, named):
            if path:
                found.append((number, path))
        if may_create(step):
            break
    return found


def shell_operator(words: Sequence[str]) -> str:
    """Return the word of a list that only a shell understands; "" if there is none."""
    program = words[0].rpartition("/")[2] if words else ""
    plain = GLUE if program in WITH_THESE or program in ("bash", "sh") else GLUE | MEANS_ELSEWHERE
    return next((word for word in words if word in plain), "")


def plain_path(path: str, folder: str = "") -> str:
    """Return a path, given from `folder`, in the code; "" if it is elsewhere or a pattern."""
    if not path or path[0] in "/~-" or re.search(r"[$*?{`\[]|://", path):
        return ""
    path = posixpath.normpath(posixpath.join(folder, path))
    return "" if path.startswith("..") or path == "." else path


def first_command(text: str) -> list[str]:
    """Return the words of a plain command; none for anything more complex."""
    for line in re.split(r"&&|\|\||[;|\n]", text.replace("\\\n", " ")):
        try:
            words = shlex.split(line, comments=True)
        except ValueError:
            return []
        if words and words[0] not in HARMLESS:
            return words
    return []


def script_argument(words: Sequence[str]) -> str:
    """Return the interpreter's script, or the program itself if it is a file of the code."""
    rest = [*words]
    while rest and (rest[0] in BEFORE or re.fullmatch(r"\w+=.*", rest[0])):
        rest.pop(0)
    if not rest:
        return ""
    program, *arguments = rest
    if not INTERPRETER.fullmatch(program.rpartition("/")[2]):
        return program if program.startswith("./") else ""
    while arguments and arguments[0].startswith(("-", "+")) and arguments[0] != "-":
        option = arguments.pop(0)
        if option == "-m" and arguments[:1] == [LAUNCHER]:
            arguments.pop(0)
            continue
        if re.fullmatch(r"-[A-Za-z]*[cms]", option):
            return ""
        if option in WITH_VALUE and arguments:
            arguments.pop(0)
    return arguments[0] if arguments else ""
