"""The isolation modes of hosts, and why a better one may be unavailable."""

from pathlib import Path

MODES = ("namespaces-root", "namespaces-user", "processes")

#: The uid of hosts on the machine when the world runs as root; the following ids are their users.
HOSTS_UID = 0x70000000

#: Kernel settings that forbid user namespaces, with the forbidding value. They only explain a
#: refusal, which is found by trying.
FORBIDDING = {
    "kernel/apparmor_restrict_unprivileged_userns": "1",
    "kernel/unprivileged_userns_clone": "0",
    "user/max_user_namespaces": "0",
}


def refusal_sentence(mode: str, error: OSError) -> str:
    """Return why this mode is not available here."""
    sentence = f"{mode}: not possible here ({error.strerror or error})"
    for name, value in FORBIDDING.items():
        try:
            found = Path("/proc/sys", name).read_text().strip()
        except OSError:
            continue
        if found == value and mode != "processes":
            sentence += f" (sysctl {name.replace('/', '.')} is {value}, which forbids it)"
    return sentence
