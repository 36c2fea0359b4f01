"""Collects what `herd run` on another machine needs: job file, code and secrets."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tpuherd.cli.ask_user import TerminalPrompter
from tpuherd.cli.job_options import read_job_input
from tpuherd.cli.main import herd
from tpuherd.cli.map_submission import MapInput
from tpuherd.cli.parsed_command import ParsedCommand
from tpuherd.cli.submit_job import RunOptions, agree_typed
from tpuherd.cli.typed_run import expand_script, job_file_text
from tpuherd.commands.console import Console
from tpuherd.commands.terminal_facts import choose_colour
from tpuherd.errors import InvalidInput
from tpuherd.exit_status import ABORTED
from tpuherd.jobfile.fields import SECRETS
from tpuherd.jobfile.notify_fields import notify_secrets
from tpuherd.jobfile.read_job import JobSpec, read_fields
from tpuherd.jobs import secret_values, wandb_key
from tpuherd.jobs import via_parcel as along
from tpuherd.jobs.code_transfer import snapshot_contents, snapshot_entries
from tpuherd.jobs.upload_consent import ask_upload_consent
from tpuherd.model.slots_and_plan import Goal
from tpuherd.settings.folders import resolve_folders
from tpuherd.sync.snapshot_store import Archive, open_archive
from tpuherd.sync.take_snapshot import Snapshot, snapshot_folder

#: Returns which of these contents the other machine lacks.
FindMissing = Callable[[Iterable[bytes]], frozenset[bytes]]
SENTENCE = "job/sentence.yaml"  #: the job that a typed script stands for
LITTLE = 1 << 17  #: less code than this is sent without asking what is missing


def prepare_upload(
    arguments: list[str], environ: Mapping[str, str], lacking: FindMissing
) -> tuple[list[str], dict[str, bytes]] | int:
    """Return the arguments for the other machine and the files to upload; or an exit status."""
    command = herd.main(list(arguments), prog_name="herd", standalone_mode=False)
    if not isinstance(command, ParsedCommand):
        return 0  # it was help
    asked = getattr(command.work, "args", (None,))[0]
    assert isinstance(asked, RunOptions | MapInput)
    return asyncio.run(gather_upload(asked, list(arguments), environ, lacking))


async def gather_upload(
    asked: RunOptions | MapInput, words: list[str], environ: Mapping[str, str], lacking: FindMissing
) -> tuple[list[str], dict[str, bytes]] | int:
    """Do so in a loop. Mistakes in the job are reported by the other machine."""
    here = Path.cwd()
    bundle: dict[str, bytes] = {"job/said": "\0".join(words).encode()}
    if isinstance(asked, RunOptions) and asked.said.script is not None:
        words = script_words(words, asked.said.script)
        expanded = await expand_script_here(asked, here, environ)
        if expanded is None:
            return ABORTED
        asked = expanded
        bundle[SENTENCE] = job_file_text(asked.said.document or {}).encode()
        bundle |= {along.GUESSED: b""} if asked.typed and asked.typed.guessed_name else {}
    page, base = read_job_input(asked.said, here)
    if asked.said.file is not None:
        file = here / Path(asked.said.file).expanduser()
        bundle[f"job/{file.name}"] = file.read_bytes()
        words[words.index(asked.said.file)] = f"job/{file.name}"
    if isinstance(asked, MapInput) and asked.items != "-":
        add_items(asked.items, words, bundle)
    if not isinstance(page.value, dict):
        return words, bundle
    raw: dict[str, Any] = page.value
    bundle |= await gather_secrets(asked, raw, base, environ)
    workdir = raw.get("workdir")
    if not isinstance(workdir, str) or not workdir or raw.get("repo"):
        return words, bundle
    folder = base / Path(workdir).expanduser()
    if not folder.is_dir():
        raise InvalidInput(f"workdir: {workdir} is not a folder")
    bundle[along.SNAPSHOT] = b"-"  # a dry run takes none
    if not asked.dry:
        archive = open_archive(resolve_folders(environ).state)
        snapshot = await take_with_consent(
            partial(snapshot_folder, folder, archive, environ), archive, asked, environ
        )
        if snapshot is None:
            return ABORTED
        only: Callable[[bytes], bool] = bool
        if snapshot.size > LITTLE:
            only = lacking(snapshot_contents(snapshot.id, archive)).__contains__
        bundle |= dict(snapshot_entries(snapshot.id, archive, only=only))
        bundle[along.SNAPSHOT] = snapshot.id.encode()
    return words, bundle


async def gather_secrets(
    asked: RunOptions | MapInput, raw: Mapping[str, Any], base: Path, environ: Mapping[str, str]
) -> dict[str, bytes]:
    """Return the values of the job's secrets, and why others are missing."""
    named = SECRETS.read(raw["secrets"], lambda *_: None) if raw.get("secrets") else None
    named = (*(named or ()), *notify_secrets(raw.get("notify")))
    server = secret_values.wandb_server(raw.get("env"))
    values, missing = await secret_values.collect_secrets(named, base, environ, server=server)
    key = await find_wandb_key(asked, raw, base, environ)
    values |= key.secrets
    missing |= {secret_values.WANDB_KEY: key.mistake} if key.mistake else {}
    sent = {f"{along.SECRETS}/{name}": text.encode() for name, text in values.items()}
    return sent | {f"{along.MISSING}/{name}": text.encode() for name, text in missing.items()}


