"""A host that a limit of the machine keeps from starting says which one, and what raises it."""

import errno
import os
import resource

import pytest

from tpuherd_sim.hosts import namespace_backend
from tpuherd_sim.hosts.machine_limits import boot_error_reason
from tpuherd_sim.hosts.namespace_backend import NamespaceBackend


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EMFILE, "raise ulimit -n (up to 65536) and start the world again"),
        (errno.ENOSPC, "raise the sysctls user.max_*_namespaces"),
        (errno.EAGAIN, "raise ulimit -u and sysctl kernel.pid_max"),
        (errno.ENOMEM, "no memory left"),
        (errno.EIO, os.strerror(errno.EIO)),
    ],
)
def test_the_limit_that_was_met_is_named(number: int, words: str) -> None:
    assert words in boot_error_reason(OSError(number, os.strerror(number)))


def test_too_few_open_files_are_counted_in_hosts() -> None:
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    reason = boot_error_reason(OSError(errno.EMFILE, "Too many open files"))
    assert f"{files} open files, enough for about {files // 20} hosts" in reason


class Wires:
    """What was laid: bridges, and cables between them."""

    def __init__(self) -> None:
        self.bridges: set[str] = set()
        self.cables: dict[str, tuple[str, str]] = {}

    def add_bridge(self, name: str) -> None:
        self.bridges.add(name)

    def connect_bridges(self, name: str, bridge: str, other: str) -> None:
        assert {bridge, other} <= self.bridges
        self.cables[name] = (bridge, other)

    def remove_link(self, name: str) -> None:
        self.cables.pop(name, None)
        self.bridges.discard(name)


def test_a_segment_with_more_hosts_than_a_bridge_has_ports_gets_several(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(namespace_backend, "BRIDGE_HOSTS_MAX", 4)
    wires = Wires()
    backend = object.__new__(NamespaceBackend)
    backend.__dict__.update(line=wires, bridges={})
    for number in range(10):
        name = backend.find_free_bridge("pod", number)
        backend.bridges["pod"][name].add(number)
    assert [len(hosts) for hosts in backend.bridges["pod"].values()] == [4, 4, 2]
    first, *others = backend.bridges["pod"]
    assert sorted(wires.cables.values()) == [(other, first) for other in sorted(others)]
    backend.clean_up_host(9, set())
    assert backend.find_free_bridge("pod", 10) == others[-1]
    for number in range(9):
        backend.clean_up_host(number, set())
    assert not wires.bridges and not wires.cables and not backend.bridges
