"""The kinds of hosts that there are, and what may stand in the way of the better ones."""

from pathlib import Path

MODES = ("namespaces-root", "namespaces-user", "processes")

#: Whom hosts run as, seen from the machine, when the world runs as root; and the users after it.
HOSTS_UID = 0x70000000

#: Settings of the kernel that forbid user namespaces, with the value by which they do.
#: They only explain a refusal: whether one is refused is found out by trying.
FORBIDDING = {
    "kernel/apparmor_restrict_unprivileged_userns": "1",
    "kernel/unprivileged_userns_clone": "0",
    "user/max_user_namespaces": "0",
}


def refusal_sentence(mode: str, error: OSError) -> str:
    """Why hosts of that kind can't be had here."""
    sentence = f"{mode}: not possible here ({error.strerror or error})"
    for name, value in FORBIDDING.items():
        try:
            found = Path("/proc/sys", name).read_text().strip()
        except OSError:
            continue
        if found == value and mode != "processes":
            sentence += f" (sysctl {name.replace('/', '.')} is {value}, which forbids it)"
    return sentence
