"""Applies size and modes of a client's terminal to the host's (RFC 4254 §8, RFC 8160)."""

import fcntl
import struct
import termios
from collections.abc import Mapping

#: Opcode → the special character that it sets.
CHARACTERS = {
    1: termios.VINTR,
    2: termios.VQUIT,
    3: termios.VERASE,
    4: termios.VKILL,
    5: termios.VEOF,
    6: termios.VEOL,
    7: termios.VEOL2,
    8: termios.VSTART,
    9: termios.VSTOP,
    10: termios.VSUSP,
    12: termios.VREPRINT,
    13: termios.VWERASE,
    14: termios.VLNEXT,
    18: termios.VDISCARD,
}
INPUT, OUTPUT, CONTROL, LOCAL = range(4)  #: the first four items of tcgetattr
#: Opcode → the flag that it sets or clears, and its item.
FLAGS = {
    30: (INPUT, termios.IGNPAR),
    31: (INPUT, termios.PARMRK),
    32: (INPUT, termios.INPCK),
    33: (INPUT, termios.ISTRIP),
    34: (INPUT, termios.INLCR),
    35: (INPUT, termios.IGNCR),
    36: (INPUT, termios.ICRNL),
    38: (INPUT, termios.IXON),
    39: (INPUT, termios.IXANY),
    40: (INPUT, termios.IXOFF),
    41: (INPUT, termios.IMAXBEL),
    42: (INPUT, 0o40000),  # IUTF8, which the module does not name
    50: (LOCAL, termios.ISIG),
    51: (LOCAL, termios.ICANON),
    53: (LOCAL, termios.ECHO),
    54: (LOCAL, termios.ECHOE),
    55: (LOCAL, termios.ECHOK),
    56: (LOCAL, termios.ECHONL),
    57: (LOCAL, termios.NOFLSH),
    58: (LOCAL, termios.TOSTOP),
    59: (LOCAL, termios.IEXTEN),
    60: (LOCAL, termios.ECHOCTL),
    61: (LOCAL, termios.ECHOKE),
    70: (OUTPUT, termios.OPOST),
    72: (OUTPUT, termios.ONLCR),
    73: (OUTPUT, termios.OCRNL),
    74: (OUTPUT, termios.ONOCR),
    75: (OUTPUT, termios.ONLRET),
}
UNSET = 255  #: a special character that the client lacks


def set_modes(descriptor: int, modes: Mapping[int, int]) -> None:
    """Apply the client's modes to a terminal; others stay as they are."""
    state = termios.tcgetattr(descriptor)
    for opcode, value in modes.items():
        if opcode in CHARACTERS and 0 <= value <= UNSET:
            state[6][CHARACTERS[opcode]] = bytes([0 if value == UNSET else value])
        elif opcode in FLAGS:
            place, flag = FLAGS[opcode]
            state[place] = state[place] | flag if value else state[place] & ~flag
    termios.tcsetattr(descriptor, termios.TCSANOW, state)


def set_size(descriptor: int, size: tuple[int, int, int, int]) -> None:
    """Set rows, columns, and both in pixels. The kernel sends SIGWINCH to the
    foreground programs.
    """
    fcntl.ioctl(
        descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", *(side & 0xFFFF for side in size))
    )
