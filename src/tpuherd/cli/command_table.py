"""The table of all commands, and the page of `herd --help`. Imports nothing: it must be quick."""

#: By section and name: what the command does, and where it is (module:attribute).
SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Jobs": {
        "run": ("Run a job until it is done, across preemptions.", "tpuherd.cli.run:run"),
        "up": ("Get a node and keep it.", "tpuherd.cli.run:up"),
        "ls": ("List all jobs.", "tpuherd.cli.ls:ls"),
        "ui": ("Open a live web page of your jobs and nodes.", "tpuherd.cli.ui:ui"),
        "status": ("Show a job's nodes, attempts, time and cost.", "tpuherd.cli.status:status"),
        "top": ("Watch jobs, hosts and chips in the terminal.", "tpuherd.cli.top:top"),
        "why": ("Explain what a job does or waits for.", "tpuherd.cli.why:why"),
        "explain": ("Find what made a run fail, and what mends it.", "tpuherd.cli.explain:explain"),
        "report": (
            "Show where time and money went, and what to change.",
            "tpuherd.cli.report:report",
        ),
        "events": ("Show what happened, and why.", "tpuherd.cli.events:events"),
        "series": ("Show loss, memory and load over time.", "tpuherd.cli.series:series"),
        "wait": ("Wait until jobs have ended.", "tpuherd.cli.wait:wait"),
        "types": ("Show what TPU types are, where, and at what price.", "tpuherd.cli.types:types"),
        "capacity": ("Show how zones have answered requests.", "tpuherd.cli.capacity:capacity"),
        "metrics": ("Print metrics for Prometheus.", "tpuherd.cli.metrics:metrics"),
        "notify": ("Send messages when jobs end, fail or wait.", "tpuherd.cli.notify:notify"),
        "plan": ("Show what the engine would do now, and why.", "tpuherd.cli.plan:plan"),
        "sweep": ("Try many parameters on many nodes.", "tpuherd.cli.sweep:sweep"),
        "map": ("Run a command for each line of a file.", "tpuherd.cli.map:map_"),
        "scale": ("Change a job's number of copies.", "tpuherd.cli.set_:scale"),
        "set": ("Change fields of a job.", "tpuherd.cli.set_:set_"),
        "stop": ("Stop jobs and give their nodes back.", "tpuherd.cli.stop:stop"),
        "resume": ("Resume jobs that were stopped or gave up.", "tpuherd.cli.stop:resume"),
        "down": ("Delete jobs and everything they hold.", "tpuherd.cli.down:down"),
        "gc": ("List cloud resources that herd created but no job uses.", "tpuherd.cli.gc:gc"),
        "export": ("Write a job for Kubernetes or Slurm.", "tpuherd.cli.export:export"),
        "adopt": ("Take over nodes of a lost store or of other tools.", "tpuherd.cli.adopt:adopt"),
        "levanter": (
            "Run Levanter with the options of its scripts.",
            "tpuherd.cli.levanter:levanter",
        ),
        "quota": ("Show what you may have, and what uses it.", "tpuherd.cli.quota:quota"),
        "shares": ("Show and set each user's part of a quota.", "tpuherd.cli.shares:shares"),
        "bucket": ("Check, create and share buckets.", "tpuherd.cli.bucket:bucket"),
        "check": ("Find what is wrong, and how to mend it.", "tpuherd.cli.check:check"),
        "bug-report": (
            "Pack what a maintainer needs, without secrets.",
            "tpuherd.cli.bug_report:bug_report",
        ),
        "context": ("Choose the cloud, and what you may use there.", "tpuherd.cli.context:context"),
        "setup": ("Prepare a cloud project for TPUs.", "tpuherd.cli.setup:setup"),
        "store": ("Move your jobs into PostgreSQL, or back.", "tpuherd.cli.store:store"),
        "engine": ("Inspect, start or stop the engine of your jobs.", "tpuherd.cli.engine:engine"),
    },
    "Hosts": {
        "exec": ("Run a command on many hosts at once.", "tpuherd.cli.exec:exec_"),
        "hosts": ("List hosts with their addresses.", "tpuherd.cli.hosts:hosts"),
        "forward": (
            "Make a port of a host available on this machine.",
            "tpuherd.cli.forward:forward",
        ),
        "nfs": ("Share one folder by NFS on all hosts.", "tpuherd.cli.nfs:nfs"),
        "ssh": ("Open a terminal that survives a lost connection.", "tpuherd.cli.ssh:ssh"),
        "open": ("Open a host in VS Code, Jupyter and others.", "tpuherd.cli.open_:open_"),
        "ssh-config": ("Give hosts names for ssh.", "tpuherd.cli.ssh_config:ssh_config"),
        "sync": ("Copy code to all hosts, exactly the same.", "tpuherd.cli.sync:sync"),
        "cp": ("Copy files and folders to or from hosts.", "tpuherd.cli.cp:cp"),
        "logs": ("Show the output of hosts, even of deleted ones.", "tpuherd.cli.logs:logs"),
        "chips": ("Show which processes use the TPU chips.", "tpuherd.cli.chips:chips"),
        "smi": ("Show what every chip of every host does.", "tpuherd.cli.smi:smi"),
        "stacks": ("Show where a job's processes are.", "tpuherd.cli.stacks:stacks"),
        "profile": ("Take a trace of a running job.", "tpuherd.cli.profile:profile"),
        "clean": ("End leftover processes and free the chips.", "tpuherd.cli.clean:clean"),
        "daemon": (
            "Inspect or stop the daemon that keeps SSH connections.",
            "tpuherd.cli.daemon:daemon",
        ),
    },
    "Simulator": {
        "sim": ("Start, inspect and disturb a simulated Cloud TPU.", "tpuherd.cli.sim:sim"),
        "record": (
            "Record the traffic with the cloud, without names.",
            "tpuherd.cli.record:record",
        ),
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
#: Other names of commands, which help does not show.
ALIASES = {"keeper": "daemon", "holders": "chips", "doctor": "check"}

HEAD = """\
Usage: herd [OPTIONS] COMMAND [ARGS]...

  Run jobs and commands on Cloud TPU pods, real or simulated.
"""

OPTIONS = """
Options (--world, -q and -v also after the command):
  --world DIRECTORY  Use the simulated world in DIRECTORY instead of Google
                     Cloud; the same as HERD_WORLD.
  -q, --quiet        Print only what was asked for.
  -v, --verbose      Print more; twice for everything.
  --version          Show the version.
  -h, --help         Show this page; `herd COMMAND --help` explains a command.
"""


def help_page() -> str:
    """Return the text of `herd --help`."""
    text = HEAD
    for title, commands in SECTIONS.items():
        text += f"\n{title}:\n"
        for name, (sentence, _) in commands.items():
            text += f"  {name:<17}  {sentence}\n"
    return text + OPTIONS
