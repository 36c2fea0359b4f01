# Run by the login shell of a host: start the agent there, or ask for it first. No single quotes here.
file="$HOME/.tpuherd/$1"
for python in /usr/bin/python3 /usr/local/bin/python3 /bin/python3 "$(command -v python3)"; do
    [ -x "$python" ] && break
done
if [ ! -x "$python" ]; then
    printf "\001tpuherd none\n"
    exit 127
fi
# What Python does with an archive it is given, but for the 8 ms in which it loads what does it.
become="
import sys, zipimport
del sys.argv[0]
sys.path.insert(0, sys.argv[0])
exec(zipimport.zipimporter(sys.argv[0]).get_code(\"__main__\"))
"
if [ -s "$file" ]; then
    printf "\001tpuherd have\n"
    exec "$python" -IS -c "$become" "$file" attach
fi
exec "$python" -IS -c "
import sys
from _frozen_importlib_external import MAGIC_NUMBER
tag = str(sys.implementation.cache_tag) + chr(45) + MAGIC_NUMBER.hex()
sys.stdout.write(chr(1) + \"tpuherd want \" + tag + chr(10))
sys.stdout.flush()
exec(sys.stdin.buffer.read(int(sys.stdin.buffer.readline())))
$become" "$file" attach
