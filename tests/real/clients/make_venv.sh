#!/bin/sh
# Makes the environments of the clients that the tests run: make_venv.sh [NAME…], into .venv-clients/NAME.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
into=$root/.venv-clients
python=${PYTHON:-$root/.venv/bin/python}
[ $# -gt 0 ] || set -- light inside

for name in "$@"; do
    wanted=$here/$name.txt
    [ -f "$wanted" ] || { echo "make_venv.sh: no client called $name" >&2; exit 2; }
    cmp -s "$wanted" "$into/$name/made-from.txt" && continue
    case $name in
        inside | ray) interpreter=/usr/bin/python3 ;;  # the one that the simulated hosts have, too
        *) interpreter=$python ;;
    esac
    rm -rf "${into:?}/$name"
    mkdir -p "$into"
    if command -v uv >/dev/null 2>&1; then
        uv venv --quiet --python "$interpreter" "$into/$name"
        uv pip install --quiet --python "$into/$name/bin/python" -r "$wanted"
    else
        "$interpreter" -m venv "$into/$name"
        "$into/$name/bin/pip" install --quiet --disable-pip-version-check -r "$wanted"
    fi
    cp "$wanted" "$into/$name/made-from.txt"
done
