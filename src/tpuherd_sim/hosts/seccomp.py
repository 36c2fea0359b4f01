"""Seccomp filters: what a session may seem to do, and what it may not."""

import ctypes
import struct

from tpuherd_sim.hosts.syscalls import check, libc, numbers, prctl

LOAD, AND, EQUAL, RETURN = 0x20, 0x54, 0x15, 0x06
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
ARCHITECTURE, CALL, ARGUMENTS = 4, 0, 16  #: offsets in struct seccomp_data
KIND, CHARACTER_DEVICE, BLOCK_DEVICE = 0o170000, 0o020000, 0o060000

Step = tuple[int, int, str, str]  #: code, value, label where it holds, label where not ("" = next)


def fake_root() -> None:
    """Change of owner, of identity and device nodes succeed without effect.

    For hosts with a single user id: dpkg and apt-get insist on these calls.
    """
    table = numbers()
    steps: dict[str, list[Step]] = {
        "start": [
            (LOAD, ARCHITECTURE, "", ""),
            (EQUAL, table.audit, "", "allow"),
            (LOAD, CALL, "", ""),
            *((EQUAL, call, "fake", "") for call in table.faked),
            *((EQUAL, call, f"node{call}", "") for call, _ in table.make_node),
            (RETURN, ALLOW, "", ""),
        ],
    }
    for call, mode in table.make_node:
        steps[f"node{call}"] = [
            (LOAD, ARGUMENTS + 8 * mode, "", ""),
            (AND, KIND, "", ""),
            (EQUAL, CHARACTER_DEVICE, "fake", ""),
            (EQUAL, BLOCK_DEVICE, "fake", "allow"),
        ]
    steps["allow"] = [(RETURN, ALLOW, "", "")]
    steps["fake"] = [(RETURN, ERRNO, "", "")]
    install(steps)


def spare_the_machine() -> None:
    """No signal to everybody and no reboot: for hosts that share the machine's processes."""
    table = numbers()
    prctl(38, 1)
    install(
        {
            "start": [
                (LOAD, ARCHITECTURE, "", ""),
                (EQUAL, table.audit, "", "allow"),
                (LOAD, CALL, "", ""),
                (EQUAL, table.reboot, "refuse", ""),
                (EQUAL, table.kill, "", "allow"),
                (LOAD, ARGUMENTS, "", ""),
                (EQUAL, 0xFFFFFFFF, "refuse", "allow"),
            ],
            "allow": [(RETURN, ALLOW, "", "")],
            "refuse": [(RETURN, ERRNO | 1, "", "")],
        }
    )


def install(steps: dict[str, list[Step]]) -> None:
    """Put the filter on this process and all that it will start."""
    program = b"".join(assemble(steps))
    code = ctypes.create_string_buffer(program)
    header = struct.pack("HxxxxxxQ", len(program) // 8, ctypes.addressof(code))
    head = ctypes.create_string_buffer(header)
    check(libc.prctl(22, 2, ctypes.byref(head), 0, 0), "seccomp")


def assemble(steps: dict[str, list[Step]]) -> list[bytes]:
    """The instructions of the kernel's packet filter machine, labels turned into distances."""
    places: dict[str, int] = {}
    flat: list[Step] = []
    for label, block in steps.items():
        places[label] = len(flat)
        flat += block
    return [
        struct.pack(
            "HBBI",
            code,
            places[yes] - here - 1 if yes else 0,
            places[no] - here - 1 if no else 0,
            value,
        )
        for here, (code, value, yes, no) in enumerate(flat)
    ]
