# Mounts SERVER on FOLDER, now and at each boot. Without SERVER: exports FOLDER to CLIENTS.
# It may be repeated. The last line that it prints says why it failed.
export LC_ALL=C PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"
fail() { echo "$*"; exit 1; }
root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi; }
apt() { root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 "$@"; }
add() { apt install -y "$1" || { apt update && apt install -y "$1"; } || fail "$1 can't be installed"; }
replace() { root tee "$1.new" >/dev/null && root mv "$1.new" "$1"; }
there=$(findmnt -n -o SOURCE --mountpoint "$FOLDER" | tail -n 1) exports=/etc/exports.d/tpuherd.exports
if [ -z "$SERVER" ]; then
  case "$there" in *:/*) fail "$FOLDER is itself mounted here, from $there" ;; esac
  [ -d "$FOLDER" ] || root install -d -o "$(id -u)" -g "$(id -g)" "$FOLDER" || fail "$FOLDER can't be made"
  [ -n "$CLIENTS" ] && { command -v exportfs || add nfs-kernel-server; } || exit 0
  root mkdir -p /etc/exports.d && root touch /etc/exports "$exports"
  only="(rw,sync,no_subtree_check,root_squash,all_squash,anonuid=$(id -u),anongid=$(id -g))"
  { awk -v f="$FOLDER" '$1 != f' "$exports"; echo "$FOLDER$(printf " %s$only" $CLIENTS)"; } | replace "$exports"
  [ ! -d /run/systemd/system ] || root systemctl enable --now nfs-server
  root exportfs -ra && exit 0 || fail "$FOLDER can't be exported"
fi
timeout 5 stat -f "$FOLDER" >/dev/null && { [ "$there" != "$SERVER" ] || exit 0; } || lost="-f -l"
ours=$(awk -v f="$FOLDER" '!/^#/ && $2 == f { print /x-tpuherd/ ? "yes" : "no" }' /etc/fstab)
[ "$ours" != no ] || fail "/etc/fstab has a line for $FOLDER that is not herd's"
[ -z "$there$ours" ] || [ "$ours" ] || fail "$there is mounted on $FOLDER, and herd did not mount it: choose another folder"
[ -z "$there" ] || root umount $lost "$FOLDER" || fail "$FOLDER is in use: end the programs that use it first"
[ -z "$(ls -A "$FOLDER")" ] || fail "$FOLDER has files on this host, which a mount would hide: move them"
command -v mount.nfs || add nfs-common
others=$(awk -v f="$FOLDER" '/^#/ || $2 != f' /etc/fstab) options="hard,noatime,nosuid,nodev,_netdev,nofail,x-tpuherd"
printf '%s\n' "$others" "$SERVER $FOLDER nfs $VERSION$options 0 0" | replace /etc/fstab && root mkdir -p "$FOLDER"
said=$(root timeout -k 5 100 mount "$FOLDER" 2>&1) || findmnt -S "$SERVER" --mountpoint "$FOLDER" && exit 0
printf '%s\n' "$others" | replace /etc/fstab
fail "$(echo "${said:-timed out after 100 s}" | tail -n 1)"
