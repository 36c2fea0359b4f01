"""Finds which file of the code a command needs, as far as its text shows. Pure."""

import posixpath
import re
import shlex
from collections.abc import Sequence

from tpuherd.jobfile.bucket_scan import split_folder
from tpuherd.jobfile.job_spec import JobSpec
from tpuherd.jobfile.launch_spec import BEFORE, KNOWN, find_programs

INTERPRETER = re.compile(r"(?:python[0-9.]*|bash|sh)")
#: Prefixes that change neither the folder nor the files.
HARMLESS = frozenset(("set", "export", "ulimit", "echo", "true"))
#: Setup steps of these programs install packages and create no files of the code.
INSTALLING = KNOWN - {"git", "curl", "wget", "cd", "ln", "touch", "mkdir"}
WITH_VALUE = frozenset(("-W", "-X", "-o"))  #: options whose value is the next word


def find_script(job: JobSpec) -> str:
    """Return the script's path in the command's folder; "" if unknown or if setup may create it."""
    if job.run is None or "startup-script" in job.metadata:
        return ""
    if any(">" in step or not set(find_programs(step)) <= INSTALLING for step in job.setup):
        return ""
    folder, text = split_folder(job.run) if isinstance(job.run, str) else ("", "")
    words = first_command(text) if isinstance(job.run, str) else list(job.run)
    path = script_argument(words)
    if not path or path[0] in "/~-" or re.search(r"[$*?{`\[]", path):
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
        if re.fullmatch(r"-[A-Za-z]*[cms]", option):
            return ""
        if option in WITH_VALUE and arguments:
            arguments.pop(0)
    return arguments[0] if arguments else ""
