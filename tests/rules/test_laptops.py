"""The controller calls nothing that only Linux has, as far as names and texts show.

What runs on hosts, and the simulator, may: they run on Linux only. `mypy --platform darwin`, in
tests/integration/test_macos_types.py, finds what types show.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

SRC = Path(__file__).parents[2] / "src"
#: Programs that run on Linux only: the simulator and its hosts, agents, and scripts for hosts.
LINUX = (
    "tpuherd_sim/",
    "tpuherd_host/agent/",
    "tpuherd_host/bucket_probe.py",
    "tpuherd_host/ray_cluster/",
    "tpuherd/remote/bootstrap_on_host.py",
)
#: Names of functions and constants that macOS lacks, or where they mean something else.
NAMES = re.compile(
    r"""sched_.* | prctl | fork | forkpty | pidfd_.* | posix_fa.* | e?poll | EPOLL\w+ | inotify\w*
    | eventfd\w* | memfd_create | timerfd\w* | splice | sendfile | copy_file_range | getrandom
    | preadv2? | pwritev2? | setres[ug]id | getres[ug]id | unshare | setns | \w+xattr | pipe2
    | F_OFD_\w+ | F_SETPIPE_SZ | SO_PEERCRED | SO_BINDTODEVICE | SO_DOMAIN | SO_PROTOCOL
    | SOCK_CLOEXEC | SOCK_NONBLOCK | SOCK_SEQPACKET | TCP_KEEPIDLE | TCP_USER_TIMEOUT | TCP_CORK
    | TCP_QUICKACK | TCP_INFO | MSG_CMSG_CLOEXEC | MSG_NOSIGNAL | MSG_MORE | MSG_ZEROCOPY
    | SCM_CREDENTIALS | AF_NETLINK | AF_VSOCK | AF_PACKET | O_TMPFILE | O_PATH | O_DIRECT
    | O_NOATIME | SIGRT\w+ | SIGPWR | SIGSTKFLT | SIGPOLL | sigtimedwait | sigwaitinfo
    | CLOCK_BOOTTIME | CLOCK_MONOTONIC_RAW | RLIMIT_RSS | prlimit""",
    re.VERBOSE,
)
#: Folders of the kernel, abstract sockets, and options that only GNU's programs have.
TEXTS = re.compile(
    r"/proc/|/sys/|/dev/shm|/run/user|/etc/os-release|^\0\w|\bstat -c|\breadlink -[fem]|\bdate -d"
    r"|\bdate --|\bsed -[Eri]+\b|/bin/true\b|\bgrep -\w*P|\bxargs -r|\bcp -\w*[tT]\b|\bls --"
    r"|\bsort -V|\bmktemp -p|\bps -\w*o? --|\bdu -b|\bhead -c-|\bsystemctl\b|\bflock -|\bsetsid "
)
#: What is found all the same, with the other branch or the reason. By file: name or text → reason.
EXCEPTIONS: dict[str, dict[str, str]] = {
    "tpuherd/cli/systemd_unit.py": {
        "systemctl": "the unit is for Linux; macOS has no such command"
    },
    "tpuherd/commands/async_files.py": {"poll": "select_readable on macOS"},
    "tpuherd/compat/setup_script.py": {
        "flock -": "shell text that hosts run",
        "setsid ": "shell text that hosts run",
    },
    "tpuherd/daemon/request.py": {"SO_PEERCRED": "LOCAL_PEERCRED, and the folder's mode"},
    "tpuherd/exports/shell_lines.py": {"setsid ": "shell text that hosts run"},
    "tpuherd/jobfile/nfs_folders.py": {
        "/proc/": "folders of hosts",
        "/sys/": "folders of hosts",
    },
    "tpuherd/peer_uid.py": {
        "/proc/": "elsewhere a forwarded port says that any local user may use it",
        "AF_NETLINK": "only where it exists",
    },
    "tpuherd/settings/project_access.py": {"/sys/": "where it is missing, it is not Google's"},
    "tpuherd_host/train/process_env.py": {"/proc/": "else the time of the import"},
    "tpuherd_host/train/profiler_server.py": {
        "/proc/": "only with SO_BINDTODEVICE",
        "\0h": "only with SO_BINDTODEVICE",
    },
    "tpuherd_host/train/stack_dump.py": {
        "SIGRTMAX": "only with memfd_create",
        "memfd_create": "only where it exists",
    },
}
#: Sentences for people about hosts.
ADVICE = ("tpuherd/diagnosis/", "tpuherd/checks/")


def controller_files() -> Iterator[tuple[str, ast.Module]]:
    for file in sorted(SRC.rglob("*.py")):
        name = str(file.relative_to(SRC))
        if not name.startswith(LINUX):
            yield name, ast.parse(file.read_text())


def linux_only_words(tree: ast.Module, *, texts: bool) -> Iterator[tuple[int, str]]:
    """The names and texts of a module that only Linux knows, with their lines."""
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=name) | ast.Name(id=name) | ast.alias(name=name):
                if NAMES.fullmatch(name):
                    yield node.lineno, name
            case ast.Constant(value=str(text)) if texts and id(node) not in docs:
                for found in TEXTS.findall(text):
                    yield node.lineno, found
            case _:
                pass


def test_every_call_that_only_linux_knows_has_another_branch() -> None:
    found = {
        (name, word): f"src/{name}:{line}: {word}"
        for name, tree in controller_files()
        for line, word in linux_only_words(tree, texts=not name.startswith(ADVICE))
    }
    excused = {(name, word) for name, words in EXCEPTIONS.items() for word in words}
    new = [where for key, where in found.items() if key not in excused]
    advice = "take what macOS has, too, or branch and name it in EXCEPTIONS of test_laptops.py"
    assert not new, "\n".join([advice, *new])
    gone = sorted(excused - found.keys())
    assert not gone, f"test_laptops.py: remove {gone} from EXCEPTIONS; they are found no more"


def test_the_rule_finds_what_only_linux_knows() -> None:
    text = """
"/proc in a docstring is no call"
from os import sched_getaffinity
os.posix_fallocate(1, 2, 3)
open("/proc/self/stat")
run(["sh", "-c", "stat -c %U x; readlink -f y; sed -i s/a/b/ z; true"])
connect("\\0abstract")
os.stat("/etc/hosts"), key.split("\\0")
"""
    found = [word for _, word in linux_only_words(ast.parse(text), texts=True)]
    assert sorted(found) == sorted([
        "sched_getaffinity", "posix_fallocate", "/proc/", "stat -c", "readlink -f", "sed -i", "\0a",
    ])  # fmt: skip