async def find_wandb_key(
    asked: RunOptions | MapInput, raw: Mapping[str, Any], base: Path, environ: Mapping[str, str]
) -> wandb_key.KeyForCode:
    """Return the user's key of W&B for code that uses it, or why it is missing. That of a
    repository is read by the other machine."""
    document = dict(raw)
    if isinstance(asked, MapInput) and asked.said.command:
        document["run"] = list(asked.said.command)
    job = read_fields(document)
    if not isinstance(job, JobSpec) or (isinstance(asked, RunOptions) and asked.goal != Goal.RUN):
        return wandb_key.KeyForCode()
    if job.repo:
        return await wandb_key.key_in_advance(job, environ)
    folder = base / Path(job.workdir).expanduser() if job.workdir else None
    found = await wandb_key.find_key(job, wandb_key.read_folder(folder), environ, by_hand=False)
    if found.note:
        console = Console((0, 1, 2), Path.cwd(), environ, colour=choose_colour(environ))
        try:
            await console.print_notice(f"herd: {found.note}")
            await console.flush()
        finally:
            console.close()
    return found


async def expand_script_here(
    asked: RunOptions, here: Path, environ: Mapping[str, str]
) -> RunOptions | None:
    """Turn a typed script into a job, and say what is assumed; None: the user declined."""
    console = Console((0, 1, 2), here, environ, colour=choose_colour(environ))
    try:
        said, typed = expand_script(asked.said, here, environ)
        asked = replace(asked, said=said, typed=typed)
        page, _ = read_job_input(asked.said, here)
        prompter = TerminalPrompter(console, asked.command_name, yes=asked.yes)
        return asked if await agree_typed(asked, page, prompter, console) else None
    finally:
        await console.flush()
        console.close()


def script_words(words: Sequence[str], script: str) -> list[str]:
    """Return the words with a job file in place of the script, its arguments and options."""
    kept = list(words[: words.index("--")] if "--" in words else words)
    kept[kept.index(script)] = SENTENCE
    if "--save" in kept:
        at = kept.index("--save")
        del kept[at : at + 2]
    return [word for word in kept if word != "--no-requirements" and not word.startswith("--save=")]


def add_items(file: str, words: list[str], bundle: dict[str, bytes]) -> None:
    """Add the file with the items of a map, and name its copy in the arguments."""
    items = Path.cwd() / Path(file).expanduser()
    end = words.index("--") if "--" in words else len(words)
    place = max(at for at, word in enumerate(words[:end]) if word == file)
    words[place] = f"job/items-{items.name}"
    try:
        bundle[words[place]] = items.read_bytes()
    except OSError as error:
        raise InvalidInput(f"{file} can't be read: {error.strerror}") from error


async def take_with_consent(
    taking: Callable[[], Snapshot],
    archive: Archive,
    asked: RunOptions | MapInput,
    environ: Mapping[str, str],
) -> Snapshot | None:
    """Take a snapshot and ask for consent where needed; None: the user declined."""
    snapshot = await asyncio.to_thread(taking)
    if not (snapshot.notes or snapshot.findings):
        return snapshot
    console = Console((0, 1, 2), Path.cwd(), environ, colour=choose_colour(environ))
    try:
        prompter = TerminalPrompter(console, asked.command_name, yes=asked.yes)
        return await ask_upload_consent(snapshot, taking, archive, prompter)
    finally:
        await console.flush()
        console.close()
