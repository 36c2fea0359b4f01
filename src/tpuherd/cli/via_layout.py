"""Paths on the other machine, which both ends of `via:` share."""

ROOT = ".tpuherd-via"  #: in the login's home: our package, and a folder for each context
CURRENT = "current/bin/python"  #: of the version that was installed last
CARRIED, RUNNING = "carried", "run"  #: of a context: uploads of commands, and their process ids
LETTER, DIGEST = "letter.json", "letter"  #: the context's settings, and their digest
PROGRAM = "herd"
#: The subcommands of `herd sweep`: any other word is a job file.
SHOWN = frozenset(("status", "best", "plot"))
#: Those of `herd map`: any other word is a job or a job file.
MAP_SHOWN = frozenset(("status", "logs"))
