"""One SSH session: a command, a login shell or a file transfer, with or without a terminal."""

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Protocol

import asyncssh

from tpuherd_sim.hosts import sftp_server
from tpuherd_sim.hosts.host_protocols import Account, Host, Process, Program
from tpuherd_sim.ssh.authorized_keys import PATH, accepted_variables, login_shell, parse_environment
from tpuherd_sim.ssh.bridge import Bridge, SinkKind
from tpuherd_sim.ssh.terminal_modes import set_modes, set_size

STDERR = asyncssh.EXTENDED_DATA_STDERR


class SessionOwner(Protocol):
    """The connection that a session belongs to."""

    host: Host
    user: str
    ends: tuple[str, int, str, int]  #: client's address and port, then the host's

    def start_task(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]": ...

    def add_bridge(self, bridge: Bridge) -> None: ...

    def remove_bridge(self, bridge: Bridge) -> None: ...


class Session(asyncssh.SSHServerSession[bytes]):
    """Passes bytes, sizes and signals to a program in the host, and its end back to the client."""

    def __init__(self, owner: SessionOwner) -> None:
        self.owner = owner
        self.command: str | None = None
        self.transfers_files = False  #: by SFTP
        self.task: asyncio.Task[None] | None = None
        self.process: Process | None = None
        self.terminal: int | None = None
        self.over = False  #: the channel is closed
        self.silent = asyncio.Event()  #: the program's outputs have ended

    def connection_made(self, chan: asyncssh.SSHServerChannel[bytes]) -> None:
        self.channel = chan
        # The client learns the end of the outputs only with the exit status: OpenSSH closes a
        # channel that has ended both ways, and asyncssh then accepts no status any more.
        self.bridge = Bridge(chan, self.silent.set)
        self.owner.add_bridge(self.bridge)

    def pty_requested(
        self, term_type: str, term_size: tuple[int, int, int, int], term_modes: Mapping[int, int]
    ) -> bool:
        return True

    def shell_requested(self) -> bool:
        return True

    def exec_requested(self, command: str) -> bool:
        self.command = command
        return True

    def subsystem_requested(self, subsystem: str) -> bool:
        self.transfers_files = subsystem == "sftp"
        return self.transfers_files

    def session_started(self) -> None:
        self.task = self.owner.start_task(self.run())

    def data_received(self, data: bytes, datatype: int | None) -> None:
        self.bridge.add_input(data)

    def eof_received(self) -> bool:
        self.bridge.end_input()
        return True  # the program may continue to write

    def pause_writing(self) -> None:
        self.bridge.pause_output()

    def resume_writing(self) -> None:
        self.bridge.resume_output()

    def terminal_size_changed(self, width: int, height: int, pixwidth: int, pixheight: int) -> None:
        self.change_terminal(lambda it: set_size(it, (height, width, pixwidth, pixheight)))

    def break_received(self, msec: int) -> bool:
        # The kernel drops a break on a pseudo-terminal, as sshd's tcsendbreak does.
        return self.terminal is not None

    def signal_received(self, signal: str) -> None:
        self.owner.start_task(self.forward_signal(signal))

    def connection_lost(self, exc: Exception | None) -> None:
        # Closing the last descriptor of its master hangs up the terminal, and its programs get
        # SIGHUP. A program without a terminal only finds its pipes closed. Both are the same with
        # sshd.
        self.over = True
        self.terminal = None
        self.bridge.close()
        if self.task is not None:
            self.task.cancel()
        self.owner.remove_bridge(self.bridge)

    def change_terminal(self, change: Callable[[int], None]) -> None:
        """Apply a change to the terminal, if it still exists."""
        if self.terminal is not None:
            try:
                change(self.terminal)
            except OSError:
                self.terminal = None

    async def forward_signal(self, name: str) -> None:
        """Send the client's signal to the program and its children."""
        number = getattr(signal, f"SIG{name}", None)
        if isinstance(number, signal.Signals) and self.process is not None:
            await self.owner.host.send_signal(self.process.pid, number, whole_session=True)

    async def run(self) -> None:
        """Run the program from start to end."""
        try:
            account = await self.owner.host.ensure_account(self.owner.user)
            process = await self.start_program(await build_program(self, account))
        except OSError as error:
            if not self.over:
                self.channel.write(
                    f"the host could not start the program: {error}\r\n".encode(), STDERR
                )
                self.channel.exit(255)
            return
        self.process = process
        status = await process.wait()
        if self.terminal is None:
            await self.silent.wait()  # its children may still write: sshd waits, too
        else:
            self.bridge.read_remaining()
        self.report_exit(status)

    async def start_program(self, program: Program) -> Process:
        """Start the program on a terminal or on three pipes."""
        if self.channel.get_terminal_type() is None:
            return await self.start_on_pipes(program)
        columns, rows, width, height = self.channel.get_terminal_size()
        process, master = await self.owner.host.spawn_on_terminal(
            program, (rows, columns, width, height)
        )
        if self.over:
            os.close(master)
            return process
        self.terminal = master
        self.change_terminal(lambda it: set_modes(it, self.channel.get_terminal_modes()))
        columns, rows, width, height = self.channel.get_terminal_size()
        self.change_terminal(lambda it: set_size(it, (rows, columns, width, height)))
        self.bridge.attach_descriptors(SinkKind.TERMINAL, master, {master: None})
        return process

    async def start_on_pipes(self, program: Program) -> Process:
        """Start the program with its own stdin, stdout and stderr."""
        inputs, outputs, errors = os.pipe(), os.pipe(), os.pipe()
        theirs = (inputs[0], outputs[1], errors[1])
        ours = (inputs[1], outputs[0], errors[0])
        for descriptor in theirs:
            # Any user of the host may reopen its own /dev/stderr, even of a pipe by another user.
            os.fchmod(descriptor, 0o666)
        try:
            process = await self.owner.host.spawn_program(program, theirs)
        except BaseException:
            for descriptor in ours:
                os.close(descriptor)
            raise
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        if self.over:
            for descriptor in ours:
                os.close(descriptor)
        else:
            self.bridge.attach_descriptors(SinkKind.PIPE, ours[0], {ours[1]: None, ours[2]: STDERR})
        return process

    def report_exit(self, status: int) -> None:
        """Send the exit status and close. A host that died sends nothing: its
        connections are cut.
        """
        if self.over or self.owner.host.gone.is_set():
            return
        if os.WIFSIGNALED(status):
            name = signal.Signals(os.WTERMSIG(status)).name.removeprefix("SIG")
            self.channel.exit_with_signal(name, core_dumped=os.WCOREDUMP(status))
        else:
            self.channel.exit(os.WEXITSTATUS(status))


