"""The layer over the machine's directories with what only hosts have.

It is made once per world in a tmpfs, by a process that is root in the hosts but has no rights on
the machine, so private files of the machine can't get in.
"""

import os
import re
import shutil
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

#: What a host inherits from the machine's /etc. This is an allow list: everything else stays out.
ETC = """
    adduser.conf alternatives apt bindresvport.blacklist ca-certificates ca-certificates.conf
    cron.d cron.daily cron.weekly crypto-policies debconf.conf debian_version default deluser.conf
    dpkg emacs environment.d ethertypes fonts gai.conf gss gtk-2.0 gtk-3.0 host.conf init.d inputrc
    issue issue.net java-11-openjdk java-17-openjdk java-21-openjdk kernel ld.so.cache ld.so.conf
    ld.so.conf.d ldap libaudit.conf locale.alias locale.conf locale.gen localtime logcheck
    login.defs logrotate.d lsb-release magic mailcap manpath.config mime.types mke2fs.conf
    modprobe.d modules-load.d netconfig networks nsswitch.conf opt os-release pam.conf pam.d
    perl pki pm polkit-1 protocols python2.7 python3 python3.6 python3.8 python3.9 python3.10
    python3.11 python3.12 python3.13 python3.14 rc0.d rc1.d rc2.d rc3.d rc4.d rc5.d rc6.d rcS.d
    redhat-release rpc rpm security selinux services sgml shells ssl subgid subuid sysctl.conf
    sysctl.d terminfo timezone tmpfiles.d ucf.conf update-motd.d vim wgetrc X11 xattr.conf xdg xml
    yum.repos.d dnf zypp debuginfod groff openal pulse sensors3.conf sensors.d skel
""".split()
#: … but never these, which may contain keys or passwords.
SECRET = re.compile(
    r"/etc/(ssl/private|apt/auth\.conf|apt/auth\.conf\.d|pki/(tls/private|nssdb|consumer)|default/"
    r"(docker|keyboard-restic)|yum\.repos\.d/redhat\.repo|security/opasswd|skel)(/|$)"
)
#: package sources with secrets, which are left out
TELLING = re.compile(rb"proxy|://[^/\s]*@", re.IGNORECASE)
VAR = """
    lib/apt/extended_states lib/dictionaries-common lib/emacsen-common lib/pam lib/python
    lib/sgml-base lib/shells.state lib/systemd/deb-systemd-helper-enabled lib/ucf lib/xml-core
    lib/rpm
""".split()
PLACES = {
    "root": 0o755, "home": 0o755, "tmp": 0o1777, "run": 0o755, "mnt": 0o755, "media": 0o755,
    "srv": 0o755, "opt": 0o755, "dev": 0o755, "proc": 0o555, "sys": 0o555,
    "usr": 0o755, "var": 0o755, "var/tmp": 0o1777, "var/log": 0o755, "var/log/apt": 0o755,
    "var/cache": 0o755, "var/cache/apt/archives/partial": 0o755, "var/cache/debconf": 0o755,
    "var/lib": 0o755, "var/lib/apt/lists/partial": 0o755, "var/lib/apt/mirrors/partial": 0o755,
    "var/lib/apt/periodic": 0o755, "var/lib/dpkg": 0o755, "var/lib/misc": 0o755,
    "var/spool": 0o755, "var/mail": 0o1777, "var/opt": 0o755, "var/local": 0o755,
    "var/backups": 0o755,
}  # fmt: skip
DPKG = "status available diversions statoverride triggers/File triggers/Unincorp arch".split()
GROUPS = {"google-sudoers": 1000}
ROOT_SHELL = "usr/lib/tpuherd/rootshell"

RootfsFiles = dict[str, bytes]  #: path inside → content


def read_rootfs_files() -> RootfsFiles:
    """Read our own files before giving up the rights to read them."""
    base = Path(__file__).with_name("rootfs_files")
    return {
        str(path.relative_to(base)): path.read_bytes() for path in base.rglob("*") if path.is_file()
    }


def build_layers(
    own: Path, files: RootfsFiles, private: Iterable[Path], *, single_id: bool
) -> None:
    """Build everything below `own`: root, usr without the machine's private files, dpkg."""
    os.umask(0o022)
    make_root(own / "root")
    make_etc(own / "root/etc")
    for name in VAR:
        copy_allowed(Path("/var") / name, own / "root/var" / name)
    make_dpkg(own / "dpkg", single_id=single_id)
    (own / "usr").mkdir()
    if single_id:
        copy_skeleton(Path("/usr"), own / "usr")
    else:
        hide_private_files(private, Path("/usr"), own / "usr")
    write_rootfs_files(own, files)
    make_root_shell(own, single_id=single_id)


def make_root(root: Path) -> None:
    """Create the top directories and links as the machine has them."""
    root.mkdir()
    for name, mode in PLACES.items():
        (root / name).mkdir(parents=True, exist_ok=True)
        (root / name).chmod(mode)
    for path in Path("/").iterdir():
        if path.is_symlink() and not path.readlink().is_absolute():
            (root / path.name).symlink_to(path.readlink())
    for name in top_directories():
        (root / name).mkdir(exist_ok=True)
    (root / "var/run").symlink_to("/run")
    (root / "var/lock").symlink_to("/run/lock")
    (root / "root").chmod(0o711)


def top_directories() -> list[str]:
    """Return the machine's top directories with programs that are not links into /usr."""
    names = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
    return [name for name in names if Path("/", name).is_dir() and not Path("/", name).is_symlink()]


