"""Asks the user at the terminal."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tpuherd.errors import InvalidInput

if TYPE_CHECKING:
    from tpuherd.commands.console import Console


class TerminalPrompter:
    def __init__(self, console: "Console", name: str, *, yes: bool) -> None:
        self.console = console
        self.name = name
        self.yes = yes  #: the answer to all questions

    @property
    def environ(self) -> Mapping[str, str]:
        return self.console.environ

    async def show_message(self, sentence: str) -> None:
        await self.console.print_notice(f"{self.name}: {sentence}")

    async def ask_confirmation(
        self, question: str, details: str = "", *, instead: str = ""
    ) -> bool:
        if self.yes and not instead:
            return True
        if details:
            await self.console.print_notice(details)
        if self.yes or not self.console.is_terminal(0):
            raise InvalidInput(question, hint=instead or "without a terminal, confirm with --yes")
        await self.show_message(f"{question}; {instead}" if instead else question)
        await self.console.flush()
        if (
            await self.console.ask_question("Continue? [y/n]", {"y": "continue", "n": "cancel"})
            == "y"
        ):
            return True
        await self.show_message("nothing was changed")
        return False
