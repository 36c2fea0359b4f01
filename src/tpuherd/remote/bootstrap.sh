# Run by a host's sh, however its login shell came to that: have Python start the agent.
for python in /usr/bin/python3 /usr/local/bin/python3 /bin/python3 ""; do
    [ -x "$python" ] && break
done
[ -x "$python" ] || python=$(command -v python3)
if [ ! -x "$python" ]; then
    printf "\001tpuherd none\n"
    exit 127
fi
# LD_PRELOAD is for commands; the agent and what starts it do without.
if [ -n "$LD_PRELOAD" ]; then
    export HERD_LD_PRELOAD="$LD_PRELOAD"
    unset LD_PRELOAD
fi
exec "$python" -IS -c "$(printf %b "$3")" "$HOME/.tpuherd/$2"
