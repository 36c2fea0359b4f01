"""Runs hosts as process groups with a folder each, where namespaces are unavailable."""

import os
import shutil
import signal
import socket
import tempfile
from pathlib import Path

from tpuherd_sim.hosts import init, landlock, syscalls
from tpuherd_sim.hosts.isolation_modes import HOSTS_UID
from tpuherd_sim.hosts.messages import Message

ROOTFS_FILES = Path(__file__).with_name("rootfs_files")
REFUSED = """
    apt apt-get dpkg halt init kexec mkfs mount poweroff reboot service shutdown su sudo systemctl
    telinit umount
""".split()
REFUSED_WITHOUT_WALLS = "killall killall5 pkill skill".split()
REFUSAL = """#!/bin/sh
echo "${0##*/}: refused, because this host is not isolated from this machine \
(which allows no user namespaces) and the command could harm it" >&2
exit 1
"""
SYSTEMCTL = (
    """#!/bin/sh
mark=$TMPDIR/../run/stopping
case $* in
  is-system-running)
    [ ! -e "$mark" ] && echo running && exit
    echo stopping
    exit 1 ;;
  list-jobs)
    [ ! -e "$mark" ] || exec cat "$mark"
    exit 0 ;;
esac
"""
    + REFUSAL
)
CAREFUL_RM = """#!/bin/sh
for word in "$@"; do
  case $word in
    / | /. | /.. | /\\* | /[!/]* | --no-preserve-root)
      case $word in "$HOME"/* | "$TMPDIR"/* | /tmp/*) continue ;; esac
      echo "rm: refused, because this host is not isolated from this machine \
(which allows no user namespaces) and $word is outside its home" >&2
      exit 1 ;;
  esac
done
exec /bin/rm "$@"
"""


class ProcessBackend:
    """Hosts as process groups; commands that could harm the machine are refused."""

    def __init__(self, order: Message) -> None:
        self.folder = Path(order["folder"], "hosts")
        elsewhere = Path(order["folder"], "elsewhere")
        for left in (self.folder, Path(elsewhere.read_text()) if elsewhere.exists() else None):
            if left is not None:  # left by a world that was killed
                shutil.rmtree(left, ignore_errors=True)
        if os.getuid() == 0:
            # The hosts' user could not enter the folder where root keeps its worlds.
            self.folder = Path(tempfile.mkdtemp(prefix="tpuherd-hosts-"))
            self.folder.chmod(0o711)
            elsewhere.write_text(str(self.folder))
        self.folder.mkdir(exist_ok=True)
        self.offers: list[str] = order["offers"]
        self.refusals = self.folder / "refusals"
        self.make_refusals()
        self.skel = self.folder / "skel"  # the hosts' user may not be able to read our own files
        shutil.copytree(ROOTFS_FILES / "etc/skel", self.skel, dirs_exist_ok=True)
        syscalls.adopt_orphans()
        signal.signal(signal.SIGTERM, lambda *_: self.exit_now())
        syscalls.die_with_parent(signal.SIGTERM)

    def make_refusals(self) -> None:
        """Install programs that refuse, first in the hosts' PATH."""
        self.refusals.mkdir(exist_ok=True)
        names = REFUSED if landlock.can_block_signals() else REFUSED + REFUSED_WITHOUT_WALLS
        programs = dict.fromkeys(names, REFUSAL) | {"rm": CAREFUL_RM, "systemctl": SYSTEMCTL}
        for name, text in programs.items():
            (self.refusals / name).write_text(text)
            (self.refusals / name).chmod(0o755)

    def start_host(self, number: int, plan: Message, link: int) -> int:
        """Start a host: a process that leads all of its others."""
        corner = self.folder / str(number)
        corner.mkdir(exist_ok=True)
        if os.getuid() == 0:
            os.chown(corner, HOSTS_UID, HOSTS_UID)
        plan |= {"corner": str(corner), "refusals": str(self.refusals), "offers": self.offers}
        plan["skel"] = str(self.skel)
        pid = os.fork()
        if pid == 0:
            self.become_host(link, plan)
        return pid

    def become_host(self, link: int, plan: Message) -> None:
        """Start a host in the child."""
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.dup2(link, 1000)
            os.closerange(3, 1000)
            if os.getuid() == 0:
                os.setgroups([])
                os.setresgid(HOSTS_UID, HOSTS_UID, HOSTS_UID)
                os.setresuid(HOSTS_UID, HOSTS_UID, HOSTS_UID)
                syscalls.be_dumpable()
            init.run_shared(socket.socket(fileno=1000), plan)
        finally:
            os._exit(1)

    def kill_host(self, pid: int) -> None:
        syscalls.kill_family(pid)

    def clean_up_host(self, _: int, leaders: set[int]) -> None:
        """End the orphans of a dead leader."""
        kept = leaders | {os.getpid()}
        for child in syscalls.child_processes(os.getpid()):
            if child not in kept:
                syscalls.kill_family(child)

    def set_network(self, _: int, __: int, network: str) -> None:
        """Open or close access to the host, because its network is the machine's."""
        if network == "slow":
            raise OSError(95, "a slow network can't be simulated without namespaces")

    def set_disk_full(self, _: int, *, full: bool) -> None:
        """Refuse, because the disk is the machine's."""
        if full:
            raise OSError(95, "a full disk can't be simulated without namespaces")

    def delete_disk(self, number: int) -> None:
        shutil.rmtree(self.folder / str(number), ignore_errors=True)

    def exit_now(self) -> None:
        """Exit because the controller is dead."""
        self.close()
        os._exit(0)

    def close(self) -> None:
        """End all hosts."""
        for child in syscalls.child_processes(os.getpid()):
            syscalls.kill_family(child)
        shutil.rmtree(self.folder, ignore_errors=True)
