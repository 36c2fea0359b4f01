"""Which program of this machine opens a host, and with which arguments: VS Code and mosh."""

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from tpuherd.commands.command_types import label_hosts
from tpuherd.commands.host_script import run_on_host
from tpuherd.commands.ship_to_hosts import ONLY_HOME
from tpuherd.commands.ssh_route import SshRequest, find_ssh_route
from tpuherd.errors import InvalidInput, NotFound, OperationFailed
from tpuherd.files import make_private_folder
from tpuherd.ports import Host, Link
from tpuherd.settings.host_routes import RouteKind
from tpuherd.ssh_config.config_text import NamePlan, SshFiles, plan_names
from tpuherd.ssh_config.host_names import write_ssh_name
from tpuherd.ssh_config.ssh_projects import load_projects, ssh_files
from tpuherd.targets import split_bid_name

if TYPE_CHECKING:
    from tpuherd.remote.resolve_hosts import RemoteSession
    from tpuherd.settings.project_access import ProjectAccess
    from tpuherd.ssh_config.user_file import UserConfig

MOSH = "open.mosh"  #: names the file with the keys of hosts that mosh reaches
#: Goes to $1, from the code folder of the job $2 where the host has it. The first line of output is
#: "home" if only the home has $1; place_path decides so for copies.
PLACE = """\
seen=
case $1 in
"") { [ -n "$2" ] && cd "herd/$2"; } || cd ;;
/*) cd -- "$1" ;;
"~" | "~/"*) cd -- "./${1#"~"}" ;;
*) if [ -z "$2" ] || ! [ -d "herd/$2" ]; then cd -- "./$1"
    else cd -- "herd/$2/$1" || { seen=home; cd -- "./$1"; }
    fi ;;
esac 2>/dev/null || exit 1
echo "$seen"
pwd
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalProgram:
    """A program of this machine, with its arguments."""

    argv: tuple[str, ...]
    advice: str  #: how to get it


MOSH_CLIENT = LocalProgram(argv=("mosh",), advice="sudo apt-get install mosh, or brew install mosh")


def code_program(name: str, folder: str) -> LocalProgram:
    """Return VS Code's command for a folder of a host that ssh knows by this name."""
    return LocalProgram(
        argv=("code", "--folder-uri", f"vscode-remote://ssh-remote+{name}{quote(folder)}"),
        advice="install VS Code with its extension Remote - SSH, and in VS Code run the command"
        " `Shell Command: Install 'code' command in PATH`",
    )


def mosh_program(host: Host, name: str, login: str, files: SshFiles) -> LocalProgram:
    """Return mosh's command; it connects to the host's address itself, by SSH and then by UDP."""
    options = (
        f"User={login}",
        f"HostName={host.external_ip or host.internal_ip}",
        f"Port={host.ssh_port}",
        f"HostKeyAlias={name}",
        f'IdentityFile="{files.key}"',
        f'UserKnownHostsFile="{files.known_hosts(MOSH)}"',
        "IdentitiesOnly=yes",
        "StrictHostKeyChecking=yes",
    )
    words = ["ssh", "-F", "none", *(word for one in options for word in ("-o", one))]
    return LocalProgram(
        argv=(*MOSH_CLIENT.argv, f"--ssh={shlex.join(words)}", "--", name),
        advice=MOSH_CLIENT.advice,
    )


def ssh_host_name(host: Host) -> str:
    """Return a host's name for ssh: gpt-0-w3."""
    bid = split_bid_name(host.bid or host.node)
    if bid is None:
        return write_ssh_name(host.node, host.worker)
    return write_ssh_name(bid.slot, host.worker, part=bid.part)


def find_installed_name(host: Host, place: "ProjectAccess", user: "UserConfig") -> str:
    """Return the name by which ssh knows the host; the longer one if two projects have it."""
    name = ssh_host_name(host)
    files = ssh_files(place.folders.config)
    projects = load_projects(files) if files.config.exists() else []
    plan: NamePlan = plan_names(projects, user.host_names())
    mine = next((one for one in projects if one.key == place.logs_folder.name), None)
    for known in (name, f"{name}.{mine.suffix}") if mine else ():
        if mine and known in plan.names[mine.suffix]:
            return known
    raise InvalidInput(
        f"ssh does not know {name}, by which VS Code finds it", hint="run herd ssh --config first"
    )


async def find_folder(link: Link, folder: str, host: Host) -> tuple[str, str]:
    """Return the folder on the host as an absolute path, and a warning or "". It is given from the
    job's code, where the host has that; "" means the code itself, else the home."""
    bid, label = split_bid_name(host.bid or host.node), label_hosts([host])[host]
    words = ("sh", "-c", PLACE, "sh", folder, bid.job if bid else "")
    done = await run_on_host(link, words)
    if done.status:
        raise NotFound(f"there is no folder {folder} on {label}")
    seen, _, text = done.out.partition("\n")
    warning = f"{label}: {ONLY_HOME.format(folder, folder)}" if seen else ""
    return read_folder(text, label), warning


def read_folder(text: str, label: str) -> str:
    """Return the folder that a host names, which may become an argument of a program here."""
    found = text.removesuffix("\n")
    if not found.startswith("/") or not found.isprintable():
        raise OperationFailed(f"{label} names no folder: {found[:100]!r}")
    return found


async def prepare_mosh(host: Host, place: "ProjectAccess", reach: "RemoteSession") -> LocalProgram:
    """Check that mosh can work, and let ssh know the host's key."""
    label = label_hosts([host])[host]
    link = await reach.pool.get_link(host)
    done = await run_on_host(link, ("sh", "-c", "command -v mosh-server"))
    if done.status:
        raise OperationFailed(
            f"{label} has no mosh-server",
            hint=f"herd exec {label} -- sudo apt-get install -y mosh",
        )
    reached = await reach.pool.find_route(host)
    if reached.route.kind not in (RouteKind.EXTERNAL, RouteKind.INTERNAL):
        raise InvalidInput(
            f"mosh needs UDP straight to {label}, which is reached by {reached.route.kind.value}",
            hint=f"herd ssh {label} survives lost connections, too",
        )
    files, name = ssh_files(place.folders.config), ssh_host_name(host)
    make_private_folder(files.folder)
    await find_ssh_route(SshRequest(name=name, suffix=MOSH, login=place.login), files, place, reach)
    return mosh_program(reached.host, name, place.login, files)
