"""What herd no longer has, and the words of other tools: what to type instead. Imports nothing."""

from collections.abc import Sequence

#: By command or subcommand that was withdrawn: what does its work now.
COMMANDS = {
    "plan": "herd engine plan",
    "adopt": "herd engine adopt",
    "store": "herd engine store",
    "daemon": "herd engine daemon",
    "keeper": "herd engine daemon",
    "holders": "herd smi JOB --processes",
    "scale": "herd set JOB copies=N",
    "ssh-config": "herd ssh --config",
    "doctor": "herd check",
    "engine move": "the steps of docs/howto/another-machine.md: stop here, adopt there",
    "record": "tools/record.py in a checkout",
    "sim policies": "python -m bench.lab --traces FOLDER in a checkout",
    "sim compare": "tools/record.py in a checkout, and read what the cloud answered",
    "nfs": "the job field nfs, and herd exec JOB -- findmnt to look",
    "report": "herd cost, or herd cost JOB for one job",
    "bug-report": "herd check --report FILE",
    "capacity": "herd types --zones",
    "shares": "herd quota, and herd quota --share USER=WEIGHT to set one",
    "series": "herd metrics JOB",
    "metrics -o": "herd engine metrics -o FILE",
    "metrics --output": "herd engine metrics -o FILE",
    "metrics --alerts": "herd engine metrics --alerts",
}

#: By field of a job and a value that it no longer has: what is different without it.
VALUES = {
    ("head_start", "python"): "the command's Python starts with its attempt, about a second later",
}

#: By the word of another tool: what it is called here.
WORDS = {
    "launch": "herd run",
    "submit": "herd run",
    "create": "herd up",
    "list": "herd ls",
    "ps": "herd ls, or herd exec JOB -- ps for processes",
    "cancel": "herd stop",
    "kill": "herd stop, or herd clean for leftover processes",
    "delete": "herd down",
    "rm": "herd down",
}

#: By option of another tool: what it is called here.
OPTIONS = {
    "--spot": "--tier spot",
    "--preemptible": "--tier spot",
    "--tpu-type": "--accelerator",
    "--accelerator-type": "--accelerator",
    "--version": "--runtime",
    "--runtime-version": "--runtime",
    "--zone": "--zones",
    "--worker": "the host's name, such as gpt/w0; the job's name alone means all hosts",
    "--command": "the line as the last argument, such as herd exec gpt 'ls -l'",
    "--recurse": "-r, or nothing: folders are copied with what is in them",
}


def replacement_sentence(words: Sequence[str]) -> str:
    """Return the sentence for a command line that starts with such a command, or ""."""
    for count in (2, 1):
        command = " ".join(words[:count])
        if command in COMMANDS:
            return f"`herd {command}` was withdrawn; use {COMMANDS[command]}"
    if words and words[0] in WORDS:
        return f"herd has no command {words[0]}; use {WORDS[words[0]]}"
    return ""


def option_sentence(option: str) -> str:
    """Return the sentence for an option of another tool, or ""."""
    return f"no such option {option}; use {OPTIONS[option]}" if option in OPTIONS else ""


def without_withdrawn(field: str, value: object) -> tuple[object, list[str]]:
    """Return a field's value without what it no longer has, and a sentence for each such part."""
    named = value if isinstance(value, list | tuple) else [value]
    gone = [one for one in named if isinstance(one, str) and (field, one) in VALUES]
    if not gone:
        return value, []
    rest = [one for one in named if one not in gone]
    return rest, [f"{one} was withdrawn and is ignored: {VALUES[field, one]}" for one in gone]
