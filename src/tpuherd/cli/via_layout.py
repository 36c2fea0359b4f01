"""What both ends of `via:` agree on: where things are on the other machine."""

ROOT = ".tpuherd-via"  #: in the login's home: our package, and a folder a context
CURRENT = "current/bin/python"  #: of the version that was installed last
CARRIED, RUNNING = "carried", "run"  #: of a context: what commands brought, and their process ids
LETTER, DIGEST = "letter.json", "letter"  #: what it must know; by which it knows that
PROGRAM = "herd"
#: What is shown of a sweep: any other word behind `herd sweep` is the file of one.
SHOWN = frozenset(("status", "best", "plot"))
