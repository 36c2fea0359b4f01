"""Judges the variables, packages and addresses of one host. Pure."""

import re
from collections.abc import Mapping, Sequence
from shlex import quote

from tpuherd.checks.host_facts import HostPython, HostVariable
from tpuherd.checks.judgement import (
    SHARED,
    CheckedHost,
    HostFinding,
    all_right,
    not_looked,
    report_problem,
    warn_of,
)

MEGASCALE = "MEGASCALE_"
SLICES = "MEGASCALE_NUM_SLICES"
LOGIN = "login"
#: Variables that take chips or hosts away from every program, with what they do.
HARMFUL: Mapping[str, str] = {
    "TPU_LOAD_LIBRARY": "keeps libtpu from being loaded",
    "TPU_SKIP_MDS_QUERY": "keeps JAX from finding the other hosts",
    "TPU_VISIBLE_CHIPS": "hides chips",
    "TPU_VISIBLE_DEVICES": "hides chips",
    "TPU_CHIPS_PER_PROCESS_BOUNDS": "gives a program only some of the chips",
    "TPU_CHIPS_PER_HOST_BOUNDS": "gives a program only some of the chips",
    "TPU_PROCESS_BOUNDS": "tells libtpu of other processes than there are",
    "TPU_PROCESS_ADDRESSES": "tells libtpu of other processes than there are",
    "TPU_WORKER_HOSTNAMES": "names hosts that may be of an earlier node",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "lets two programs take the same chips",
}
#: Values that do no harm.
HARMLESS = {"TPU_LOAD_LIBRARY": "1", "ALLOW_MULTIPLE_LIBTPU_LOAD": "0"}
NIGHTLY = "libtpu-nightly"  #: libtpu's package for jax before 0.5
WHOLE_HOST = "2,2,1"
LIBRARY = "TPU_LIBRARY_PATH"
NUMBER = re.compile(r"\d{1,9}")
PIN = re.compile(r"libtpu\s*==\s*([\w.!+-]+?)(\.\*)?")


def judge_multislice(one: CheckedHost) -> Sequence[HostFinding]:
    """MEGASCALE_ variables of an earlier run, where a program would read them."""
    rows = [row for row in one.facts.settings.variables if row.name.startswith(MEGASCALE)]
    rows = [row for row in rows if row.value]
    if not rows:
        return [all_right("no variables of a multislice run are set")]
    files = sorted({row.where for row in rows if row.where != LOGIN})
    names = sorted({row.name for row in rows})
    count = next((row.value for row in rows if row.name == SLICES), "")
    if count == str(one.expected.slices) and one.expected.slices > 1:
        return [all_right(f"{', '.join(names)} are set, for {count} slices")]
    where = ", ".join(files) or "the login's environment"
    say = f"{', '.join(names[:3])}{' and more' if len(names) > 3 else ''}"
    node = "one slice" if one.expected.slices == 1 else f"{one.expected.slices} slices"
    return [
        warn_of(
            f"{where} sets {say}, but {one.node} is {node}",
            f"remove the lines from {where} on every host; jobs of herd are started without them, "
            "commands and scripts are not",
        )
    ]


def judge_variables(one: CheckedHost) -> Sequence[HostFinding]:
    """Variables that a login gives to every program and that take chips away."""
    wrong: dict[str, HostVariable] = {}
    for row in one.facts.settings.variables:
        harmless = row.value in ("", HARMLESS.get(row.name), WHOLE_HOST)
        if row.name in HARMFUL and not harmless:
            known = wrong.get(row.name)
            if known is None or known.where == LOGIN:
                wrong[row.name] = row
    return [
        warn_of(
            f"{row.where} sets {row.name}={row.value}, which {HARMFUL[row.name]}",
            f"remove it from {row.where}, and set it for the programs that need it",
        )
        for row in wrong.values()
    ] or [all_right("no variable takes chips or hosts away")]


def judge_packages(one: CheckedHost) -> Sequence[HostFinding]:
    """Each Python that has jax: whether libtpu fits it, and what it needs is there."""
    broken = [
        warn_of(f"{python.name} does not work: {python.why}", f"look at {python.path} on the host")
        for python in one.facts.pythons
        if python.why
    ]
    with_jax = [python for python in one.facts.pythons if "jax" in python.packages]
    own = any(row.name == LIBRARY for row in one.facts.settings.variables)
    found = [
        finding for python in with_jax for finding in judge_python(one, python, own_library=own)
    ]
    if broken or found:
        return [*broken, *found]
    if not with_jax:
        return [all_right("no Python has jax" if one.facts.pythons else "there is no Python")]
    names = ", ".join(python.name for python in with_jax)
    return [all_right(f"{LIBRARY} names the libtpu" if own else f"libtpu fits jax in {names}")]