def make_etc(etc: Path) -> None:
    """Create /etc: the allowed parts of the machine's, with only system users and groups."""
    etc.mkdir()
    for name in ETC:
        copy_allowed(Path("/etc") / name, etc / name)
    for pattern in ("apt/sources.list", "apt/sources.list.d/*", "apt/apt.conf.d/*", "apt/apt.conf"):
        for path in etc.glob(pattern):
            if path.is_file() and TELLING.search(path.read_bytes()):
                path.unlink()
    system = [line for line in read_lines(Path("/etc/passwd")) if is_system_entry(line)]
    users = {line.split(":")[0] for line in system}
    (etc / "passwd").write_text("".join(f"{line}\n" for line in system))
    shadow = "".join(f"{name}:*:19000:0:99999:7:::\n" for name in sorted(users))
    (etc / "shadow").write_text(shadow)
    (etc / "shadow").chmod(0o600)
    groups = ""
    for line in read_lines(Path("/etc/group")):
        if is_system_entry(line):
            name, password, number, members = [*line.split(":"), "", "", "", ""][:4]
            kept = ",".join(member for member in members.split(",") if member in users)
            groups += f"{name}:{password}:{number}:{kept}\n"
    groups += "".join(f"{name}:x:{number}:\n" for name, number in GROUPS.items())
    (etc / "group").write_text(groups)
    (etc / "mtab").symlink_to("/proc/self/mounts")
    for name in ("fstab", "motd", "subuid", "subgid"):
        (etc / name).unlink(missing_ok=True)
        (etc / name).touch()
    (etc / "profile.d").mkdir()


def read_lines(path: Path) -> list[str]:
    """Return the lines of a file; none if it can't be read."""
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError:
        return []


def is_system_entry(line: str) -> bool:
    """Whether a line of passwd or group belongs to the system, not to a person."""
    number = [*line.split(":"), "", "", ""][2]
    return number.isdigit() and (int(number) < 1000 or number == "65534")


def copy_allowed(source: Path, target: Path) -> None:
    """Copy readable files that are not secret; silently skip the others."""
    if SECRET.search(str(source)):
        return
    try:
        mode = source.lstat().st_mode
        if stat.S_ISLNK(mode):
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(source.readlink())
        elif stat.S_ISDIR(mode):
            names = sorted(source.iterdir())
            target.mkdir(parents=True, exist_ok=True)
            for name in names:
                copy_allowed(name, target / name.name)
        elif stat.S_ISREG(mode):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
            target.chmod(mode & 0o755)
    except (PermissionError, FileNotFoundError):
        return


def make_dpkg(target: Path, *, single_id: bool) -> None:
    """Copy the part of the package database that dpkg locks or links, which hosts must own."""
    target.mkdir()
    if single_id:
        copy_skeleton(Path("/var/lib/dpkg"), target)
    (target / "triggers").mkdir(exist_ok=True)
    if not Path("/var/lib/dpkg/status").exists():
        return
    for name in DPKG:
        copy_allowed(Path("/var/lib/dpkg") / name, target / name)
    for name in ("lock", "lock-frontend", "triggers/Lock"):
        (target / name).touch(0o640)


def copy_skeleton(source: Path, target: Path) -> None:
    """Copy the directories without files: hosts can't create or delete in directories of others."""
    left = [(str(source), str(target))]
    while left:
        above, copied = left.pop()
        try:
            with os.scandir(above) as entries:
                names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        except PermissionError:
            continue
        for name in names:
            Path(copied, name).mkdir()
            left.append((f"{above}/{name}", f"{copied}/{name}"))


def find_private_files(top: Path) -> list[Path]:
    """Everything below `top` that not everyone may read; folders without what is in them."""
    private, left = [], [str(top)]
    while left:
        try:
            with os.scandir(left.pop()) as entries:
                found = [one for one in entries if not one.is_symlink()]
        except FileNotFoundError:
            continue  # removed meanwhile
        for entry in found:
            with suppress(FileNotFoundError):
                mode = entry.stat(follow_symlinks=False).st_mode
                if stat.S_ISDIR(mode) and mode & 0o5 == 0o5:
                    left.append(entry.path)
                elif not mode & 0o4 or stat.S_ISDIR(mode):
                    private.append(Path(entry.path))
    return private


def hide_private_files(private: Iterable[Path], source: Path, target: Path) -> None:
    """White out files that are private on the machine, because a host's root could read them."""
    for path in private:
        hidden = target / path.relative_to(source)
        hidden.parent.mkdir(parents=True, exist_ok=True)
        os.mknod(hidden, stat.S_IFCHR, os.makedev(0, 0))


def write_rootfs_files(own: Path, files: RootfsFiles) -> None:
    """Write our own files, with programs executable."""
    for name, content in files.items():
        path = own / name if name.startswith("usr/") else own / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_bytes(content)
        path.chmod(0o755 if content.startswith(b"#!") else 0o644)
    for name in ("reboot", "poweroff", "halt"):
        path = own / "usr/sbin" / name
        path.unlink(missing_ok=True)
        path.symlink_to("shutdown")


def make_root_shell(own: Path, *, single_id: bool) -> None:
    """Install the shell behind `sudo`, which is setuid if there are several users."""
    path = own / ROOT_SHELL
    path.parent.mkdir(parents=True, exist_ok=True)
    if single_id:
        path.symlink_to("/bin/bash")
    elif Path("/bin/bash").exists():
        shutil.copyfile("/bin/bash", path)
        path.chmod(0o4755)
    (path.parent / "libtpu.so").touch()
