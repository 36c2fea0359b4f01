"""What a front and a keeper must agree on. Imports nothing: the front is in a hurry."""

PROTOCOL = b"herd-keeper-1"  #: raised when one could not read the other's letter
SOCKET = "keeper.sock"
YES, NO = b"y", b"n"  #: a letter's answer; with NO nothing was begun
