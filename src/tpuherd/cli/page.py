"""The commands there are, and the page of `herd --help`. Imports nothing: it must be quick."""

#: By section and name: what it is for, and where it is (module:attribute).
SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Hosts": {
        "exec": ("Run a command on hosts, on all of them at once.", "tpuherd.cli.exec:exec_"),
        "ssh": ("Open a terminal on a host that survives a cut.", "tpuherd.cli.ssh:ssh"),
        "sync": ("Ship code to hosts, exactly the same to all.", "tpuherd.cli.sync:sync"),
        "cp": ("Copy files and folders to hosts or from them.", "tpuherd.cli.cp:cp"),
        "logs": ("Show what was said on hosts, also when they are gone.", "tpuherd.cli.logs:logs"),
        "holders": ("Show who has the chips.", "tpuherd.cli.holders:holders"),
        "clean": ("End leftover processes, free the chips' lock.", "tpuherd.cli.clean:clean"),
        "keeper": ("Look at what holds the connections, or end it.", "tpuherd.cli.keeper:keeper"),
    },
    "A world to rehearse in": {
        "sim": ("Start, look at and disturb a simulated Cloud TPU.", "tpuherd.cli.sim:sim"),
    },
}

HEAD = """\
Usage: herd [OPTIONS] COMMAND [ARGS]...

  Work on every host of a TPU pod, and rehearse on a Cloud TPU of your own.
"""

OPTIONS = """
Options:
  --world DIRECTORY  Talk to the simulated world kept there instead of Google
                     Cloud; HERD_WORLD says the same.
  -q, --quiet        Say only what was asked for.
  -v, --verbose      Say more; twice for everything.
  --version          Show the version.
  -h, --help         Show this page; `herd COMMAND --help` shows a command's.
"""


def page() -> str:
    """The whole of it."""
    text = HEAD
    for title, commands in SECTIONS.items():
        text += f"\n{title}:\n"
        for name, (sentence, _) in commands.items():
            text += f"  {name:<17}  {sentence}\n"
    return text + OPTIONS
