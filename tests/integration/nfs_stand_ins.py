"""Programs in place of NFS's own on simulated hosts, whose kernel has no NFS.

They take the real ones' arguments and refuse what those would refuse. `exportfs` serves its table
on port 2049, and `mount.nfs` asks there from its own address, so who may mount what is decided
over the network, by the file that herd wrote. What is then mounted is an empty tmpfs.
"""

EXPORTFS = r"""#!/usr/bin/python3
import glob, os, re, socket, subprocess, sys

KNOWN = re.compile(r"rw|ro|sync|no_subtree_check|root_squash|all_squash|anon[ug]id=[0-9]+")
TABLE = "/run/exports.table"


def table():
    for file in ["/etc/exports", *glob.glob("/etc/exports.d/*.exports")]:
        for line in open(file):
            folder, *clients = line.partition("#")[0].split() or [""]
            for client in clients:
                address, options = re.fullmatch(r"([0-9.]+)\((.*)\)", client).groups()
                for one in options.split(","):
                    if not KNOWN.fullmatch(one):
                        sys.exit(f'exportfs: {file}: unknown keyword "{one}"')
                yield folder, address


def serve():
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind(("0.0.0.0", 2049))
    listening.listen()
    while True:
        line, (address, _) = listening.accept()
        path = line.recv(4096).decode()
        rows = [row.split() for row in open(TABLE)]
        if [path, address] in rows:
            line.sendall(b"ok")
        elif any(row[0] == path for row in rows):
            line.sendall(f"access denied by server while mounting {path}".encode())
        else:
            line.sendall(b"mounting failed, reason given by server: No such file or directory")
        line.close()


if sys.argv[1:] == ["serve"]:
    serve()
if sys.argv[1:] != ["-ra"]:
    sys.exit("exportfs: this stand-in knows -ra only")
rows = list(table())
open(TABLE, "w").write("".join(f"{folder} {address}\n" for folder, address in rows))
if not os.path.exists("/run/exports.served"):
    open("/run/exports.served", "w").close()
    nothing = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    subprocess.Popen(
        [sys.argv[0], "serve"], start_new_session=True, stderr=subprocess.DEVNULL, **nothing
    )
"""

MOUNT_NFS = r"""#!/usr/bin/python3
import re, socket, subprocess, sys

KNOWN = re.compile(r"rw|hard|noatime|nosuid|nodev|_netdev|nofail|(nfs)?vers=(3|4|4\.[012])")
source, target, *words = sys.argv[1:]
for one in words[words.index("-o") + 1].split(","):
    if not KNOWN.fullmatch(one):
        sys.exit(f"mount.nfs: an incorrect mount option was specified for {target}: {one}")
server, path = source.split(":", 1)
try:
    with socket.create_connection((server, 2049), timeout=3) as line:
        line.sendall(path.encode())
        said = line.recv(4096).decode()
except OSError as error:
    sys.exit(f"mount.nfs: {error.strerror or 'Connection timed out'}")
if said != "ok":
    sys.exit(f"mount.nfs: {said}")
sys.exit(subprocess.run(["mount", "-i", "-t", "tmpfs", source, target]).returncode)
"""
