"""Runs on a host that has no agent yet: takes it from stdin, puts it in place and becomes it."""

import os
import sys
import zlib


def main() -> None:
    """The arguments: its name, its length, the length of this text, and its checksum.

    The whole start of a host waits for this: it imports nothing that takes time.
    """
    name, length, checksum = sys.argv[1], int(sys.argv[2]), sys.argv[4]
    folder = os.path.expanduser("~/.tpuherd")
    file = folder + "/" + name
    half = file + "." + str(os.getpid())
    content = sys.stdin.buffer.read(length)
    if str(zlib.crc32(content)) != checksum:
        sys.exit("the agent did not arrive whole")
    try:
        os.makedirs(folder, 0o700, exist_ok=True)
        with open(half, "wb") as stream:
            stream.write(content)
        os.rename(half, file)
    except OSError as error:
        try:
            os.unlink(half)
        except OSError:
            pass
        sys.exit("it can't be put into " + folder + ": " + str(error.strerror))
    sys.stdout.write("\001tpuherd have\n")
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-IS", file, "attach"])


if __name__ == "__main__":
    main()
