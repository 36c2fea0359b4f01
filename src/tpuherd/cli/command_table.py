"""The table of all commands, and the pages of `herd --help` and `--all`. Loads nothing."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

#: By section and name: what the command does, and where it is (module:attribute).
SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Jobs": {
        "run": ("Run a script or job, across preemptions.", "tpuherd.cli.run:run"),
        "up": ("Get a node and keep it.", "tpuherd.cli.run:up"),
        "ls": ("List all jobs.", "tpuherd.cli.ls:ls"),
        "ui": ("Open a live web page of your jobs and nodes.", "tpuherd.cli.ui:ui"),
        "status": (
            "Show how a job is: nodes, attempts, time and cost.",
            "tpuherd.cli.status:status",
        ),
        "top": ("Watch jobs, hosts and chips in the terminal.", "tpuherd.cli.top:top"),
        "why": ("Say what a job does now, or waits for.", "tpuherd.cli.why:why"),
        "explain": ("Find why a run failed, and how to fix it.", "tpuherd.cli.explain:explain"),
        "cost": ("Show where time and money went.", "tpuherd.cli.cost:cost"),
        "events": ("Show what happened, and why.", "tpuherd.cli.events:events"),
        "metrics": ("Show loss, memory and load over time.", "tpuherd.cli.metrics:metrics"),
        "wait": ("Wait until jobs have ended.", "tpuherd.cli.wait:wait"),
        "types": ("Show TPU types, prices, and how zones answer.", "tpuherd.cli.types:types"),
        "notify": ("Send messages when jobs end, fail or wait.", "tpuherd.cli.notify:notify"),
        "sweep": ("Try many parameters on many nodes.", "tpuherd.cli.sweep:sweep"),
        "map": ("Run a command for each line of a file.", "tpuherd.cli.map:map_"),
        "set": ("Change fields of a job.", "tpuherd.cli.set_:set_"),
        "stop": ("Stop jobs and give their nodes back.", "tpuherd.cli.stop:stop"),
        "resume": ("Resume jobs that were stopped or gave up.", "tpuherd.cli.stop:resume"),
        "down": ("Delete jobs and everything they hold.", "tpuherd.cli.down:down"),
        "gc": ("List cloud resources that herd created but no job uses.", "tpuherd.cli.gc:gc"),
        "export": ("Write a job for Kubernetes or Slurm.", "tpuherd.cli.export:export"),
        "levanter": (
            "Run Levanter with the options of its scripts.",
            "tpuherd.cli.levanter:levanter",
        ),
        "quota": ("Show what you may have, and who uses it.", "tpuherd.cli.quota:quota"),
        "bucket": ("Check, create and share buckets.", "tpuherd.cli.bucket:bucket"),
        "check": ("Find what is wrong, and how to fix it.", "tpuherd.cli.check:check"),
        "context": ("Choose the cloud, and what you may use there.", "tpuherd.cli.context:context"),
        "setup": ("Prepare a cloud project for TPUs.", "tpuherd.cli.setup:setup"),
        "engine": (
            "Inspect the engine, its plan, metrics and store.",
            "tpuherd.cli.engine:engine",
        ),
    },
    "Hosts": {
        "exec": ("Run a command on many hosts at once.", "tpuherd.cli.exec:exec_"),
        "hosts": ("List hosts with their addresses.", "tpuherd.cli.hosts:hosts"),
        "forward": (
            "Make a port of a host available on this machine.",
            "tpuherd.cli.forward:forward",
        ),
        "ssh": ("Open a terminal that survives a lost connection.", "tpuherd.cli.ssh:ssh"),
        "open": ("Open a host in VS Code, Jupyter and others.", "tpuherd.cli.open_:open_"),
        "sync": ("Copy code to all hosts, exactly the same.", "tpuherd.cli.sync:sync"),
        "cp": ("Copy files and folders to or from hosts.", "tpuherd.cli.cp:cp"),
        "logs": ("Show what hosts printed, even deleted ones.", "tpuherd.cli.logs:logs"),
        "outputs": ("List or copy the files that a job wrote.", "tpuherd.cli.outputs:outputs"),
        "smi": ("Show what every chip of every host does.", "tpuherd.cli.smi:smi"),
        "profile": ("Take a trace of a running job.", "tpuherd.cli.profile:profile"),
        "clean": ("End leftover processes and free the chips.", "tpuherd.cli.clean:clean"),
    },
    "Simulator": {
        "sim": ("Start, inspect and disturb a simulated Cloud TPU.", "tpuherd.cli.sim:sim"),
    },
    "Shell": {
        "completion": (
            "Complete commands and job names with Tab.",
            "tpuherd.cli.completion:completion",
        ),
    },
}
#: Commands that other programs call, which help does not show.
HIDDEN = {"ssh-proxy": "tpuherd.cli.ssh_proxy:ssh_proxy"}
#: Words that people search for, which help does not show: what they stand for.
ALIASES = {"chips": ("smi", "--processes"), "stacks": ("profile", "--stacks")}
#: The commands of a first week, which `herd --help` shows.
FIRST = "run ls status logs why stop down ssh exec cp sync check context sim".split()

HEAD = """\
Usage: herd [OPTIONS] COMMAND [ARGS]...

  Run jobs and commands on Cloud TPU pods, real or simulated.

"""

OPTIONS = """
  --world DIRECTORY  Use the simulated world there, not Google Cloud.
  -q, -v             Print less, or more.
  --all              Show all commands and options; `herd COMMAND --help` one.
"""

ALL_OPTIONS = """
Options (--world, -q and -v also after the command):
  --world DIRECTORY  Use the simulated world in DIRECTORY instead of Google
                     Cloud; the same as HERD_WORLD.
  -q, --quiet        Print only what was asked for.
  -v, --verbose      Print more; twice for everything.
  --version          Show the version.
  --all              Show this page.
  -h, --help         Show the first commands; `herd COMMAND --help` one.
"""


def help_page() -> str:
    """Return the text of `herd --help`: the commands of a first week."""
    commands = {name: row for section in SECTIONS.values() for name, row in section.items()}
    return HEAD + "".join(help_line(name, commands[name][0]) for name in FIRST) + OPTIONS


def all_commands_page() -> str:
    """Return the text of `herd --all`."""
    text = HEAD.rstrip() + "\n"
    for title, commands in SECTIONS.items():
        text += f"\n{title}:\n"
        text += "".join(help_line(name, sentence) for name, (sentence, _) in commands.items())
    return text + ALL_OPTIONS


def help_line(name: str, sentence: str) -> str:
    return f"  {name:<17}  {sentence}\n"


def expand_alias(arguments: "Sequence[str]", at: int) -> list[str]:
    """Replace the word at that place, the command's, by what it stands for."""
    words = ALIASES.get(arguments[at], arguments[at : at + 1]) if at < len(arguments) else ()
    return [*arguments[:at], *words, *arguments[at + 1 :]]
