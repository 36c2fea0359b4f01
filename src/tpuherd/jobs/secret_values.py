"""Reads the values of secrets from their sources; they are stored in 0600 files only."""

import asyncio
import netrc
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from tpuherd.jobfile.job_spec import Secret
from tpuherd.jobfile.notify_fields import GIVEN
from tpuherd.jobs import via_parcel

COMMAND_S = 60.0
BYTES_MAX = 65_536
WANDB_KEY, WANDB_SERVER = "WANDB_API_KEY", "api.wandb.ai"


class SecretMissing(Exception):
    """Why a secret's value can't be read."""


async def collect_secrets(
    secrets: Sequence[Secret],
    base: Path,
    environ: Mapping[str, str],
    *,
    server: str = WANDB_SERVER,
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the values by name, and a sentence for each missing one. `server`: of W&B."""
    values: dict[str, str] = {}
    missing: dict[str, str] = {}
    for one in secrets:
        try:
            values[one.name] = await read_secret(one, base, environ, server=server)
        except SecretMissing as reason:
            missing[one.name] = str(reason)
    return values, missing


async def read_secret(
    secret: Secret, base: Path, environ: Mapping[str, str], *, server: str = WANDB_SERVER
) -> str:
    if secret.source == GIVEN:
        return secret.value
    folder = via_parcel.carried_folder(environ)
    if folder is not None:
        given, why = via_parcel.carried_secret(folder, secret.name)
        if given is None:
            raise SecretMissing(why)
        return given
    if secret.source == "env":
        return read_variable(secret.value, environ, server)
    if secret.source == "file":
        return read_secret_file(base / Path(secret.value).expanduser(), secret.value)
    return await run_secret_command(secret.value, base, environ)


def read_variable(name: str, environ: Mapping[str, str], server: str) -> str:
    """Return a variable of the user's; W&B's key also from where `wandb login` keeps it."""
    if environ.get(name):
        return decode_secret(os.fsencode(environ[name]), f"the variable {name}")
    absent = f"the variable {name} is not set in your environment"
    if name != WANDB_KEY:
        raise SecretMissing(absent)
    file = Path(environ.get("NETRC") or Path(environ.get("HOME") or "~", ".netrc")).expanduser()
    try:
        login = netrc.netrc(file).hosts.get(server)
    except FileNotFoundError:
        login = None
    except (OSError, UnicodeDecodeError, netrc.NetrcParseError):
        # The error may quote the file, so neither its text nor the error itself goes on.
        raise SecretMissing(f"{absent}, and ~/.netrc can't be read") from None
    if login is None or not login[2]:
        raise SecretMissing(f"{absent}, and ~/.netrc has no login for {server}")
    return decode_secret(login[2].encode(), "the password in ~/.netrc")


def wandb_server(env: object) -> str:
    """Return the host of W&B that the variables of a job name."""
    url = env.get("WANDB_BASE_URL") if isinstance(env, Mapping) else None
    return (urlsplit(url).hostname if isinstance(url, str) else None) or WANDB_SERVER


def read_secret_file(file: Path, name: str) -> str:
    """Return the content without the final newline."""
    try:
        content = file.read_bytes()
    except OSError as error:
        raise SecretMissing(f"{name} can't be read: {error.strerror}") from error
    return decode_secret(content, name)


def decode_secret(content: bytes, name: str) -> str:
    """Return the text if an environment variable can hold it."""
    try:
        text = content.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        text = "\0"
    if len(content) > BYTES_MAX or "\0" in text:
        raise SecretMissing(f"{name} is not text that an environment variable can hold")
    if not text:
        raise SecretMissing(f"{name} is empty")
    return text


async def run_secret_command(text: str, base: Path, environ: Mapping[str, str]) -> str:
    """Return what the command prints."""
    process = await asyncio.create_subprocess_shell(
        text,
        cwd=base,
        env=dict(environ),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        printed, _ = await asyncio.wait_for(process.communicate(), COMMAND_S)
    except TimeoutError as error:
        process.kill()
        await process.wait()
        raise SecretMissing(f"its command took longer than {COMMAND_S:.0f} s") from error
    if process.returncode:
        raise SecretMissing(f"its command ended with exit status {process.returncode}")
    return decode_secret(printed, "the output of its command")
