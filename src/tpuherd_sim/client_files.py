"""The files in a world's folder by which other people's programs work with it."""

import json
import shlex
from pathlib import Path
from shutil import which

from tpuherd_sim.client_env import Places
from tpuherd_sim.http.certificates import private_key
from tpuherd_sim.state_dir import Facts, write

WRAPPED = ("ssh", "scp", "sftp")  #: rsync, git, mosh and gcloud start the ssh they find on PATH

NO_TUNNEL = (
    "The simulated world has no Identity-Aware Proxy: leave --tunnel-through-iap out, its hosts "
    "are reached directly."
)


def furnish(folder: Path, facts: Facts, path: str) -> None:
    """Write those files. `path` is where the real ssh is looked for."""
    places = Places(folder=folder)
    places.programs.mkdir(mode=0o700, exist_ok=True)
    places.gcloud.mkdir(mode=0o700, exist_ok=True)
    write(places.ssh_config, ssh_config(places, facts))
    others = ":".join(one for one in path.split(":") if one != str(places.programs))
    for name in WRAPPED:
        real = which(name, path=others)
        if real is not None:
            write(places.programs / name, wrapper(real, places), mode=0o700)
    write(places.account, account(places.account, facts))


def wrapper(real: str, places: Places) -> str:
    """A program of OpenSSH's that knows the world; gcloud would try a tunnel again for minutes."""
    words = shlex.join(["exec", real, "-F", str(places.ssh_config)])
    return (
        "#!/bin/sh\n"
        'case "$*" in *start-iap-tunnel*)\n'
        f"  echo {shlex.quote(NO_TUNNEL)} >&2\n"
        "  exit 1 ;;\n"
        "esac\n"
        f'{words} "$@"\n'
    )


def ssh_config(places: Places, facts: Facts) -> str:
    """The hosts' port and their own list of known hosts; for everything else what the user has.

    The first word on something wins, so ours stands before the user's.
    """
    return (
        f"Host 127.{facts.network}.*\n"
        f"    Port {facts.ssh_port}\n"
        f'    UserKnownHostsFile "{places.known_hosts}"\n'
        "    StrictHostKeyChecking accept-new\n"
        "Host *\n"
        "    Include ~/.ssh/config\n"
        "    Include /etc/ssh/ssh_config\n"
    )


def account(file: Path, facts: Facts) -> str:
    """A service account whose key was made here and whose tokens the world gives."""
    try:
        key = json.loads(file.read_bytes())["private_key"]
    except (OSError, ValueError, KeyError):
        key = private_key()
    email = f"herd@{facts.project}.iam.gserviceaccount.com"
    content = {
        "type": "service_account",
        "project_id": facts.project,
        "private_key_id": "0" * 40,
        "private_key": key,
        "client_email": email,
        "client_id": "0" * 21,
        "auth_uri": f"{facts.url}/auth",
        "token_uri": f"{facts.url}/token",
        "universe_domain": "googleapis.com",
    }
    return json.dumps(content, indent=2) + "\n"
