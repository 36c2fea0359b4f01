"""The table of judgements of hosts, and how they become results. Pure."""

from collections.abc import Callable, Mapping, Sequence

from tpuherd.checks import (
    judge_chips,
    judge_differences,
    judge_settings,
    judge_space,
)
from tpuherd.checks.check_results import CheckResult
from tpuherd.checks.judgement import CheckedHost, HostFinding
from tpuherd.views.printable import show_controls

LINE_MAX = 600

JudgeHost = Callable[[CheckedHost], Sequence[HostFinding]]
CompareHosts = Callable[[Sequence[CheckedHost]], Mapping[str, Sequence[HostFinding]]]

#: Each looks at one host.
EACH_HOST: Mapping[str, JudgeHost] = {
    "chips": judge_chips.judge_chips,
    "chip-users": judge_chips.judge_chip_users,
    "tpu-lock": judge_chips.judge_lock,
    "leftovers": judge_chips.judge_leftovers,
    "ports": judge_chips.judge_ports,
    "fork": judge_chips.judge_fork,
    "host-disk": judge_space.judge_disk,
    "host-memory": judge_space.judge_memory,
    "limits": judge_space.judge_threads,
    "hugepages": judge_space.judge_hugepages,
    "preload": judge_space.judge_preload,
    "tpu-logs": judge_space.judge_log_folder,
    "apt-lock": judge_space.judge_apt,
    "multislice": judge_settings.judge_multislice,
    "variables": judge_settings.judge_variables,
    "packages": judge_settings.judge_packages,
    "wandb": judge_settings.judge_wandb,
    "addresses": judge_settings.judge_addresses,
}
#: Each compares all hosts that answered.
ALL_HOSTS: Mapping[str, CompareHosts] = {
    "python": judge_differences.judge_pythons,
    "same-variables": judge_differences.judge_same_settings,
    "image": judge_differences.judge_images,
    "host-clock": judge_differences.judge_clocks,
}


def judge_hosts(hosts: Sequence[CheckedHost]) -> list[CheckResult]:
    """Return all results, host by host in the order of the tables."""
    found: dict[str, list[CheckResult]] = {one.label: [] for one in hosts}
    for check, judge in EACH_HOST.items():
        for one in hosts:
            found[one.label] += results_of(check, one.label, judge(one))
    for check, compare in ALL_HOSTS.items() if hosts else ():
        for label, findings in compare(hosts).items():
            found[label] += results_of(check, label, findings)
    return [result for results in found.values() for result in results]


def results_of(check: str, where: str, findings: Sequence[HostFinding]) -> list[CheckResult]:
    return [
        CheckResult(
            check=check,
            where=where,
            status=one.status,
            found=single_line(one.found),
            matters=one.matters,
            remedy=single_line(one.remedy),
            fix=one.fix,
        )
        for one in findings
    ]


def single_line(text: str) -> str:
    """Return words of a host as one line of a limited length, without control characters."""
    line = " ".join(show_controls(text).split())
    return line if len(line) <= LINE_MAX else f"{line[:LINE_MAX]}…"
