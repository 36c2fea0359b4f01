"""The commands there are, and the page of `herd --help`. Imports nothing: it must be quick."""

#: By section and name: what it is for, and where it is (module:attribute).
SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Jobs": {
        "run": ("Run a job until it is done, whatever dies.", "tpuherd.cli.run:run"),
        "up": ("Get a node to work on, and keep it.", "tpuherd.cli.run:up"),
        "ls": ("Show all jobs.", "tpuherd.cli.ls:ls"),
        "status": ("Show all of a job: nodes, attempts, time, cost.", "tpuherd.cli.status:status"),
        "why": ("Say what a job does or waits for.", "tpuherd.cli.why:why"),
        "events": ("Show what happened, and why.", "tpuherd.cli.events:events"),
        "wait": ("Wait until jobs have ended.", "tpuherd.cli.wait:wait"),
        "capacity": ("Show what was learnt about zones.", "tpuherd.cli.capacity:capacity"),
        "plan": ("Show what is to be done now, and why.", "tpuherd.cli.plan:plan"),
        "sweep": ("Try many parameters, on many nodes.", "tpuherd.cli.sweep:sweep"),
        "scale": ("Have more copies of a job, or fewer.", "tpuherd.cli.scale:scale"),
        "set": ("Change fields of a job.", "tpuherd.cli.set_:set_"),
        "stop": ("Stop jobs and give their nodes back.", "tpuherd.cli.stop:stop"),
        "resume": ("Let jobs go on that were stopped.", "tpuherd.cli.resume:resume"),
        "down": ("Drop jobs, and everything they have.", "tpuherd.cli.down:down"),
        "gc": ("Show what bears our name and nobody wishes.", "tpuherd.cli.gc:gc"),
        "adopt": ("Take over what a lost store has left.", "tpuherd.cli.adopt:adopt"),
        "context": (
            "Say which cloud is meant, and what may be had.",
            "tpuherd.cli.context:context",
        ),
        "engine": ("Look at what keeps jobs alive, or end it.", "tpuherd.cli.engine:engine"),
    },
    "Hosts": {
        "exec": ("Run a command on hosts, on all of them at once.", "tpuherd.cli.exec:exec_"),
        "ssh": ("Open a terminal on a host that survives a cut.", "tpuherd.cli.ssh:ssh"),
        "sync": ("Ship code to hosts, exactly the same to all.", "tpuherd.cli.sync:sync"),
        "cp": ("Copy files and folders to hosts or from them.", "tpuherd.cli.cp:cp"),
        "logs": ("Show what was said on hosts, also when they are gone.", "tpuherd.cli.logs:logs"),
        "holders": ("Show who has the chips.", "tpuherd.cli.chips:holders"),
        "clean": ("End leftover processes, free the chips' lock.", "tpuherd.cli.clean:clean"),
        "keeper": ("Look at what holds the connections, or end it.", "tpuherd.cli.daemon:keeper"),
    },
    "A world to rehearse in": {
        "sim": ("Start, look at and disturb a simulated Cloud TPU.", "tpuherd.cli.sim:sim"),
    },
    "Your shell": {
        "completion": (
            "Let Tab complete commands and names of jobs.",
            "tpuherd.cli.completion:completion",
        ),
    },
}

HEAD = """\
Usage: herd [OPTIONS] COMMAND [ARGS]...

  Work on every host of a TPU pod, and rehearse on a Cloud TPU of your own.
"""

OPTIONS = """
Options (--world, -q and -v also behind the command):
  --world DIRECTORY  Talk to the simulated world kept there instead of Google
                     Cloud; HERD_WORLD says the same.
  -q, --quiet        Say only what was asked for.
  -v, --verbose      Say more; twice for everything.
  --version          Show the version.
  -h, --help         Show this page; `herd COMMAND --help` shows a command's.
"""


def help_page() -> str:
    """The whole of it."""
    text = HEAD
    for title, commands in SECTIONS.items():
        text += f"\n{title}:\n"
        for name, (sentence, _) in commands.items():
            text += f"  {name:<17}  {sentence}\n"
    return text + OPTIONS
