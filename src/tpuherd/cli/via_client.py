"""Runs commands on another machine by SSH, as a context's `via` says.

The same package is installed there, in a folder of its own. It receives the context, the owner's
id and the login name, and what a command needs: job file, code and secrets.
"""

import contextlib
import os
import secrets
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from json import dumps
from pathlib import Path
from typing import IO, Any

import click

from tpuherd.cli import wheel
from tpuherd.cli.via_layout import DIGEST, LETTER, MAP_SHOWN, ROOT, RUNNING, SHOWN
from tpuherd.errors import HerdError, InvalidInput, NotReached, OperationFailed
from tpuherd.files import make_private_folder
from tpuherd.remote.shell_line import any_shell_line
from tpuherd.settings import contexts_file, project_access, project_settings
from tpuherd.settings.folders import resolve_folders
from tpuherd.settings.project_access import host_login
from tpuherd.targets import is_path

#: Commands that run here: they concern this machine, or copy many files.
HERE = frozenset(
    """
    context setup sim cp sync hosts forward open
    """.split()
)
HERE_BELOW = (["engine", "move"], ["engine", "daemon"])
PROGRAM = "HERD_SSH"  #: the ssh program with options
READY, ABSENT, OLDER, STRANGE = 0, 214, 215, 213
MASTER_S = 120
SSH_FAILED = 255
#: Checks whether this version is installed and knows the context.
LOOK = """\
cd && cd {root} 2>/dev/null || exit 214
if [ ! -e {stamp}/ready ]; then ls -d */ready >/dev/null 2>&1 && exit 215; exit 214; fi
[ "$(cat {name}/{digest_file} 2>/dev/null)" = {digest} ] || exit 213
"""
INSTALL = """\
set -e; umask 077; cd; mkdir -p {root}; cd {root}
for one in python3.14 python3.13 python3.12 python3.11 python3 ""; do
    [ -n "$one" ] || {{ echo "Python 3.11 or newer is missing" >&2; exit 1; }}
    $one -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break
done
cat > {wheel}
rm -rf {stamp}; $one -m venv {stamp} >&2
export PIP_DISABLE_PIP_VERSION_CHECK=1
{stamp}/bin/python -m pip install -q "./{wheel}{extras}" > pip.log 2>&1 || {{
    tail -n 3 pip.log >&2; exit 1; }}
touch {stamp}/ready; rm {wheel} pip.log; ln -sfn {stamp} current
for one in */herd; do
    [ ! -x "$one" ] || {{ "$one" engine stop || :; "$one" keeper stop --now || :; }} >&2
done
for old in [0-9]*/ready; do [ $old = {stamp}/ready ] || rm -rf "${{old%/ready}}"; done
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoteMachine:
    """A context and its machine."""

    context: str
    via: str  #: user@host, host, user@host:port
    letter: Mapping[str, Any]
    ssh: tuple[str, ...]
    master: Path

    @property
    def folder_name(self) -> str:
        """Of its folder on that machine."""
        return f"{self.context}-{self.letter['owner']}"

    def ssh_command(self, *remote: str, options: Sequence[str] = ()) -> list[str]:
        """ssh with a command for the other machine's shell."""
        host, _, port = self.via.rpartition(":") if ":" in self.via else (self.via, "", "")
        place = ["-p", port] if port else []
        return [*self.ssh, "-o", f"ControlPath={self.master}", *place, *options, host, *remote]

    def server_command(self, word: str, *rest: str) -> str:
        """A command line for tpuherd.cli.via_server."""
        python = f"{ROOT}/{wheel.wheel_stamp()}/bin/python"
        line = shlex.join(["-P", "-m", "tpuherd.cli.via_server", word, self.folder_name, *rest])
        return f"cd && exec {python} {line}"


def find_remote_machine(
    environ: Mapping[str, str], *, via: str | None = None
) -> RemoteMachine | None:
    """Return the machine of the current context or of `via`; None: this one."""
    folders = resolve_folders(environ)
    content = contexts_file.load_contexts(folders.config)
    context = dict(contexts_file.current_context(folders.config, environ))
    said = context.pop("via", None)
    via = via or said
    if not via or environ.get("HERD_WORLD"):
        return None
    name = contexts_file.current_name(content, environ)
    if environ.get("HERD_STORE"):
        raise InvalidInput(
            f"HERD_STORE is set, but the commands of {name} run on {via}, which does not get it",
            hint=f"unset it, and name the store: herd context add {name} --store URL",
        )
    account = context.pop("account", None)
    if not context.get("store"):  # else the users of the store share one
        context.setdefault("login", host_login(environ.get("USER") or project_access.local_user()))
    world = Path(context["world"]).expanduser() if context.get("world") else None
    if world is None:
        known = project_access.find_credentials(environ, account=account)
        context["project"] = project_access.resolve_project(environ, context, known)
    key = project_settings.project_key(world=world, project=context.get("project", ""))
    letter = {
        "name": name,
        "context": context,
        "key": key,
        "terms": content["projects"].get(key, {}),
        "owner": project_access.get_owner_id(folders.config),
        "user": project_access.get_user_name(folders.config, environ),
    }
    make_private_folder(folders.runtime)
    return RemoteMachine(
        context=name,
        via=via,
        letter={**letter, "digest": letter_digest(letter)},
        ssh=tuple(shlex.split(environ.get(PROGRAM) or "ssh")),
        master=folders.runtime / f"v-{sha256(via.encode()).hexdigest()[:8]}",
    )