def judge_python(one: CheckedHost, python: HostPython, *, own_library: bool) -> list[HostFinding]:
    found = []
    jax, libtpu = python.packages["jax"], python.packages.get("libtpu")
    path = quote(python.path)
    install = f"herd exec {one.node} -c \"{path} -m pip install 'jax[tpu]=={jax}'\""
    if libtpu is None and not (own_library or NIGHTLY in python.packages or not one.expected.chips):
        found.append(
            report_problem(f"{python.name} has jax {jax} without libtpu, so no chips", install)
        )
    elif libtpu is not None and not is_pinned(libtpu, python.pin):
        found.append(
            report_problem(
                f"{python.name} has libtpu {libtpu}, but jax {jax} wants {python.pin}", install
            )
        )
    if "requests" not in python.packages and len(one.expected.gang) > 1:
        found.append(
            warn_of(
                f"{python.name} has no requests, which JAX needs to find the other hosts", install
            )
        )
    if not can_use_jaxlib(jax, python.packages.get("jaxlib", jax)):
        found.append(
            warn_of(f"{python.name} has jax {jax} and jaxlib {python.packages['jaxlib']}", install)
        )
    return found


def can_use_jaxlib(jax: str, jaxlib: str) -> bool:
    """Whether jaxlib is of the same series and not newer, as jax demands."""
    own, other = ([int(word) for word in NUMBER.findall(text)][:3] for text in (jax, jaxlib))
    return own[:2] == other[:2] and other <= own


def is_pinned(version: str, pin: str) -> bool:
    """Whether a version fits libtpu==0.0.42.*; an unknown form of pin fits."""
    parts = PIN.fullmatch(pin)
    if parts is None:
        return True
    if parts[2]:
        return version == parts[1] or version.startswith(f"{parts[1]}.")
    return version == parts[1]


def judge_addresses(one: CheckedHost) -> Sequence[HostFinding]:
    """What the cloud, the metadata server, the host and ssh think its addresses are."""
    identity, cloud = one.facts.identity, one.host
    if one.expected.shared:
        return [not_looked(SHARED)]
    found = []
    if identity.addresses and cloud.internal_ip not in identity.addresses:
        found.append(
            report_problem(
                f"the cloud says {cloud.internal_ip}, and the host has "
                + ", ".join(identity.addresses[:4]),
                f"herd hosts {one.label} asks the cloud again; if it stays, recreate the node",
            )
        )
    told = identity.metadata.external_ip
    if told and cloud.external_ip and told != cloud.external_ip:
        found.append(
            warn_of(
                f"its external address is now {told}, and the cloud still says {cloud.external_ip}",
                f"herd hosts {one.label} shows the address as the cloud has it now",
            )
        )
    return [*found, *judge_endpoints(one), *judge_known_key(one)] or [
        all_right("all agree on the addresses")
    ]


def judge_endpoints(one: CheckedHost) -> list[HostFinding]:
    """The addresses by which JAX looks for its peers, against those of the node's hosts."""
    told = endpoint_addresses(one.facts.identity.metadata.endpoints)
    gang = one.expected.gang
    if not told or not gang or told == list(gang):
        return []
    return [
        report_problem(
            f"its metadata names {', '.join(told[:4])} as the hosts of {one.node}, which has "
            + ", ".join(gang[:4]),
            f"delete {one.node} and request it again",
            matters="jax.distributed.initialize() would look for hosts that are not there",
        )
    ]


def endpoint_addresses(endpoints: str) -> list[str]:
    """unknown:unknown:10.0.0.2,… → the addresses; bare hostnames are not addresses."""
    words = [word.split(":") for word in endpoints.split(",") if word]
    return [word[2] for word in words if len(word) == 3]


def judge_known_key(one: CheckedHost) -> list[HostFinding]:
    known = one.expected.known_keys or {}
    return [
        warn_of(
            f"~/.ssh/known_hosts has the key of another machine for {address}",
            f"ssh-keygen -R {address}",
            matters="ssh refuses the address; herd itself knows hosts by their keys",
        )
        for address in filter(None, (one.host.external_ip, one.host.internal_ip))
        if address in known
    ]


def judge_wandb(one: CheckedHost) -> Sequence[HostFinding]:
    """Whether a program that uses wandb finds a key on this host."""
    wandb, expected = one.facts.wandb, one.expected
    installed = [python.name for python in one.facts.pythons if "wandb" in python.packages]
    if wandb.logins:
        return [all_right(f"there is a key in {', '.join(wandb.logins)}")]
    if expected.has_wandb_key:
        return [all_right(f"{expected.job} brings its key along")]
    if wandb.tasks:
        return [all_right(f"{wandb.tasks[0]} has a key")]
    if not installed:
        return [all_right("wandb is not installed")]
    return [
        warn_of(
            f"{', '.join(installed)} has wandb, and there is no key on this host",
            "add WANDB_API_KEY to the job's secrets, which reach every host; a login on one host "
            "is not enough",
        )
    ]
