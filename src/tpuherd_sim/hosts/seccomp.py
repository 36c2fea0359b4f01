"""Seccomp filters: calls that only seem to succeed, and calls that are forbidden."""

import ctypes
import struct

from tpuherd_sim.hosts.syscalls import call_prctl, check_result, libc, syscall_numbers

LOAD, AND, EQUAL, RETURN = 0x20, 0x54, 0x15, 0x06
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
ARCHITECTURE, CALL, ARGUMENTS = 4, 0, 16  #: offsets in struct seccomp_data
KIND, CHARACTER_DEVICE, BLOCK_DEVICE = 0o170000, 0o020000, 0o060000

FilterStep = tuple[int, int, str, str]  #: code, value, label if true, label if false ("" = next)


def fake_root() -> None:
    """Let changes of owner, identity and device nodes succeed without effect.

    For hosts with a single user id: dpkg and apt-get require these calls.
    """
    table = syscall_numbers()
    steps: dict[str, list[FilterStep]] = {
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
    install_filter(steps)


def restrict_kill_and_reboot() -> None:
    """Forbid signals to all processes and reboot, for hosts that share the machine's processes."""
    table = syscall_numbers()
    call_prctl(38, 1)
    install_filter(
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


def install_filter(steps: dict[str, list[FilterStep]]) -> None:
    """Install the filter on this process and its children."""
    program = b"".join(assemble_filter(steps))
    code = ctypes.create_string_buffer(program)
    header = struct.pack("HxxxxxxQ", len(program) // 8, ctypes.addressof(code))
    head = ctypes.create_string_buffer(header)
    check_result(libc.prctl(22, 2, ctypes.byref(head), 0, 0), "seccomp")


def assemble_filter(steps: dict[str, list[FilterStep]]) -> list[bytes]:
    """Return the BPF instructions, with labels replaced by offsets."""
    places: dict[str, int] = {}
    flat: list[FilterStep] = []
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
