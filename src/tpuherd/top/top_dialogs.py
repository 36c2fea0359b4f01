"""The questions and the help of `herd top`."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import ModalScreen
from textual.widgets import Static

HELP = """\
↑ ↓ j k          move             → Enter   open
PgUp PgDn g G    move far         ←         close, go up
/                filter; !word hides what matches; Esc ends it
w                why: what it does, and where its time went
l                logs of the row  e         events of the row
Tab              scroll the lower part, and back
s                open a terminal on the host (herd ssh)
x                stop the job     r         resume it
Ctrl+D           delete the job   q         quit

In the tree, click a row to choose it, and again to open it.
✗ is wrong, ! needs a look, ○ waits, ● works, ✓ is done.

Esc closes this."""
QUESTIONS = {
    "stop": "Stop {job}, save a checkpoint, and give its nodes back?",
    "down": "Delete {job} with its nodes and everything on them?",
}


class HelpDialog(ModalScreen[None]):
    BINDINGS: ClassVar[list[BindingType]] = [("escape,q,question_mark,enter", "dismiss", "close")]

    def compose(self) -> ComposeResult:
        yield Static(HELP, classes="dialog", markup=False)


class ConfirmDialog(ModalScreen[bool]):
    """Asks before something is stopped or deleted; only y does it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("y", "answer(True)", "yes"),
        ("n,escape,enter,q", "answer(False)", "no"),
    ]

    def __init__(self, command: str, job: str) -> None:
        super().__init__()
        self._question = QUESTIONS[command].format(job=job)

    def compose(self) -> ComposeResult:
        yield Static(f"{self._question}\n\ny  yes      n  no", classes="dialog", markup=False)

    def action_answer(self, answer: bool) -> None:
        self.dismiss(answer)
