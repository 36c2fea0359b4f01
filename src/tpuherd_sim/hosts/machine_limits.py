"""The limits of this machine that many hosts meet: raised where allowed, else named."""

import errno
import resource

FILES_MAX = 65536
FILES_PER_HOST = 20  #: open files of the world for a host with an agent and two connections
#: What the kernel means by these when it starts a host, and what raises the limit.
REASONS = {
    errno.ENOSPC: "no namespaces are left: raise the sysctls user.max_*_namespaces",
    errno.EAGAIN: "no processes are left: raise ulimit -u and sysctl kernel.pid_max",
    errno.ENOMEM: "this machine has no memory left for another host",
}  # fmt: skip


def raise_file_limit() -> None:
    """Raise the limit of open files to FILES_MAX, or as far as this user may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= FILES_MAX:
        return
    if hard == resource.RLIM_INFINITY or hard >= FILES_MAX:
        resource.setrlimit(resource.RLIMIT_NOFILE, (FILES_MAX, hard))
        return
    try:  # root may raise both
        resource.setrlimit(resource.RLIMIT_NOFILE, (FILES_MAX, FILES_MAX))
    except (ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def boot_error_reason(error: OSError) -> str:
    """Return why a host did not start, with the limit to raise if it was one."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return (
            f"the world may have {most} open files, enough for about {most // FILES_PER_HOST}"
            f" hosts: raise ulimit -n (up to {FILES_MAX}) and start the world again"
        )
    return REASONS.get(error.errno or 0, error.strerror or str(error))
