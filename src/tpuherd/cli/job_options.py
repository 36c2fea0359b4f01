"""Reads a job from the command line: a file, options and a command."""

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tpuherd.cli.anywhere import add_global_options, count_global_words
from tpuherd.cli.completion import complete_arguments
from tpuherd.cli.examples import add_examples
from tpuherd.errors import InvalidInput
from tpuherd.jobfile.joined_fields import join_page, locate_part

if TYPE_CHECKING:
    from tpuherd.jobfile.yaml_with_lines import YamlDocument


#: Fields that have an option of their own; all others are set by --set.
OPTIONS = (
    "name", "accelerator", "tier", "zones", "runtime", "copies", "slices", "workdir", "repo",
    "setup", "checkpoint", "outputs",
)  # fmt: skip
#: Options that help does not show, so that its page fits a screen; the reference shows them.
RARE = frozenset(("repo", "outputs", "runtime", "slices"))
#: Values of these are taken as plain text.
TEXTS = frozenset(
    ("name", "run", "setup", "workdir", "repo", "checkpoint", "python", "requirements")
)
SEVERAL = frozenset(("accelerator", "tier", "zones", "runtime"))  #: a,b are two values
COMMAND = "tpuherd.command"  #: the words after --


class JobCommand(click.Command):
    """A command line that ends in `-- COMMAND`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            ctx.meta[COMMAND] = args[at + 1 :]
            args = args[:at]
        scripts = [word for word in args if word.endswith((".py", ".sh"))]
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            if not scripts or isinstance(error, click.BadParameter):
                raise
            how = f"arguments of a script go after --: herd run {scripts[0]} … -- ARGUMENTS"
            raise click.UsageError(f"{error.message.rstrip('.')}; {how}", ctx) from error

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Return the words of the usage line, without those of arguments that have none."""
        return [piece for piece in super().collect_usage_pieces(ctx) if piece]


class FileGroup(click.Group):
    """`herd sweep FILE`, or one of its other subcommands."""

    BEGIN = "FILE"  #: the subcommand for any word that is not the name of one

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = count_global_words(args)
        if args[at:] and args[at] not in {*self.commands, "-h", "--help"}:
            args = [*args[:at], self.BEGIN, *args[at:]]
        return super().parse_args(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        command = self.commands.get(cmd_name)
        if command is None:
            return None
        if cmd_name != self.BEGIN:
            complete_arguments(command)
        return add_examples(add_global_options(command), f"{self.name} {cmd_name}")


def add_field_options(function: Any, rare: Collection[str]) -> Any:
    """Add an option for each of OPTIONS, with the first sentence about its field."""
    from tpuherd.jobfile.fields import FIELDS

    for name in reversed(OPTIONS):
        text = FIELDS[name].means.partition(". ")[0].rstrip(".") + "."
        function = click.option(
            f"--{name}", name, multiple=True, metavar="VALUE", help=text, hidden=name in rare
        )(function)
    return function


@dataclass(frozen=True, kw_only=True, slots=True)
class JobArguments:
    file: str | None
    fields: Mapping[str, tuple[str, ...]]  #: by name, for those that have an option
    env: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()  #: FIELD=VALUE
    command: tuple[str, ...] = ()
    document: Mapping[str, Any] | None = None  #: instead of a file
    script: str | None = None  #: instead of a file: the command's words are its arguments
    installs: bool = True  #: what the script's folder says it needs


def read_job_input(said: JobArguments, folder: Path) -> "tuple[YamlDocument, Path]":
    """Return the job as one document, and the folder of its relative paths."""
    from tpuherd.jobfile.yaml_with_lines import YamlDocument, read_yaml

    base, found = folder, YamlDocument(value=dict(said.document or {}))
    if said.file is not None:
        file = folder / Path(said.file).expanduser()
        try:
            found = read_yaml(file.read_text(encoding="utf-8-sig"))
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not a text file"
            raise InvalidInput(f"{said.file} can't be read: {reason}") from error
        base = file.parent
    if not isinstance(found.value, dict):
        return found, base
    found.value = join_page(found)
    for name, values in said.fields.items():
        if values:
            set_field(found, (name,), [one for text in values for one in split_values(name, text)])
    for word in said.env:
        name, equal, text = word.partition("=")
        if not equal:
            raise InvalidInput(f"--env {word}: write NAME=VALUE")
        set_field(found, ("env", name), [text])
    for name in said.secrets:
        set_field(found, ("secrets", name), [{}])
    for word in said.settings:
        where, it = parse_setting(word)
        set_field(found, where, [it])
    if said.command:
        from tpuherd.jobfile.run_script import shell_operator

        if len(said.command) > 1 and (word := shell_operator(said.command)):
            line = " ".join(said.command)
            raise InvalidInput(
                f"{word} is for a shell, and words after -- are no line of one",
                hint=f"quote the line: -- {shlex.quote(line)}",
            )
        set_field(found, ("run",), [shell_text(said.command)])
    return found, base


def shell_text(words: Sequence[str]) -> str:
    """Return a command as shell text; a single word is shell text already."""
    return words[0] if len(words) == 1 else shlex.join(words)


def parse_setting(word: str) -> tuple[tuple[str, ...], Any]:
    """Parse `retry.failures=5` into its path and value; no value is None, the default."""
    from tpuherd.jobfile.read_job import AS_WRITTEN

    name, equal, text = word.partition("=")
    if not equal or not name:
        raise InvalidInput(f"{word!r}: write FIELD=VALUE, such as copies=3 or retry.failures=5")
    where = tuple(name.split("."))
    if not text:
        return where, None
    return where, text if len(where) > 1 and where[0] in AS_WRITTEN else parse_value(where[0], text)


def split_values(name: str, text: str) -> list[Any]:
    """Return the values of an option; `spot,on-demand` are two."""
    found = parse_value(name, text)
    return found if name in SEVERAL and isinstance(found, list) else [found]


def parse_value(name: str, text: str) -> Any:
    """Parse a value as in a job file, except that plain text needs no quotes."""
    from tpuherd.jobfile.yaml_with_lines import read_yaml

    if name in TEXTS and not text.startswith("["):
        return text
    if name in SEVERAL and "," in text and not text.startswith("["):
        return [one.strip() for one in text.split(",")]
    found = read_yaml(text)
    return text if found.mistakes or isinstance(found.value, str) else found.value


def set_field(page: "YamlDocument", where: tuple[str, ...], values: Sequence[Any]) -> None:
    """Set a field; None removes it."""
    it = values[0] if len(values) == 1 else list(values)
    where, place = locate_part(page.value, where, it), page.value
    for name in where[:-1]:
        below = place.get(name)
        if isinstance(below, list) and name == "secrets":
            below = dict.fromkeys(map(str, below))
        place[name] = place = dict(below) if isinstance(below, Mapping) else {}
    for known in [known for known in page.texts if known[: len(where)] == where]:
        del page.texts[known]
    page.lines[where] = 0
    if it is None:
        place.pop(where[-1], None)
    else:
        place[where[-1]] = None if it == {} else it
