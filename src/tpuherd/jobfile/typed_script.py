"""What a typed script stands for: fields of a job, and each assumption as a sentence. Pure."""

import posixpath
import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tpuherd.jobfile.environment_key import PROJECT, PROJECT_FILE
from tpuherd.jobfile.fields import NAME_MAX

REQUIREMENTS = "requirements.txt"
NODE_NAME = "dev"  #: of `herd up TYPE`
#: Fields that say themselves what is installed.
INSTALLING = frozenset(("requirements", "image"))


@dataclass(frozen=True, kw_only=True, slots=True)
class ScriptFacts:
    """What is known of a script; paths are absolute and without links."""

    script: str
    stands: str  #: where the user typed it
    root: str  #: the folder to ship
    reason: str  #: why that one, such as: the git repository
    contents: str = ""  #: how much that is: 12 files, 3.4 kB
    doubt: str = ""  #: why the user must agree to ship it
    starts_itself: bool = False  #: it is executable, and says what runs it
    #: By file that may name packages: its tables of TOML.
    packages: Mapping[str, frozenset[str]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class TypedJob:
    """The job that a sentence stands for."""

    document: Mapping[str, Any]
    assumptions: tuple[str, ...]
    guessed_name: bool = False  #: the user may not know that a job of this name exists
    doubt: str = ""


def describe_script(
    facts: ScriptFacts, arguments: Sequence[str], stated: Collection[str], *, install: bool = True
) -> TypedJob:
    """Return the job; the user states these fields, so that nothing is assumed of them."""
    folder = inner_folder(facts)
    document: dict[str, Any] = {}
    said: list[str] = []
    if "name" not in stated:
        document["name"], sentence = choose_name(facts)
        said.append(sentence)
    if "workdir" not in stated:
        document["workdir"] = posixpath.relpath(facts.root, facts.stands)
    much = f": {facts.contents}" if facts.contents else ""
    said.append(f"ships {facts.root}, {facts.reason}{much} (--workdir)")
    if install and not INSTALLING.intersection(stated):
        found, sentence = choose_requirements(facts, folder)
        document |= {field: value for field, value in found.items() if field not in stated}
        said += [sentence] if found else []
    line = shlex.join([*script_words(facts, folder), *arguments])
    document["run"] = line if folder == "." else f"cd {shlex.quote(folder)} && exec {line}"
    said.append(f"runs in {posixpath.normpath(posixpath.join(facts.root, folder))}: {line}")
    return TypedJob(
        document=document,
        assumptions=tuple(said),
        guessed_name="name" not in stated,
        doubt=facts.doubt,
    )


def describe_node(accelerator: str, *, has_name: bool) -> TypedJob:
    """Return the job of `herd up TYPE`."""
    document = {"accelerator": accelerator}
    if has_name:
        return TypedJob(document=document, assumptions=())
    return TypedJob(
        document={"name": NODE_NAME, **document},
        assumptions=(f"is called {NODE_NAME} (--name)",),
        guessed_name=True,
    )


def inner_folder(facts: ScriptFacts) -> str:
    """Return where the command runs: where the user stands, if that is shipped."""
    folder = posixpath.relpath(facts.stands, facts.root)
    return "." if folder == ".." or folder.startswith("../") else folder


def script_words(facts: ScriptFacts, folder: str) -> list[str]:
    """Return the command that runs the script in this folder."""
    path = posixpath.relpath(facts.script, posixpath.join(facts.root, folder))
    if path.lower().endswith(".py"):
        return ["python3", f"./{path}" if path.startswith("-") else path]
    if facts.starts_itself:
        return [path if "/" in path else f"./{path}"]
    return ["bash", f"./{path}" if path.startswith("-") else path]


def choose_name(facts: ScriptFacts) -> tuple[str, str]:
    """Return a name made of folder and script, and the sentence that tells it."""
    inside, _ = posixpath.splitext(posixpath.relpath(facts.script, facts.root))
    parts = [part for part in (posixpath.basename(facts.root), *inside.split("/")) if part]
    whole = "-".join(parts)
    name = legal_name(whole)
    if len(name) > NAME_MAX:
        name = legal_name("-".join((parts[0], parts[-1])))
    if len(name) > NAME_MAX:
        name = legal_name(name[len("job-") - NAME_MAX :])
    why = "after its folder and file" if name == whole else f"as {whole} can't be a name"
    return name, f"is called {name}, {why} (--name)"


def legal_name(text: str) -> str:
    """Return the nearest name that a job may have, of any length."""
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    if not name[:1].isalpha():
        name = f"job-{name}".rstrip("-")
    while re.search(r"-[0-9]+$", name):  # so end names of slots
        name = re.sub(r"-([0-9]+)$", r"\1", name)
    return name


def choose_requirements(facts: ScriptFacts, folder: str) -> tuple[Mapping[str, Any], str]:
    """Return the fields that install what the code says it needs, and the sentence."""
    for path in requirement_places(facts, folder):
        tables = facts.packages.get(path)
        if tables is None:
            continue
        place, name = posixpath.split(path)
        if name == REQUIREMENTS:
            return {"requirements": path}, f"installs {path} (--no-requirements)"
        if "project" not in tables:
            continue
        lock = posixpath.join(place, PROJECT)
        chosen = lock if lock in facts.packages else path
        found: dict[str, Any] = {"requirements": chosen}
        what = f"the packages of {chosen}"
        if "build-system" in tables:
            own = f"./{place}" if place else "."
            found["setup"] = f"pip install --no-deps -e {shlex.quote(own)}"
            what += " and its own package"
        return found, f"installs {what} (--no-requirements)"
    return {}, ""


def requirement_places(facts: ScriptFacts, folder: str) -> Iterator[str]:
    """Yield the files that may name packages: beside the script, where the command runs, above."""
    beside = posixpath.dirname(posixpath.relpath(facts.script, facts.root))
    for place in dict.fromkeys((beside, "" if folder == "." else folder, "")):
        for name in (REQUIREMENTS, PROJECT_FILE):
            yield posixpath.join(place, name)
