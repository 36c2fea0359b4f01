# Run by the login shell of a host: start the agent there, or ask for it first. No single quotes here.
file="$HOME/.tpuherd/$1"
for python in /usr/bin/python3 /usr/local/bin/python3 /bin/python3 "$(command -v python3)"; do
    [ -x "$python" ] && break
done
if [ ! -x "$python" ]; then
    printf "\001tpuherd none\n"
    exit 127
fi
if [ -s "$file" ]; then
    printf "\001tpuherd have\n"
    exec "$python" -IS "$file" attach
fi
printf "\001tpuherd want\n"
exec "$python" -IS -c "import sys; exec(sys.stdin.buffer.read(int(sys.argv[3])))" "$@"
