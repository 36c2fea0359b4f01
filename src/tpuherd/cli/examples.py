"""The examples at the end of every page of help."""

from collections.abc import Sequence
from functools import partial

import click

#: By command, as it is typed after `herd`: one to three lines.
EXAMPLES: dict[str, tuple[str, ...]] = {
    "run": (
        "herd run train.py --accelerator v4-8 -- --lr 0.1",
        "herd run --name gpt --accelerator v4-32 --workdir . -- python3 train.py",
    ),
    "up": ("herd up v4-8", "herd up --name pod --accelerator v4-32 --workdir ."),
    "ls": ("herd ls",),
    "ui": ("herd ui", "herd ui --port 8000 --no-browser"),
    "status": ("herd status gpt", "herd status gpt-0 --json"),
    "why": ("herd why gpt",),
    "explain": (
        "herd explain gpt",
        "herd explain train.log",
        "ssh vm cat train.log | herd explain -",
    ),
    "cost": ("herd cost", "herd cost gpt", "herd cost --days 30"),
    "events": ("herd events gpt --since 1h", "herd events -f"),
    "metrics": ("herd metrics gpt --since 2h", "herd metrics gpt loss --csv > loss.csv"),
    "wait": ("herd wait gpt", "herd wait 'lr-*' --timeout 2h"),
    "top": ("herd top",),
    "types": ("herd types v5e", "herd types v4-32", "herd types --zones"),
    "notify": ("herd notify list", "herd notify test gpt"),
    "notify list": ("herd notify list",),
    "notify test": ("herd notify test", "herd notify test gpt", "herd notify test --all"),
    "notify set": ("herd notify set receivers.yaml", "herd notify set --clear"),
    "notify allow": ("herd notify allow", "herd notify allow no"),
    "engine plan": ("herd engine plan gpt",),
    "engine metrics": (
        "herd engine metrics -o /var/lib/prometheus/node-exporter/herd.prom",
        "herd engine metrics --alerts -o herd-alerts.yml",
    ),
    "sweep": ("herd sweep lr.yaml", "herd sweep best lr"),
    "sweep FILE": ("herd sweep lr.yaml",),
    "sweep status": ("herd sweep status lr", "herd sweep status lr --csv > lr.csv"),
    "sweep best": ("herd sweep best lr",),
    "sweep plot": ("herd sweep plot lr", "herd sweep plot lr --svg > lr.svg"),
    "map": (
        "herd map dev files.txt -- python3 eval.py {}",
        "herd map evals.yaml files.txt -- python3 eval.py {}",
        "herd map status evals",
    ),
    "map JOB": (
        "herd map dev files.txt -- python3 eval.py {}",
        "herd map evals.yaml files.txt --retries 2 --timeout 1h -- python3 eval.py {}",
        "ls tests/*.py | herd map dev - -- pytest",
    ),
    "map status": ("herd map status evals", "herd map status evals --failed"),
    "map logs": ("herd map logs evals 17",),
    "set": ("herd set gpt retry.failures=10 env.LR=0.1", "herd set gpt max_cost="),
    "stop": ("herd stop gpt",),
    "resume": ("herd resume gpt",),
    "down": ("herd down gpt", "herd down --all --yes"),
    "gc": ("herd gc", "herd gc gpt-0-g3-7kq"),
    "engine adopt": ("herd engine adopt", "herd engine adopt big-pod --job job.yaml"),
    "export": ("herd export jobset job.yaml", "herd export slurm job.yaml"),
    "export jobset": (
        "herd export jobset job.yaml --image IMAGE --queue team-a > gpt.yaml",
        "herd export jobset gpt --image IMAGE --with-queue | kubectl apply -f -",
    ),
    "export slurm": (
        "herd export slurm job.yaml --partition v4 > gpt.sh",
        "herd export slurm gpt | sbatch",
    ),
    "levanter": ("herd levanter babysit my-tpu -z europe-west4-a -t v3-32 -- python3 train.py",),
    "levanter babysit": (
        "herd levanter babysit my-tpu -t v3-32 -p -- LR=0.1 python3 levanter/train.py",
        "herd levanter babysit my-tpu -t v3-32 -s my-setup.sh -- bash train.sh",
    ),
    "levanter spin-up": ("herd levanter spin-up my-tpu -z us-central1-f -t v2-8",),
    "levanter run": ("herd levanter run my-tpu -- LR=0.1 python3 levanter/train.py",),
    "levanter launch": (
        "herd levanter launch --tpu_name my-tpu --tpu_type v4-32 -- python3 train.py",
    ),
    "check": ("herd check gpt", "herd check --fix", "herd check --report report.tar.gz"),
    "setup": ("herd setup gcp --dry-run",),
    "setup gcp": (
        "herd setup gcp --dry-run",
        "herd setup gcp --from 203.0.113.7",
        "herd setup gcp --way iap",
    ),
    "quota": ("herd quota", "herd quota --share ana=2"),
    "bucket": ("herd bucket check gs://my-runs",),
    "bucket check": (
        "herd bucket check gs://my-runs --zone us-central2-b",
        "herd bucket check my-runs --from gpt/w0",
    ),
    "bucket create": ("herd bucket create my-runs --location us-central2-b",),
    "bucket grant": ("herd bucket grant my-runs", "herd bucket grant my-data --read-only"),
    "context": ("herd context add lab --project my-project", "herd context list"),
    "context list": ("herd context list",),
    "context use": ("herd context use lab",),
    "context add": (
        "herd context add lab --project my-project",
        "herd context add rehearsal --world ./world",
    ),
    "context show": ("herd context show",),
    "context remove": ("herd context remove rehearsal",),
    "context install": ("herd context install lab",),
    "context grant": (
        "herd context grant --mail -",
        "herd context grant --zone us-central2-b --type v4 --tier spot --chips 32",
    ),
    "engine": ("herd engine status",),
    "engine run": ("herd engine run", "herd engine run --stand-by"),
    "engine start": ("herd engine start",),
    "engine stop": ("herd engine stop",),
    "engine status": ("herd engine status",),
    "engine acknowledge": ("herd engine acknowledge",),
    "engine logs": (
        "herd engine logs -n 200",
        "herd engine logs --job gpt",
    ),
    "engine install": ("herd engine install",),
    "engine store": ("herd engine store move postgresql://ann@db/herd",),
    "engine store move": (
        "herd engine store move postgresql://ann@db/herd",
        "herd engine store move here",
    ),
    "exec": (
        "herd exec gpt --env -- pip list",
        "herd exec gpt-[0-3]/w0 'ls *.log | wc -l'",
        "herd exec gpt/w0 --tty -- htop",
    ),
    "hosts": ("herd hosts gpt", "herd hosts srv/w0 --json"),
    "forward": ("herd forward srv 8000", "herd forward dev-1/w0 6006:16006 8888:0"),
    "ssh": ("herd ssh gpt/w3", "herd ssh gpt/w3 'cat out/log' > log", "herd ssh --config"),
    "open": ("herd open code gpt", "herd open jupyter dev notebooks"),
    "open code": ("herd open code gpt", "herd open code gpt/w3 src"),
    "open mosh": ("herd open mosh gpt-1",),
    "open tmux": ("herd open tmux gpt", "herd open tmux gpt/w3 --session debug"),
    "open jupyter": ("herd open jupyter dev", "herd open jupyter dev --stop"),
    "open tensorboard": (
        "herd open tensorboard gpt runs",
        "herd open tensorboard gpt gs://my-runs/board --port 6007",
    ),
    "sync": (
        "herd sync . gpt:code",
        "herd sync . gpt",
        "herd sync --repo https://example.com/x.git --ref v1.2 gpt:code",
    ),
    "cp": ("herd cp data.bin notes/ gpt:data", "herd cp 'gpt/w0:out/*.json' results"),
    "outputs": ("herd outputs gpt", "herd outputs gpt 'results/*.csv' -o results"),
    "logs": ("herd logs gpt -f", "herd logs gpt --host w0 --grep loss --tail 20"),
    "smi": ("herd smi", "herd smi gpt -l 2", "herd smi gpt --json"),
    "profile": ("herd profile gpt", "herd profile gpt/w0 --seconds 2 --output traces --no-open"),
    "clean": ("herd clean gpt", "herd clean gpt/w0 --all"),
    "engine daemon": ("herd engine daemon status",),
    "engine daemon status": ("herd engine daemon status",),
    "engine daemon stop": ("herd engine daemon stop",),
    "sim": ("herd sim start --detach", "herd sim preempt gpt-0-g1-7kq"),
    "sim start": ("herd sim start", "herd sim start --detach --weather storm --seed 1"),
    "sim status": ("herd sim status",),
    "sim stop": ("herd sim stop",),
    "sim preempt": ("herd sim preempt gpt-0-g1-7kq",),
    "sim weather": (
        "herd sim weather preempt gpt-0-g1-7kq notice_s=0",
        "herd sim weather http-error 429 method=nodes.create for=2m",
        "herd sim weather clear",
    ),
    "sim log": ("herd sim log -f",),
    "sim env": ('eval "$(herd sim env)"',),
    "completion": ('eval "$(herd completion bash)"', "herd completion fish | source"),
}


def add_examples(command: click.Command, words: str) -> click.Command:
    """Add the examples to the help of a command, typed as `words`, and of its subcommands."""
    command.format_epilog = partial(write_examples, EXAMPLES.get(words, ()))  # type: ignore[method-assign]
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            add_examples(below, f"{words} {name}")
    return command


def write_examples(
    lines: Sequence[str], ctx: click.Context, formatter: click.HelpFormatter
) -> None:
    if lines:
        with formatter.section("Example" if len(lines) == 1 else "Examples"):
            formatter.write("".join(f"  {line}\n" for line in lines))
