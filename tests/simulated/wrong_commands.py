"""Mistakes that people make with each command: the usual ones, and some of its own."""

from collections.abc import Iterator, Sequence

import click

#: These serve or compute until they are ended, if the line is right.
SERVING = {"sim start", "engine run", "ui", "top", "daemon run"}
#: Options of every command.
GLOBAL = {"--world", "-q", "-v", "--quiet", "--verbose"}
UNKNOWN = "nope"
#: By command: wrong values and combinations, as typed after its name.
OWN: dict[str, tuple[str, ...]] = {
    "run": (
        "",
        "missing.yaml",
        "train.py",
        "--name x",
        "--accelerator v4-8 -- hostname",
        "job.yaml --tier cheap --dry-run",
        "job.yaml --copies 0 --dry-run",
        "job.yaml --set nope=1 --dry-run",
        "job.yaml --set retry --dry-run",
        "job.yaml -e NAME --dry-run",
        "job.yaml --secret NOT_SET --dry-run",
    ),
    "up": (
        "",
        "missing.yaml",
        "--name x",
        "--name x --accelerator tpu --dry-run",
        "job.yaml --wait",
    ),
    "ls": ("gpt",),
    "status": ("gpt-7", "gpt dev", "'*'"),
    "why": ("gpt-7", "gpt dev"),
    "explain": ("missing.log", "gpt --attempt 9"),
    "events": ("--since yesterday", "gpt --since -1h"),
    "wait": ("gpt --timeout soon", "'nope-*'", "gpt --timeout -1s"),
    "types": ("v9", "v4-7", "v9 --zones"),
    "metrics": (
        "",
        "-o x",
        "--alerts",
        "gpt --csv --json",
        "gpt los",
        "gpt --since 1s",
        "dev",
    ),
    "cost": ("--days 0",),
    "check": ("[",),
    "quota": ("--share ann", "--share ann=many", "--share ann=0"),
    "sweep": ("job.yaml", "missing.yaml", "status gpt", "best gpt", "plot gpt"),
    "map": (
        "missing.txt",
        "items.txt",
        "dev /dev/null -- echo",
        "dev missing.txt -- echo",
        "deb items.txt -- echo",
        "idle.yaml items.txt",
        "sweep.yaml items.txt",
        "dev items.txt --copies 3 -- echo",
        "dev items.txt --timeout 0 -- echo",
        "logs evals 99",
    ),
    "set": ("gpt", "gpt copies", "gpt nope=1", "gpt copies=many", "gpt accelerator=v9-8"),
    "stop": ("gpt nope", "'nope*'"),
    "resume": ("gpt", "nope gpt"),
    "down": ("", "gpt --all", "gpt nope --yes", "gpt"),
    "bucket": (
        "check gs://",
        "check gs://no-such-bucket",
        "check X",
        "check theirs",
        "check ann-runs --zone us-west9-a",
        "create Ann_Runs",
        "create ann-runs",
        "create ann-data --location mars",
        "create theirs --location US --yes",
        "grant ann-runs --account me",
        "grant ann-runs --account gone@demo.iam.gserviceaccount.com --yes",
    ),
    "context": (
        "use nope",
        "remove nope",
        "add x",
        "add x --project demo --world y",
        "add x --project demo --way teleport",
        "add x --project demo --account missing.json",
        "grant",
        "grant --project demo --zone us-central2-b",
        "grant --project demo --mail missing.txt",
        "grant --project demo --mail items.txt",
        "grant --project demo --zone us-x1-a --type v4 --tier spot",
        "grant --project demo --zone us-east5-a --type v9 --tier spot",
    ),
    "setup": (
        "gcp --way teleport",
        "gcp --from home",
        "gcp --from 203.0.113.7/24",
        "gcp --from 2001:db8::1",
        "gcp --from 192.168.1.5",
        "gcp --way iap --from 203.0.113.7",
        "gcp --way iap --mosh",
        "gcp --network 'My Net'",
        "gcp --member ada",
        "gcp --keys os-login",
        "gcp --api Storage!",
    ),
    "exec": ("gpt", "-- ls", "'gpt-*' -- ls", "gpt/w9 -- ls", "us-east1-d/gpt -- ls"),
    "ssh": ("'gpt/w[0-1]'", "gpt/w9"),
    "hosts": ("gpt/w9", "gpt-[0"),
    "forward": ("gpt 0", "gpt 8000:", "gpt 8000:65536", "gpt 80:90:100", "gpt 99999", "gpt http"),
    "sync": ("gpt missing", "missing gpt"),
    "cp": ("a b", "gpt:x dev:y", "missing gpt:", "gpt:"),
    "logs": ("gpt --attempt 9", "gpt --attempt one", "bert", "gpt --tail lots", "gpt --tail -1"),
    "engine": ("stop",),
    "sim": ("preempt", "preempt nope", "weather nope", "weather preempt", "weather stockout z"),
    "completion": ("fishy",),
}


def leaf_commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    """Yield a command, or those of a group."""
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            yield from leaf_commands(below, f"{path} {name}")
    else:
        yield path, command


def wrong_lines(command: click.Command, name: str) -> Iterator[str]:
    """Yield command lines that can't be right, each once."""
    found = [f"{name} {line}".rstrip() for line in OWN.get(name, ())]
    if isinstance(command, click.Group):
        found = [name, f"{name} {UNKNOWN}", *found]
    for path, leaf in leaf_commands(command, name):
        found += usual_mistakes(path, leaf)
    yield from dict.fromkeys(found)


def usual_mistakes(path: str, command: click.Command) -> Iterator[str]:
    """Yield what everyone mistypes: too few words or too many, options, names and values."""
    arguments = [one for one in command.params if isinstance(one, click.Argument)]
    needed = [UNKNOWN for one in arguments if one.required]
    plain = " ".join([path, *needed])
    options = [one for one in command.params if isinstance(one, click.Option)]
    own = [one for one in options if not GLOBAL & set(one.opts) and not one.hidden]
    yield f"{plain} --nonsense"
    if own and long_name(own[0]).startswith("--"):
        yield f"{plain} {long_name(own[0])[:-1]}"
    if needed:
        yield path
    if all(one.nargs == 1 for one in arguments):
        yield " ".join([path, *[UNKNOWN] * len(arguments), "extra"])
    valued = [one for one in own if not (one.is_flag or one.count)]
    if valued:
        yield f"{plain} {long_name(valued[0])}"
    if path in SERVING:
        return
    if arguments and needed:
        yield plain
    elif arguments:
        yield f"{plain} {UNKNOWN}"
    for option in wrongly_valued(valued):
        yield f"{plain} {long_name(option)} '?'"


def wrongly_valued(options: Sequence[click.Option]) -> Sequence[click.Option]:
    """Return the options whose value is no text."""
    return [one for one in options if not isinstance(one.type, click.types.StringParamType)][:3]


def long_name(option: click.Option) -> str:
    return max(option.opts, key=len)
