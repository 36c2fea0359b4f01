"""Gives a job that uses wandb the user's key, or says what to do before a node is paid for."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tpuherd.errors import InvalidInput
from tpuherd.jobfile.environment_key import ReadText
from tpuherd.jobfile.job_spec import JobSpec, Secret
from tpuherd.jobfile.wandb_use import WITHOUT_KEY, find_wandb_use
from tpuherd.jobfile.yaml_with_lines import YamlDocument
from tpuherd.jobs import via_parcel
from tpuherd.jobs.image_python import read_text
from tpuherd.jobs.open_project import Prompter
from tpuherd.jobs.secret_values import WANDB_KEY, SecretMissing, read_secret, wandb_server

KEY = Secret(name=WANDB_KEY, source="env", value=WANDB_KEY)
ADVICE = "`wandb login` here, name it in `secrets`, or set `env: {WANDB_MODE: offline}` or disabled"


@dataclass(frozen=True, kw_only=True, slots=True)
class KeyForCode:
    """What follows from the code's use of W&B."""

    value: str = ""
    note: str = ""  #: said by `herd run`
    mistake: str = ""  #: why the job is refused

    def add_to(self, job: JobSpec) -> JobSpec:
        return replace(job, secrets=(*job.secrets, KEY)) if self.value else job

    @property
    def secrets(self) -> dict[str, str]:
        return {WANDB_KEY: self.value} if self.value else {}


async def key_before_snapshot(
    job: JobSpec, page: YamlDocument, base: Path, prompter: Prompter, *, by_hand: bool
) -> KeyForCode:
    """Look at the folder that will be shipped; where `via` carried it here, that is done already.
    A mistake is added to the page."""
    folder = via_parcel.carried_folder(prompter.environ)
    if job.repo or (folder is not None and names_key(job)):
        return KeyForCode()
    if folder is not None:
        value = via_parcel.read_text_file(folder / via_parcel.SECRETS / WANDB_KEY)
        mistake = via_parcel.read_text_file(folder / via_parcel.MISSING / WANDB_KEY)
        found = KeyForCode(value=value or "", mistake="" if by_hand else mistake or "")
    else:
        read = read_folder(base / Path(job.workdir).expanduser() if job.workdir else None)
        found = await find_key(job, read, prompter.environ, by_hand=by_hand)
    if found.mistake:
        page.add_mistake(("run",), found.mistake)
    if found.note:
        await prompter.show_message(found.note)
    return found


async def key_of_snapshot(
    job: JobSpec, read: ReadText, prompter: Prompter, *, by_hand: bool
) -> KeyForCode:
    """Look at the code of a repository, which is known once it is here."""
    found = await find_key(job, read, prompter.environ, by_hand=by_hand)
    if found.mistake:
        raise InvalidInput(f"run: {found.mistake}")
    if found.note:
        await prompter.show_message(found.note)
    return found


def names_key(job: JobSpec) -> bool:
    return WANDB_KEY in {*job.env, *(secret.name for secret in job.secrets)}


async def find_key(
    job: JobSpec, read: ReadText, environ: Mapping[str, str], *, by_hand: bool
) -> KeyForCode:
    """Return the user's key for code that uses wandb; nothing if it needs none, or names its own.

    `by_hand`: hosts were, or may have been, logged in by the user.
    """
    use = None if names_key(job) else find_wandb_use(job, read)
    if use is None:
        return KeyForCode()
    try:
        value = await read_secret(KEY, Path(), environ, server=wandb_server(job.env))
    except SecretMissing as reason:
        if use.sure and not by_hand:
            return KeyForCode(mistake=f"{use.at} uses wandb, and {reason}: {ADVICE}")
        return KeyForCode(
            note=f"{use.at} may use wandb, for which there is no key here: `wandb login` makes one"
        )
    place = "your environment" if environ.get(WANDB_KEY) else "~/.netrc"
    if via_parcel.carried_folder(environ) is not None:
        place = "your machine"
    note = f"{use.at} uses wandb: the job gets {WANDB_KEY} from {place}, as a secret"
    return KeyForCode(value=value, note=note)


async def key_in_advance(job: JobSpec, environ: Mapping[str, str]) -> KeyForCode:
    """Return the key that another machine may need for code that is not here."""
    if names_key(job) or job.env.get("WANDB_MODE") in WITHOUT_KEY:
        return KeyForCode()
    try:
        value = await read_secret(KEY, Path(), environ, server=wandb_server(job.env))
    except SecretMissing:
        return KeyForCode()
    return KeyForCode(value=value)


def read_folder(folder: Path | None) -> ReadText:
    """A function that returns the text of a file below the folder; "" where there is none."""
    return lambda path: read_text(folder / path) if folder and (folder / path).is_file() else ""