def letter_digest(letter: Mapping[str, Any]) -> str:
    """Return a digest of all settings that the other machine needs, and of our version."""
    return sha256(dumps([letter, wheel.wheel_stamp()], sort_keys=True).encode()).hexdigest()[:16]


# ---- the line ------------------------------------------------------------------------------------


def open_connection(far: RemoteMachine) -> None:
    """Open a shared SSH connection, which stays for two minutes."""
    if subprocess.run(far.ssh_command(options=["-O", "check"]), **QUIET).returncode == 0:
        return
    options = ["-f", "-N", "-o", "ControlMaster=yes", "-o", f"ControlPersist={MASTER_S}"]
    options += ["-o", "ConnectTimeout=20", "-o", "LogLevel=ERROR"]
    with open(far.master.with_suffix(".txt"), "w+b") as said:
        done = subprocess.run(
            far.ssh_command(options=options), stdout=said, stderr=said, check=False
        )
        said.seek(0)
        text = said.read().decode(errors="replace").strip()
    if done.returncode != 0:
        why = text.splitlines()[-1] if text else f"ssh exited with {done.returncode}"
        raise NotReached(f"{far.via} can't be reached: {why}", hint=f"try: ssh {far.via}")


QUIET: Any = {"stdin": subprocess.DEVNULL, "capture_output": True, "check": False}


def run_on_machine(
    far: RemoteMachine, line: str, content: bytes | None = None
) -> "subprocess.CompletedProcess[bytes]":
    """Run a shell line there."""
    given: Any = {"stdin": subprocess.DEVNULL} if content is None else {"input": content}
    words = far.ssh_command(line, options=["-T"])
    return subprocess.run(words, capture_output=True, check=False, **given)


def check_machine(far: RemoteMachine) -> int:
    """Return READY, or what is missing there."""
    open_connection(far)
    line = LOOK.format(
        root=ROOT, stamp=wheel.wheel_stamp(), name=far.folder_name, digest_file=DIGEST,
        digest=far.letter["digest"],
    )  # fmt: skip
    done = run_on_machine(far, any_shell_line(line))
    if done.returncode not in (READY, ABSENT, OLDER, STRANGE):
        said = done.stderr.decode(errors="replace").strip()
        raise NotReached(f"{far.via} can't be used: {said or done.returncode}")
    return done.returncode


def install_herd(far: RemoteMachine) -> None:
    """Install our package in an environment of its own; dependencies come from PyPI."""
    open_connection(far)
    extras = "[lab]" if far.letter["context"].get("store") else ""
    line = INSTALL.format(
        root=ROOT, stamp=wheel.wheel_stamp(), wheel=wheel.wheel_name(), extras=extras
    )
    done = run_on_machine(far, any_shell_line(line), wheel.build_wheel())
    if done.returncode != 0:
        said = " ".join(done.stderr.decode(errors="replace").split())[-400:]
        hint = "it needs Python 3.11 with venv (apt-get install python3-venv), and access to PyPI"
        raise OperationFailed(f"herd could not be installed on {far.via}: {said}", hint=hint)


def prepare_machine(far: RemoteMachine) -> None:
    """Make sure that our version is installed there and knows the context."""
    found = check_machine(far)
    if found == ABSENT:
        confirm_install(far)
    if found in (ABSENT, OLDER):
        print(f"herd: installing herd on {far.via}", file=sys.stderr)
        install_herd(far)
    if found != READY:
        send_bundle(far, "take", "-", bundle={LETTER: dumps(far.letter).encode()})


def confirm_install(far: RemoteMachine) -> None:
    """Ask before the first installation."""
    command = f"herd context install {far.context}"
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise InvalidInput(f"herd is not installed on {far.via}", hint=command)
    print(
        f"herd: herd is not installed on {far.via}. Install it there? [y/n] ",
        end="",
        file=sys.stderr,
    )
    sys.stderr.flush()
    if not sys.stdin.readline().lower().startswith("y"):
        raise InvalidInput("herd was not installed", hint=command)


def send_bundle(far: RemoteMachine, word: str, *rest: str, bundle: Mapping[str, bytes]) -> None:
    """Send a tar to a command there."""
    from tpuherd.jobs.code_transfer import pack_tar

    done = run_on_machine(far, far.server_command(word, *rest), pack_tar(bundle))
    raise_if_failed(far, done.returncode, done.stderr)


