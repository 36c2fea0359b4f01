"""The screen of `herd top`."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Footer, Input, Static

from tpuherd.clock import Clock
from tpuherd.errors import HerdError
from tpuherd.top.detail_lines import Line, event_lines, explain_row, log_lines
from tpuherd.top.summary_lines import problem_text, summary_text
from tpuherd.top.top_dialogs import ConfirmDialog, HelpDialog
from tpuherd.top.top_feed import TopFeed
from tpuherd.top.tree_rows import Json, Key, TreeRow, build_rows
from tpuherd.top.tree_view import TreeView

LOOK_S = 0.5
DETAIL_S = 3.0  #: how often the lower part is read again
TITLES = {"why": "why", "logs": "logs", "events": "events"}
#: Runs a herd command: its words, and whether it needs the terminal. Returns its last line.
RunHerd = Callable[[Sequence[str]], Awaitable[str]]


class TopScreen(App[int]):
    """Jobs, slots, hosts and chips, live; below them what is known of the chosen row."""

    CSS_PATH = "top.tcss"
    TITLE = "herd top"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("w", "show('why')", "why"),
        Binding("l", "show('logs')", "logs"),
        Binding("e", "show('events')", "events"),
        Binding("s", "ssh", "ssh"),
        Binding("x", "change('stop')", "stop"),
        Binding("r", "change('resume')", "resume"),
        Binding("ctrl+d", "change('down')", "delete"),
        Binding("slash", "filter", "filter"),
        Binding("question_mark,f1", "help", "help"),
        Binding("tab", "turn_focus", show=False),
        Binding("escape", "leave_filter", show=False),
        Binding("q,ctrl+c", "quit", "quit"),
    ]

    def __init__(self, feed: TopFeed, clock: Clock, run_herd: RunHerd) -> None:
        super().__init__()
        self.clock = clock
        self._feed = feed
        self._run_herd = run_herd
        self._overview: Json | None = None
        self._opened: set[Key] = set()
        self._known_jobs: set[str] = set()
        self._words = ""
        self._mode = "why"
        self._wake = asyncio.Event()
        self.tree_view = TreeView(id="tree")
        self._texts = {
            name: Static(id=name, markup=False)
            for name in ("summary", "problems", "head", "title", "text")
        }
        self._detail = VerticalScroll(self._texts["text"], id="detail")
        hint = "a job, slot, zone, type or phase; !word hides it"
        self._filter = Input(id="filter", placeholder=hint)

    def compose(self) -> ComposeResult:
        for name in ("summary", "problems", "head"):
            yield self._texts[name]
        yield self.tree_view
        yield self._texts["title"]
        yield self._detail
        yield self._filter
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        self.tree_view.focus()
        self.run_worker(self._follow_store(), name="store")
        self.run_worker(self._follow_detail(), name="detail")

    # ---- what is read --------------------------------------------------------------------------

    async def _follow_store(self) -> None:
        while True:
            try:
                found = await self._feed.read_changes()
            except HerdError as error:
                self._write("problems", Text(f"✗ {error.sentence}", "bold red"))
            else:
                if found is not None:
                    self._overview = found
                    self._draw_tree()
                self._draw_head()
            await self.clock.sleep(LOOK_S)

    async def _follow_detail(self) -> None:
        """Read what is shown of the chosen row: when it changes, and now and then."""
        while True:
            row = self.tree_view.chosen
            if row is not None and self._overview is not None:
                try:
                    self._draw_detail(row, await self._read_detail(row))
                except HerdError as error:
                    self._write("text", Text(error.sentence))
            self._wake.clear()
            waiting = asyncio.ensure_future(self._wake.wait())
            resting = asyncio.ensure_future(self.clock.sleep(DETAIL_S))
            await asyncio.wait((waiting, resting), return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            resting.cancel()

    async def _read_detail(self, row: TreeRow) -> Sequence[Line]:
        now, width = self.clock.now(), self._detail.content_size.width
        if self._mode == "logs":
            return log_lines(await self._feed.read_logs(row.target))
        slot = row.key[1] if len(row.key) > 1 else first_slot(self._overview, row.key[0])
        detail = await self._feed.read_job(row.key[0], slot)
        if self._mode == "events":
            return event_lines(row, detail.events, now)
        return explain_row(row, detail, now, width)

    # ---- what is drawn -------------------------------------------------------------------------

    def _draw_tree(self) -> None:
        found = self._overview
        if found is None:
            return
        jobs = {job["job"] for job in found["jobs"]}
        if len(jobs) == 1:  # there is room: show its slots at once
            self._opened.update((job,) for job in jobs - self._known_jobs)
        self._known_jobs |= jobs
        before = self.tree_view.chosen
        self.tree_view.set_rows(build_rows(found, self._opened, self._words))
        self._draw_head()
        if (
            before is None
            or self.tree_view.chosen is None
            or before.key != self.tree_view.chosen.key
        ):
            self._wake.set()
        if not self.tree_view.rows:
            empty = "Nothing matches the filter." if self._words else "No jobs yet: herd run FILE"
            self._write("text", Text(empty))

    def _draw_head(self) -> None:
        """Say what all jobs do and cost, and what is wrong."""
        found = self._overview
        if found is None:
            return
        now = self.clock.now()
        self._write("summary", summary_text(found, self.size.width, now))
        problems = problem_text(found, now)
        self._write("problems", problems)
        self._texts["problems"].display = bool(problems.plain)
        self._write("head", Text(self.tree_view.head, "bold"))

    def _draw_detail(self, row: TreeRow, lines: Sequence[Line]) -> None:
        chosen = self.tree_view.chosen
        if chosen is None or chosen.key != row.key:
            return  # the cursor has moved on meanwhile
        self._write("title", Text(f" {TITLES[self._mode]} of {row.target} ", "bold"))
        text = Text("\n").join(
            Text.assemble(*((part, style) for part, style in line)) for line in lines
        )
        self._write("text", text if lines else Text("Nothing yet."))
        if self._mode != "why":
            self._detail.scroll_end(animate=False)

    def _write(self, where: str, text: Text) -> None:
        self._texts[where].update(text)

    def on_resize(self) -> None:
        self._draw_tree()
        self._wake.set()

    # ---- what the user does --------------------------------------------------------------------

    def on_tree_view_moved(self) -> None:
        self._wake.set()

    def on_tree_view_toggled(self, message: TreeView.Toggled) -> None:
        if message.is_open:
            self._opened.add(message.key)
        else:
            self._opened.discard(message.key)
        self._draw_tree()

    def action_show(self, mode: str) -> None:
        self._mode = mode
        self._wake.set()

    def action_turn_focus(self) -> None:
        """Between the tree and what is below it."""
        (self.tree_view if self._detail.has_focus else self._detail).focus()

    def action_filter(self) -> None:
        self._filter.display = True
        self._filter.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        self._words = event.value
        self._draw_tree()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.input.display = bool(event.value)
        self.tree_view.focus()

    def action_leave_filter(self) -> None:
        """Leave the filter."""
        self._filter.value = ""
        self._filter.display = False
        self.tree_view.focus()

    def action_help(self) -> None:
        self.push_screen(HelpDialog())

    def action_change(self, command: str) -> None:
        """Stop, resume or delete the job of the row, after a question."""
        row = self.tree_view.chosen
        if row is not None:
            self.run_worker(self._change_job(command, row.key[0]), name="change")

    async def _change_job(self, command: str, job: str) -> None:
        if command != "resume" and not await self.push_screen_wait(ConfirmDialog(command, job)):
            return
        words = [command, job, *(["--yes", "--no-wait"] if command == "down" else [])]
        self.notify(await self._run_herd(words), title=f"herd {command} {job}", markup=False)

    async def action_ssh(self) -> None:
        """Open a terminal on the row's host; the screen comes back afterwards."""
        row = self.tree_view.chosen
        if row is None:
            return
        target = row.target if len(row.key) > 2 else f"{row.target}/w0"
        with self.suspend():
            await self._run_herd(["ssh", target])
        self.refresh()


def first_slot(overview: Json | None, job: str) -> str:
    """The name of a job's first slot; "" if it has none."""
    for one in overview["jobs"] if overview is not None else ():
        if one["job"] == job:
            return str(one["slot_rows"][0]["slot"]) if one["slot_rows"] else ""
    return ""
