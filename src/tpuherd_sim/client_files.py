"""Writes the files that let other programs work with a world."""

import json
import shlex
import sqlite3
from contextlib import closing
from pathlib import Path
from shutil import which

from tpuherd_sim.client_env import WorldPaths, user_account
from tpuherd_sim.http.certificates import make_private_key
from tpuherd_sim.state_dir import WorldInfo, write_atomically

WRAPPED = ("ssh", "scp", "sftp")  #: rsync, git, mosh and gcloud start the ssh they find on PATH

NO_TUNNEL = (
    "The simulated world has no Identity-Aware Proxy; omit --tunnel-through-iap, "
    "its hosts can be reached directly."
)


def write_client_files(folder: Path, facts: WorldInfo, path: str) -> None:
    """Write the files; `path` is the PATH on which to find the real ssh."""
    places = WorldPaths(folder=folder)
    places.bin_folder.mkdir(mode=0o700, exist_ok=True)
    places.gcloud_folder.mkdir(mode=0o700, exist_ok=True)
    write_atomically(places.ssh_config, ssh_config_text(places, facts))
    others = ":".join(one for one in path.split(":") if one != str(places.bin_folder))
    for name in WRAPPED:
        real = which(name, path=others)
        if real is not None:
            write_atomically(places.bin_folder / name, ssh_wrapper_script(real, places), mode=0o700)
    key = service_account_json(places.service_account_file, facts)
    write_atomically(places.service_account_file, key)
    sign_in_gcloud(places.gcloud_folder, user_account(facts), key)


def sign_in_gcloud(folder: Path, account: str, key: str) -> None:
    """Write what `gcloud auth activate-service-account` writes."""
    table = "credentials (account_id TEXT PRIMARY KEY, value BLOB)"
    with closing(sqlite3.connect(folder / "credentials.db")) as found, found:
        found.execute(f"CREATE TABLE IF NOT EXISTS {table}")
        found.execute("REPLACE INTO credentials VALUES (?, ?)", (account, key))


def ssh_wrapper_script(real: str, places: WorldPaths) -> str:
    """Return a wrapper for an OpenSSH program that uses the world's configuration.

    It rejects IAP tunnels at once, because gcloud would retry them for minutes.
    """
    words = shlex.join(["exec", real, "-F", str(places.ssh_config)])
    return (
        "#!/bin/sh\n"
        'case "$*" in *start-iap-tunnel*)\n'
        f"  echo {shlex.quote(NO_TUNNEL)} >&2\n"
        "  exit 1 ;;\n"
        "esac\n"
        f'{words} "$@"\n'
    )


def ssh_config_text(places: WorldPaths, facts: WorldInfo) -> str:
    """Return an SSH config with the hosts' port and known hosts, then the user's own config.

    OpenSSH uses the first value of an option, so ours precedes the user's.
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


def service_account_json(file: Path, facts: WorldInfo) -> str:
    """Return a service account file with a key made here, whose tokens the world issues."""
    try:
        key = json.loads(file.read_bytes())["private_key"]
    except (OSError, ValueError, KeyError):
        key = make_private_key()
    content = {
        "type": "service_account",
        "project_id": facts.project,
        "private_key_id": "0" * 40,
        "private_key": key,
        "client_email": user_account(facts),
        "client_id": "0" * 21,
        "auth_uri": f"{facts.url}/auth",
        "token_uri": f"{facts.url}/token",
        "universe_domain": "googleapis.com",
    }
    return json.dumps(content, indent=2) + "\n"
