# Runs a command in Levanter's environment, on every host: its virtual environment, its modules.
# The environment is the first that exists: $VENV, the one named in infra/venv_path.txt,
# ~/levanter/.venv, or the one that herd's setup has made.
code="$HOME/levanter"
# Hosts may know their user by different numbers, so what they share on a file server is open to all.
if [ -n "${NFS_SERVER:-}" ]; then umask 000; fi
ulimit -s 65536 2>/dev/null || ulimit -s "$(ulimit -Hs)"

named=""
if [ -f "$code/infra/venv_path.txt" ]; then named="$(cat "$code/infra/venv_path.txt")"; fi
if [ -f "$HOME/.levanter/venv_path" ]; then made="$(cat "$HOME/.levanter/venv_path")"; else made=""; fi
for folder in "${VENV:-}" "$named" "$code/.venv" "$made"; do
  if [ -n "$folder" ] && [ -f "$folder/bin/activate" ]; then
    export VENV="$folder"
    . "$folder/bin/activate"
    break
  fi
done
export PYTHONPATH="$code:$code/src:$code/examples${PYTHONPATH:+:$PYTHONPATH}"
exec "$@"
