"""Finds the buckets that a job names: in its fields, and in the files that its command names."""

import posixpath
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

FieldPath = tuple[str | int, ...]  #: the path of a value: ("env", "DATA"), ("setup", 0)

BUCKET = r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]"
STORAGE = r"gs://|https?://storage\.(?:googleapis|cloud\.google)\.com/"
NAMED = re.compile(rf"(?:{STORAGE})({BUCKET})(?![A-Za-z0-9_{{$*?\[-])")
VARIABLE_PLACE = re.compile(r"gs://\$\{?[A-Za-z_]\w*\}?")
VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))")
ASSIGNED = re.compile(r"(?:^|[\s;&])([A-Za-z_]\w*)=(['\"]?)([^\s'\";&|$]+)\2")
COMMENT = re.compile(r"(?m)^[ \t]*(?:#|//).*$")
AT_HOME = re.compile(r"cd\s*(&&|;|\n)")  #: then paths are relative to the home folder
INTO_FOLDER = re.compile(r"cd ('[^'\n]+'|[\w.][\w./-]*) && ")
WORDS = re.compile(r"[\s'\"=;&|()<>,]+")
MODULE = re.compile(r"(?:^|\s)-m\s+([A-Za-z_][\w.]*)")
FILES_MAX = 40  #: files that one command names
IGNORED = "ignore"  #: the location of a bucket that the job does not use
SKIPPED = frozenset(("buckets",))  #: the field that states locations itself


@dataclass(frozen=True, kw_only=True, slots=True)
class BucketUse:
    """One place of a job that names a bucket."""

    bucket: str
    where: FieldPath  #: the field
    file: str = ""  #: the file that `run` names, with the line: config.yaml:12

    @property
    def is_certain(self) -> bool:
        """Whether the name is meant: program text also contains examples and help."""
        return not re.search(r"\.py:\d+$", self.file)


def scan_fields(content: Mapping[str, Any]) -> Iterator[BucketUse]:
    """Yield each bucket that a job's fields name."""
    variables = known_variables(content)
    for where, text in field_texts(content):
        for bucket in NAMED.findall(expand_variables(text, variables)):
            yield BucketUse(bucket=bucket, where=where)


def checkpoint_bucket(content: Mapping[str, Any]) -> str:
    """Return the bucket that only `checkpoint` names in a job's fields; "" if there is none."""
    found = NAMED.findall(str(content.get("checkpoint") or ""))
    others = {use.bucket for use in scan_fields({**content, "checkpoint": ""})}
    return found[0] if found and found[0] not in others else ""


def scan_file(name: str, text: str, content: Mapping[str, Any]) -> Iterator[BucketUse]:
    """Yield each bucket that a file of the code names, without those in comments."""
    expanded = expand_variables(COMMENT.sub("", text), known_variables(content))
    for line, one in enumerate(expanded.split("\n"), 1):
        for bucket in NAMED.findall(one):
            yield BucketUse(bucket=bucket, where=("run",), file=f"{name}:{line}")


def unresolved_places(content: Mapping[str, Any]) -> list[str]:
    """Return the gs:// places in a job's fields whose bucket only the hosts will know."""
    variables = known_variables(content)
    texts = (expand_variables(text, variables) for _, text in field_texts(content))
    return list(dict.fromkeys(one for text in texts for one in VARIABLE_PLACE.findall(text)))


def known_variables(content: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables whose values the job itself states."""
    env = content.get("env")
    found = {str(key): str(value) for key, value in env.items()} if isinstance(env, Mapping) else {}
    found.setdefault("HERD_CHECKPOINT", str(content.get("checkpoint") or ""))
    for where, text in field_texts(content):
        if where[0] in ("run", "setup"):
            found |= {name: value for name, _, value in ASSIGNED.findall(text)}
    return found


def expand_variables(text: str, variables: Mapping[str, str]) -> str:
    """Put the known values in place of $NAME and ${NAME}; others stay."""

    def value_of(match: re.Match[str]) -> str:
        return variables.get(match[1] or match[2], match[0])

    return VARIABLE.sub(value_of, VARIABLE.sub(value_of, text))


def field_texts(content: Mapping[str, Any]) -> Iterator[tuple[FieldPath, str]]:
    """Yield every text of a job with its path."""
    for name, value in content.items():
        if name not in SKIPPED:
            yield from value_texts((str(name),), value)


def value_texts(where: FieldPath, value: Any) -> Iterator[tuple[FieldPath, str]]:
    if isinstance(value, str):
        yield where, value
    elif isinstance(value, Mapping):
        for key, below in value.items():
            yield from value_texts((*where, str(key)), below)
    elif isinstance(value, list | tuple):
        for place, below in enumerate(value):
            yield from value_texts((*where, place), below)


def candidate_files(content: Mapping[str, Any]) -> list[str]:
    """Return the paths inside the code that the command may name, whether they exist or not."""
    run = content.get("run")
    words = run if isinstance(run, str) else "\n".join(map(str, run or ()))
    text = expand_variables(words, known_variables(content))
    modules = [one.replace(".", "/") for one in MODULE.findall(text)]
    named = [*WORDS.split(text), *(f"{one}.py" for one in modules)]
    found: dict[str, None] = {}
    folder, _ = split_folder(text)
    named += [posixpath.join(folder, word) for word in named if word and folder]
    for word in named:
        path = posixpath.normpath(word) if word else ""
        if path and path[0] not in "/~-$" and not path.startswith("..") and "://" not in word:
            found[path] = None
            if AT_HOME.match(text) and "/" in path:  # such as a link to the code: levanter/conf
                found[path.partition("/")[2]] = None
    return list(found)[: FILES_MAX * 10]


def split_folder(text: str) -> tuple[str, str]:
    """Split `cd exp && command` into the folder and the rest; "" without a plain folder."""
    match = INTO_FOLDER.match(text)
    return (shlex.split(match[1])[0], text[match.end() :]) if match else ("", text)
