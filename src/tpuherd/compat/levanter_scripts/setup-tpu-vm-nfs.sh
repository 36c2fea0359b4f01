# One virtual environment for all hosts, on the file server that the job mounts: NFS_SERVER says
# which and what, such as 10.0.0.2:/share, and MOUNT_POINT where it appears (/files).
place="${MOUNT_POINT:-/files}"
umask 000
if [ -z "${NFS_SERVER:-}" ]; then
  echo "set NFS_SERVER in your shell, such as NFS_SERVER=10.0.0.2:/share" >&2
  exit 78
fi

# The hosts share it, so one installs while the others wait; then they find all of it there.
exec 9>"$place/.levanter-venv.lock"
flock 9
make_venv "$place/levanter-venv"
