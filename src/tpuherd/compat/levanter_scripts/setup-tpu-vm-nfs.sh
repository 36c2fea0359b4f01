# One virtual environment for all hosts, on a file server: NFS_SERVER says which and what,
# such as 10.0.0.2:/share, and MOUNT_POINT where it appears (/files).
place="${MOUNT_POINT:-/files}"
umask 000
if [ -z "${NFS_SERVER:-}" ]; then
  echo "set NFS_SERVER in your shell, such as NFS_SERVER=10.0.0.2:/share" >&2
  exit 78
fi

if ! mountpoint -q "$place"; then
  if ! command -v mount.nfs >/dev/null; then
    as_root apt-get -o DPkg::Lock::Timeout=600 -qq update
    as_root apt-get -o DPkg::Lock::Timeout=600 -qq install -y nfs-common
  fi
  as_root mkdir -p "$place"
  # Found again after a reboot; the same server under another share is replaced.
  grep -v "[[:space:]]$place[[:space:]]" /etc/fstab >"$HOME/.levanter/fstab" || true
  printf '%s %s nfs defaults 0 0\n' "$NFS_SERVER" "$place" >>"$HOME/.levanter/fstab"
  as_root cp "$HOME/.levanter/fstab" /etc/fstab
  as_root mount "$place"
fi

# The hosts share it, so one installs while the others wait; then they find all of it there.
exec 9>"$place/.levanter-venv.lock"
flock 9
make_venv "$place/levanter-venv"
