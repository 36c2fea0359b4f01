"""`herd run SCRIPT`: turns a typed sentence into the job that it stands for, and shows that."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tpuherd.catalogue import accelerators
from tpuherd.cli.job_options import JobArguments
from tpuherd.errors import HerdError, InvalidInput
from tpuherd.jobfile.fields import FIELDS
from tpuherd.jobfile.grants import Allowance
from tpuherd.jobfile.typed_script import TypedJob, describe_script
from tpuherd.jobs.script_folder import look_at_script
from tpuherd.settings import project_access, project_settings

EXAMPLES = ("v2-8", "v4-8", "v5litepod-8")


def expand_script(
    said: JobArguments, folder: Path, environ: Mapping[str, str], world: Path | None = None
) -> tuple[JobArguments, TypedJob]:
    """Return the arguments with the job's document in place of the script."""
    script, stated = said.script or "", stated_fields(said)
    if "repo" in stated:
        hint = "to run a script of a repository: herd run --name NAME --repo URL … -- COMMAND"
        raise InvalidInput("a script is shipped with its folder, not from --repo", hint=hint)
    workdirs = [
        *(said.fields.get("workdir") or ()),
        *(word.partition("=")[2] for word in said.settings if word.startswith("workdir=")),
    ]
    workdir = workdirs[-1] if workdirs else None
    facts = look_at_script(script, folder, workdir, environ)
    typed = describe_script(facts, said.command, stated, install=said.installs)
    if "accelerator" not in stated:
        raise missing_accelerator(script, environ, world)
    return replace(said, script=None, command=(), document=typed.document), typed


def stated_fields(said: JobArguments) -> frozenset[str]:
    """Return the fields that options set."""
    names = {name for name, values in said.fields.items() if values}
    return frozenset(names | {word.partition("=")[0].partition(".")[0] for word in said.settings})


def missing_accelerator(script: str, environ: Mapping[str, str], world: Path | None) -> HerdError:
    """Name what the grants have, or examples."""
    try:
        place = project_access.resolve_access(environ, world=world)
        allowed = project_settings.load_allowance(
            place.folders.config, world=place.world, project=place.project
        )
    except HerdError:  # reported when there is something to submit
        allowed = Allowance()
    granted = granted_types(allowed)
    hint = f"herd run {script} --accelerator {granted[0] if granted else EXAMPLES[1]}"
    if granted:
        return InvalidInput(f"say which TPU: your grants have {', '.join(granted)}", hint=hint)
    examples = f"{', '.join(EXAMPLES[:-1])} or {EXAMPLES[-1]}"
    return InvalidInput(f"say which TPU, such as {examples} (`herd types` lists all)", hint=hint)


def granted_types(allowed: Allowance) -> list[str]:
    """Return the types of the grants; of a generation the smallest and the largest."""
    found: dict[str, None] = {}
    for grant in allowed.grants:
        fit = [
            one.type
            for one in accelerators().values()
            if grant.covers_node(grant.zone, one, grant.tier)
        ]
        found |= dict.fromkeys((*fit[:1], *fit[-1:]))
    return list(found)


def job_file_text(document: Mapping[str, Any]) -> str:
    """Return the job file of a document, fields in the order of the reference."""
    ordered = {name: document[name] for name in FIELDS if name in document}
    import yaml  # slow to import

    return yaml.safe_dump(ordered, sort_keys=False, allow_unicode=True, width=10_000)


def save_job_file(document: Mapping[str, Any], name: str, folder: Path) -> str:
    """Write the job file, from which its workdir is found; return a sentence."""
    file = folder / Path(name).expanduser()
    shipped = folder / str(document.get("workdir", "."))
    text = job_file_text({**document, "workdir": relative_path(shipped, file.parent)})
    try:
        if file.exists() and file.read_text(encoding="utf-8") != text:
            raise InvalidInput(f"{name} exists already", hint="choose another name for --save")
        file.write_text(text, encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not a text file"
        raise InvalidInput(f"{name} can't be written: {reason}") from error
    return f"wrote {name}, which stands for the same: herd run {name}"


def relative_path(path: Path, folder: Path) -> str:
    """Return the path as seen from the folder."""
    path, folder = path.expanduser().resolve(), folder.resolve()
    if not path.is_relative_to(folder) and not folder.is_relative_to(path):
        return str(path)
    down = path.is_relative_to(folder)
    return (
        str(path.relative_to(folder))
        if down
        else "/".join(".." for _ in folder.relative_to(path).parts)
    )
