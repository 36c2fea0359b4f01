"""Asks the user at the terminal; loads nothing, so that a command on hosts starts at once."""

from collections.abc import Mapping

from tpuherd.commands.console import Console
from tpuherd.errors import Unfit


class Asking:
    """The user at the terminal."""

    def __init__(self, console: Console, name: str, *, yes: bool) -> None:
        self.console = console
        self.name = name
        self.yes = yes  #: to all

    @property
    def environ(self) -> Mapping[str, str]:
        return self.console.environ

    async def tell(self, sentence: str) -> None:
        await self.console.tell(f"{self.name}: {sentence}")

    async def agree(self, question: str, details: str = "") -> bool:
        if self.yes:
            return True
        if details:
            await self.console.tell(details)
        if not self.console.terminal(0):
            raise Unfit(question, hint="without a terminal nobody can be asked: --yes says so")
        await self.tell(question)
        await self.console.flush()
        if await self.console.ask("Go on? [y/n]", {"y": "go on", "n": "leave it"}) == "y":
            return True
        await self.tell("nothing was changed")
        return False