async def build_program(session: Session, account: Account) -> Program:
    """Return what to start: the user's shell, with the environment of sshd and PAM."""
    owner, channel = session.owner, session.channel
    passwd, environment = await asyncio.gather(
        read_text(owner.host, "/etc/passwd"), read_text(owner.host, "/etc/environment")
    )
    shell = login_shell(passwd, account.name)
    ends = owner.ends
    env = {
        **accepted_variables(channel.get_environment()),
        "USER": account.name,
        "LOGNAME": account.name,
        "HOME": account.home,
        "PATH": PATH,
        "SHELL": shell,
        **parse_environment(environment),
        "SSH_CLIENT": f"{ends[0]} {ends[1]} {ends[3]}",
        "SSH_CONNECTION": f"{ends[0]} {ends[1]} {ends[2]} {ends[3]}",
    }
    terminal = channel.get_terminal_type()
    if terminal is not None:
        env["TERM"] = terminal
    name = Path(shell).name
    command = session.command
    if session.transfers_files:
        server = sftp_server.find_program()
        if server is None:
            return Program(argv=[sftp_server.INTERNAL], env=env, user=account.name)
        command = f"exec {server}"  # through the user's shell, like sshd
    argv = [f"-{name}"] if command is None else [name, "-c", command]
    return Program(argv=argv, env=env, user=account.name, executable=shell)


async def read_text(host: Host, path: str) -> str:
    """Return the text of a file of the host; empty if it does not exist."""
    try:
        return (await host.read(path)).decode("utf-8", "replace")
    except (FileNotFoundError, PermissionError, IsADirectoryError):
        return ""
