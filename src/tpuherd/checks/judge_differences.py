"""Compares hosts with each other: what most of them have, and which ones differ. Pure."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from statistics import median

from tpuherd.checks.host_facts import HostPython
from tpuherd.checks.judgement import (
    CheckedHost,
    HostFinding,
    all_right,
    not_looked,
    report_problem,
    warn_of,
)
from tpuherd.targets import fold_names
from tpuherd.views.format_text import format_span

Findings = Mapping[str, Sequence[HostFinding]]  #: by the label of the host
NOTHING = "none"
COMPARED = ("jax", "jaxlib", "libtpu", "torch_xla")
#: Variables that change the compiled program: all hosts of a gang must have the same.
PROGRAM_VARIABLES = ("JAX_PLATFORMS", "LIBTPU_INIT_ARGS", "XLA_FLAGS")
LOGIN = "login"
SKEW_S = 1.0
SKEW_PROBLEM_S = 60.0


def find_common(values: Mapping[str, str]) -> str:
    """Return the most frequent value; of equally frequent ones that of the first host."""
    return Counter(values.values()).most_common(1)[0][0]


def name_hosts(values: Mapping[str, str], value: str) -> str:
    return fold_names(label for label, one in values.items() if one == value)


def compare_hosts(
    hosts: Sequence[CheckedHost],
    value_of: Callable[[CheckedHost], str],
    judge: Callable[[str, str, str], HostFinding],
) -> Findings:
    """Return a finding for each host that differs, by `judge(own, common, hosts that have it)`."""
    values = {one.label: value_of(one) for one in hosts}
    common = find_common(values)
    return {
        label: [judge(own, common, name_hosts(values, common))]
        for label, own in values.items()
        if own != common
    }


def judge_pythons(hosts: Sequence[CheckedHost]) -> Findings:
    """The versions of Python, JAX and libtpu, for each Python that most hosts have."""
    names = list(dict.fromkeys(row.name for one in hosts for row in one.facts.pythons))
    found: dict[str, list[HostFinding]] = {}
    for name in names:
        for label, findings in compare_python(hosts, name).items():
            found.setdefault(label, []).extend(findings)
    usual = {one.label: [all_right(describe_pythons(one))] for one in hosts}
    return {**usual, **found}


def compare_python(hosts: Sequence[CheckedHost], name: str) -> Findings:
    def describe_difference(own: str, common: str, others: str) -> HostFinding:
        return report_problem(
            f"{name} is {own}, and {common} on {others}",
            "install the same on every host: a job's `requirements` does, and `herd sync` copies",
        )

    def versions(one: CheckedHost) -> str:
        rows = [row for row in one.facts.pythons if row.name == name]
        return describe_python(rows[0]) if rows else NOTHING

    return compare_hosts(hosts, versions, describe_difference)


def describe_python(one: HostPython) -> str:
    """Python 3.11.2 with jax 0.10.2, jaxlib 0.10.2"""
    if one.why:
        return "broken"
    packages = [f"{name} {one.packages[name]}" for name in COMPARED if name in one.packages]
    return f"Python {one.version}" + (f" with {', '.join(packages)}" if packages else "")


def describe_pythons(one: CheckedHost) -> str:
    """The first Python that has jax, else the first."""
    rows = one.facts.pythons
    chosen = next((row for row in rows if "jax" in row.packages), next(iter(rows), None))
    return f"{chosen.name} is {describe_python(chosen)}" if chosen else "there is no Python"


def judge_images(hosts: Sequence[CheckedHost]) -> Findings:
    """The runtime and the system of each host, and the runtime that the cloud names."""
    usual: dict[str, list[HostFinding]] = {
        one.label: [all_right(describe_image(one))] for one in hosts
    }

    def describe_difference(own: str, common: str, others: str) -> HostFinding:
        return warn_of(
            f"runs {own}, and {others} {common}",
            "recreate the node if programs behave differently there",
        )

    odd = compare_hosts(hosts, describe_image, describe_difference)
    for one in hosts:
        runtime, wanted = one.facts.identity.image.runtime, one.expected.runtime
        if runtime and wanted and runtime != wanted:
            usual[one.label] = [
                warn_of(
                    f"runs the runtime {runtime}, and the cloud says {wanted}",
                    f"recreate {one.node}: libtpu and its drivers belong to the runtime",
                )
            ]
    return {**usual, **odd}


def describe_image(one: CheckedHost) -> str:
    image = one.facts.identity.image
    parts = (image.runtime, image.system, f"Linux {one.facts.host.kernel}", image.libc)
    return ", ".join(filter(None, parts))


def judge_same_settings(hosts: Sequence[CheckedHost]) -> Findings:
    """The variables of the login that change the compiled program."""
    found: dict[str, list[HostFinding]] = {}
    for name in PROGRAM_VARIABLES:
        for label, findings in compare_variable(hosts, name).items():
            found.setdefault(label, []).extend(findings)
    return {**{one.label: [all_right("they are the same on every host")] for one in hosts}, **found}


def compare_variable(hosts: Sequence[CheckedHost], name: str) -> Findings:
    def describe_difference(own: str, common: str, others: str) -> HostFinding:
        return report_problem(
            f"{name} is {own}, and {common} on {others}",
            "set it in the job's env, which reaches every host alike",
        )

    def value(one: CheckedHost) -> str:
        rows = [row for row in one.facts.settings.variables if row.where == LOGIN]
        return next((repr(row.value) for row in rows if row.name == name), "not set")

    return compare_hosts(hosts, value, describe_difference)


def judge_clocks(hosts: Sequence[CheckedHost]) -> Findings:
    """Each clock against the median of all; a clock that all hosts share against ours."""
    middle = median(one.ahead_s for one in hosts)
    found: dict[str, list[HostFinding]] = {}
    for one in hosts:
        off = one.ahead_s - (middle if len(hosts) > 1 else 0.0)
        found[one.label] = [judge_clock(one, off)]
    return found


def judge_clock(one: CheckedHost, off_s: float) -> HostFinding:
    if abs(off_s) <= SKEW_S + one.ahead_error_s:
        return all_right("the clocks agree")
    if one.ahead_error_s > SKEW_PROBLEM_S:
        return not_looked("the host answers too slowly to tell")
    way = "ahead of" if off_s > 0 else "behind"
    found = f"its clock is {format_span(abs(off_s))} {way} the others"
    remedy = f"herd exec {one.label} -- sudo systemctl restart chrony systemd-timesyncd"
    if abs(off_s) > SKEW_PROBLEM_S:
        return report_problem(found, remedy)
    return warn_of(found, remedy)