def find_missing(far: RemoteMachine, ids: Iterable[bytes]) -> frozenset[bytes]:
    """Return which contents of some code are missing there."""
    done = run_on_machine(
        far, far.server_command("lacks"), "\n".join(one.hex() for one in ids).encode()
    )
    raise_if_failed(far, done.returncode, done.stderr)
    return frozenset(map(bytes.fromhex, done.stdout.decode().split()))


def raise_if_failed(far: RemoteMachine, status: int, said: bytes) -> None:
    """Raise the error of a command there."""
    if status == SSH_FAILED:
        raise NotReached(f"the connection to {far.via} was lost", hint="try again")
    if status != 0:
        text = said.decode(errors="replace").strip().splitlines()
        raise OperationFailed(f"{far.via}: {text[-1] if text else f'exit status {status}'}")


# ---- commands ------------------------------------------------------------------------------------


def is_remote_command(arguments: Sequence[str]) -> bool:
    """Whether such a command runs there, if the context has a machine."""
    words = [word for word in arguments if not word.startswith("-")]
    flags = arguments[: arguments.index("--")] if "--" in arguments else arguments
    worldly = any(word.partition("=")[0] == "--world" for word in flags)
    if not words or worldly or "-h" in flags or "--help" in flags:
        return False
    if words[0] == "explain" and (len(words) < 2 or is_path(words[1]) or Path(words[1]).is_file()):
        return False  # a log of this machine
    if words[0] == "ssh" and arguments[arguments.index("ssh") + 1 :][:1] == ["--config"]:
        return False
    return words[0] not in HERE and words[:2] not in HERE_BELOW


def needs_upload(words: Sequence[str]) -> bool:
    """Whether the command needs a job file, code and secrets of this machine."""
    further = {"sweep": SHOWN, "map": MAP_SHOWN}.get(words[0])
    return words[0] in ("run", "up") or (
        further is not None and not further.intersection(words[1:2])
    )


def refuse_unshippable(arguments: Sequence[str], far: RemoteMachine) -> None:
    """`herd levanter` reads your clone and your shell, which are not there."""
    words = [word for word in arguments if not word.startswith("-")]
    if words[:1] == ["levanter"]:
        raise InvalidInput(
            f"herd levanter does not work through {far.via}, where your clone is not",
            hint="use a context without via, or `herd run` with a job file",
        )


def run(arguments: list[str], environ: Mapping[str, str]) -> int | None:
    """Run it there and return its exit status; None: it runs here."""
    if not is_remote_command(arguments):
        return None
    try:
        found = find_remote_machine(environ)
        if found is None:
            return None
        refuse_unshippable(arguments, found)
        prepare_machine(found)
        token, words = secrets.token_hex(8), arguments
        options: Sequence[str] = ()
        if first_word(arguments) == "ui":
            from tpuherd.cli.via_page import tunnel_page

            words, options = tunnel_page(arguments)
        if needs_upload([word for word in arguments if not word.startswith("-")]):
            from tpuherd.cli.via_upload import prepare_upload

            gone = prepare_upload(arguments, environ, partial(find_missing, found))
            if isinstance(gone, int):
                return gone
            words, bundle = gone
            send_bundle(found, "take", token, bundle=bundle)
        return forward_command(found, words, token, options)
    except click.ClickException:
        return None  # a usage error is reported here
    except HerdError as error:
        return print_error("herd", error)


def print_error(name: str, error: HerdError) -> int:
    """Print one sentence, and return the exit status."""
    from tpuherd.cli.print_text import print_text
    from tpuherd.exit_status import STATUS

    hint = f"; {error.hint}" if error.hint else ""
    print_text(f"{name}: {error.sentence}{hint}", err=True)
    return next(code for kind, code in STATUS.items() if isinstance(error, kind))


def first_word(arguments: Sequence[str]) -> str:
    """The name of the command."""
    return next((word for word in arguments if not word.startswith("-")), "")


def forward_command(
    far: RemoteMachine, words: Sequence[str], token: str, further: Sequence[str] = ()
) -> int:
    """Run it with our terminal or files, pass signals on, and return its exit status.

    `further`: more options of ssh.
    """
    terminal = os.isatty(0) and os.isatty(1)
    line = far.server_command("run", token, dumps(list(words)).encode().hex())
    options = ["-tt" if terminal else "-T", "-o", "LogLevel=ERROR", *further]
    stdin: int | IO[bytes] | None = subprocess.DEVNULL if os.isatty(0) and not terminal else None
    group = None if terminal else 0
    process = subprocess.Popen(
        far.ssh_command(line, options=options), stdin=stdin, process_group=group
    )

    def pass_on(number: int, _: object) -> None:
        mark = f"{ROOT}/{far.folder_name}/{RUNNING}/{token}"
        run_on_machine(far, f"cd && kill -{number} $(cat {mark})")

    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) != signal.SIG_IGN and not terminal:
            signal.signal(number, pass_on)
    with contextlib.suppress(KeyboardInterrupt):
        return process.wait()
    return 130
