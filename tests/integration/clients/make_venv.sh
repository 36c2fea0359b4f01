#!/bin/sh
# Makes the environments of the clients that the tests run: make_venv.sh [NAME…], into .venv-clients/NAME.
# One that can't be made here is named, removed, and keeps no other from being made.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
into=$root/.venv-clients
python=${PYTHON:-$root/.venv/bin/python}
[ $# -gt 0 ] || set -- light inside

installed() {  # NAME WANTED INTERPRETER
    if command -v uv >/dev/null 2>&1; then
        # uv has a word of its own for where pip finds wheels.
        uv venv --quiet --python "$3" "$into/$1" &&
            UV_FIND_LINKS="${UV_FIND_LINKS-${PIP_FIND_LINKS-}}" \
                uv pip install --quiet --python "$into/$1/bin/python" -r "$2"
    else
        "$3" -m venv "$into/$1" &&
            "$into/$1/bin/pip" install --quiet --disable-pip-version-check -r "$2"
    fi && cp "$2" "$into/$1/made-from.txt"
}

result=0
for name in "$@"; do
    wanted=$here/$name.txt
    [ -f "$wanted" ] || { echo "make_venv.sh: no client called $name" >&2; exit 2; }
    cmp -s "$wanted" "$into/$name/made-from.txt" && continue
    case $name in
        inside | ray | wandb) interpreter=/usr/bin/python3 ;;  # the one that the simulated hosts have, too
        *) interpreter=$python ;;
    esac
    rm -rf "${into:?}/$name"
    mkdir -p "$into"
    installed "$name" "$wanted" "$interpreter" && continue
    echo "make_venv.sh: $name can't be made here; its tests are skipped" >&2
    rm -rf "${into:?}/$name"
    result=1
done
exit $result
