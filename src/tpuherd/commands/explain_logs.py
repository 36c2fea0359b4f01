"""Finds out what `herd explain` was given: a file, a folder, standard input or a job."""

from dataclasses import dataclass
from pathlib import Path

from tpuherd.clock import WallClock
from tpuherd.commands.console import Console
from tpuherd.commands.explain_files import explain_path, explain_window
from tpuherd.commands.explain_job import explain_job
from tpuherd.commands.find_logs import LogQuery
from tpuherd.commands.log_windows import LogWindow
from tpuherd.diagnosis.match_line import BOOK, RuleBook, make_rule_book
from tpuherd.diagnosis.parse_rules import parse_rules
from tpuherd.errors import HerdError, InvalidInput, NotFound
from tpuherd.settings import project_access
from tpuherd.store.log_store import LogStore
from tpuherd.targets import is_path
from tpuherd.views.finding_lines import Explanation

RULES_BYTES_MAX = 4 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class ExplainOrder:
    target: str
    attempt: str | None = None
    rules: Path | None = None


async def explain_logs(
    order: ExplainOrder, console: Console
) -> tuple[list[Explanation], list[str]]:
    """Explain what the target names; return notices about what was left out, too."""
    book = load_rule_book(None if order.rules is None else console.folder / order.rules)
    path = console.folder / order.target
    if order.attempt is not None and (order.target == "-" or is_path(order.target)):
        raise InvalidInput("--attempt is for jobs, not for files")
    if order.target == "-":
        window = LogWindow()
        while piece := await console.read():
            window.add(piece)
        explanation, notices = explain_window(window, book)
        return [explanation], notices
    if not is_path(order.target):
        try:
            return explain_named_job(order, console, book)
        except HerdError as error:
            if order.attempt is not None or not path.exists():
                raise NotFound(
                    f"{order.target} is neither a file nor a job with logs: {error.sentence}",
                    hint=error.hint,
                ) from error
    explanation, notices = explain_path(Path(order.target) if path.is_absolute() else path, book)
    return [explanation], notices


def explain_named_job(
    order: ExplainOrder, console: Console, book: RuleBook
) -> tuple[list[Explanation], list[str]]:
    scope = project_access.resolve_scope(console.environ, world=console.said.world)
    look = LogQuery(target=order.target, attempt=order.attempt)
    shelf = LogStore(scope.logs_folder)
    return explain_job(look, shelf, scope, book, WallClock().now())


def load_rule_book(path: Path | None) -> RuleBook:
    """The rules that herd knows, and those of the user's file."""
    if path is None:
        return BOOK
    try:
        with path.open("rb") as stream:
            content = stream.read(RULES_BYTES_MAX + 1)
        text = content.decode()
    except OSError as error:
        raise InvalidInput(f"{path} can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path} is no text") from error
    if len(content) > RULES_BYTES_MAX:
        raise InvalidInput(f"{path} is too large for a file of rules")
    return make_rule_book((*BOOK.rules.values(), *parse_rules(text, path.name)))
