# What both set-ups do first: quiet the host, and put the code where Levanter's scripts expect it.
set -eu

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

# A daily upgrade holds the lock of apt for minutes on a new VM.
if command -v systemctl >/dev/null && systemctl is-active --quiet unattended-upgrades 2>/dev/null; then
  as_root systemctl disable --now unattended-upgrades || echo "unattended-upgrades goes on" >&2
fi

# Images preload tcmalloc into every program, which breaks some; and TensorStore waits too long
# for a stalled download.
settings=/etc/environment
if [ -f "$settings" ] && grep -q '^LD_PRELOAD=.*tcmalloc' "$settings"; then
  as_root sed -i 's/^LD_PRELOAD=.*tcmalloc/#&/' "$settings"
fi
if [ -f "$settings" ] && ! grep -q '^TENSORSTORE_CURL_LOW_SPEED_TIME_SECONDS=' "$settings"; then
  printf '%s\n' TENSORSTORE_CURL_LOW_SPEED_TIME_SECONDS=60 \
    TENSORSTORE_CURL_LOW_SPEED_LIMIT_BYTES=1024 | as_root tee -a "$settings" >/dev/null
fi

# The commands of Levanter's users begin with levanter/.
if [ -e "$HOME/levanter" ] && [ ! -L "$HOME/levanter" ]; then
  echo "~/levanter is in the way: it is not herd's link to the code" >&2
  exit 78
fi
ln -sfn "$PWD" "$HOME/levanter"

need_uv() {
  PATH="$HOME/.local/bin:$PATH"
  command -v uv >/dev/null || python3 -m pip install --quiet --user uv
}

# make_venv FOLDER: Python 3.11 or newer, and what the code asks for.
make_venv() {
  if [ ! -x "$1/bin/python" ]; then
    # The host's own Python if it is new enough, else one that uv fetches.
    if python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
      python3 -m venv --without-pip "$1"  # uv installs, and bringing pip takes many seconds
    else
      need_uv
      uv venv --quiet --python '>=3.11' "$1"
    fi
  fi
  if [ -f pyproject.toml ] || [ -f requirements.txt ]; then need_uv; fi
  if [ -f pyproject.toml ]; then
    extra=""
    if grep -Eq '^[[:space:]]*"?tpu"?[[:space:]]*=' pyproject.toml; then extra="--extra tpu"; fi
    # shellcheck disable=SC2086
    UV_PROJECT_ENVIRONMENT="$1" uv sync --quiet --inexact $extra
  elif [ -f requirements.txt ]; then
    uv pip install --quiet --python "$1/bin/python" -r requirements.txt
  fi
  printf '%s\n' "$1" >"$HOME/.levanter/venv_path"
}
