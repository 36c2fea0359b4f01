"""Which commands may start early: Python programs, and nothing around them. Pure."""

import re
import shlex
from typing import List, Optional, Sequence, Tuple

PYTHON = re.compile(r"(?:.*/)?python3?(?:\.[0-9]+)?")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)
FLAGS = frozenset({"-u", "-O", "-OO", "-B"})  #: others may keep the gate from its work
FLAGS_WITH_VALUE = frozenset({"-X", "-W"})
DOES_MORE = re.compile(r"[;&|<>()$`\\\n*?\[\]{}~#!]")  #: the shell would do more than start it
EARLY = "early"  #: the agent's subcommand that waits


def early_argv(argv: Sequence[str], agent: str) -> Optional[List[str]]:
    """Return what starts in place of a command and waits; None if the command is not a plain Python
    program.

    The script is only an argument of the agent's own program, so it can't begin too soon.
    """
    is_shell = len(argv) == 3 and tuple(argv[:2]) == ("$SHELL", "-c")
    words: List[str] = list(argv)
    variables: List[str] = []
    if is_shell:
        if DOES_MORE.search(argv[2]):
            return None
        try:
            words = shlex.split(argv[2])
        except ValueError:
            return None
        while words and VARIABLE.fullmatch(words[0]):
            variables.append(words.pop(0))
        if words[:1] == ["exec"]:
            del words[0]
    flags, program = split_flags(words)
    if not program:
        return None
    early = [*flags, agent, EARLY, *program]
    if not is_shell:
        return early
    pairs = [word.partition("=") for word in variables]
    named = [f"{name}={shlex.quote(value)}" for name, _, value in pairs]
    return ["$SHELL", "-c", " ".join([*named, "exec", *map(shlex.quote, early)])]


def split_flags(words: Sequence[str]) -> Tuple[List[str], List[str]]:
    """Return Python and its flags, then the script or -m and the module with their arguments; of
    another command nothing."""
    rest = list(words)
    if not rest or not PYTHON.fullmatch(rest[0]):
        return [], []
    flags = [rest.pop(0)]
    while rest:
        if rest[0] in FLAGS:
            flags.append(rest.pop(0))
        elif rest[0] in FLAGS_WITH_VALUE and len(rest) > 1:
            flags += [rest.pop(0), rest.pop(0)]
        else:
            break
    is_script = rest[:1] and not rest[0].startswith("-") and rest[0].endswith(".py")
    is_module = rest[:1] == ["-m"] and len(rest) > 1
    return (flags, rest) if is_script or is_module else ([], [])
