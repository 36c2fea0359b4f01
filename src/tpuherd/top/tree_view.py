"""The tree of `herd top` as a widget: draws only the lines that are to be seen."""

from collections.abc import Sequence
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from tpuherd.top.row_cells import Piece, TreeColumn, head_text, row_pieces, visible_columns
from tpuherd.top.tree_rows import Key, TreeRow

PAGE = 10


class TreeView(ScrollView, can_focus=True):
    """Rows with a cursor; what is open is the screen's to decide."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("pageup", f"move(-{PAGE})", show=False),
        Binding("pagedown", f"move({PAGE})", show=False),
        Binding("home,g", "move(-1000000)", show=False),
        Binding("end,G", "move(1000000)", show=False),
        Binding("enter,space", "turn", show=False),
        Binding("right", "open", show=False),
        Binding("left", "close", show=False),
    ]

    class Moved(Message):
        """The cursor is on another row."""

    class Toggled(Message):
        """A row is to be opened or closed."""

        def __init__(self, key: Key, *, is_open: bool) -> None:
            super().__init__()
            self.key, self.is_open = key, is_open

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.rows: Sequence[TreeRow] = ()
        self._columns: Sequence[TreeColumn] = ()
        self.cursor = 0

    @property
    def chosen(self) -> TreeRow | None:
        return self.rows[self.cursor] if self.cursor < len(self.rows) else None

    def set_rows(self, rows: Sequence[TreeRow]) -> None:
        """Show these rows; the cursor stays on its row, or goes to the one above it."""
        key = self.chosen.key if self.chosen else ()
        self.rows = rows
        places = {row.key: at for at, row in enumerate(rows)}
        while key and key not in places:
            key = key[:-1]
        self.cursor = places.get(key, min(self.cursor, max(0, len(rows) - 1)))
        self._fit_columns()

    @property
    def head(self) -> str:
        """The titles above the rows."""
        return head_text(self._columns, self.size.width)

    def _fit_columns(self) -> None:
        self._columns = visible_columns(self.rows, self.size.width)
        self.virtual_size = Size(self.size.width, len(self.rows))
        self.refresh()

    def render_line(self, y: int) -> Strip:
        at = y + self.scroll_offset.y
        width = self.size.width
        if at >= len(self.rows):
            return Strip.blank(width, self.rich_style)
        here = Style(reverse=True) if at == self.cursor else Style()
        pieces = row_pieces(self.rows[at], self._columns, width)
        return Strip(to_segments(pieces, self.rich_style, here)).adjust_cell_length(width)

    def on_resize(self) -> None:
        self._fit_columns()

    def on_click(self, event: events.Click) -> None:
        at = event.y + self.scroll_offset.y
        if at >= len(self.rows):
            return
        again = at == self.cursor
        self.move_cursor(at)
        if again:
            self.action_turn()

    def action_move(self, by: int) -> None:
        self.move_cursor(self.cursor + by)

    def action_turn(self) -> None:
        row = self.chosen
        if row is not None and row.opens:
            self.post_message(self.Toggled(row.key, is_open=not row.is_open))

    def action_open(self) -> None:
        row = self.chosen
        if row is not None and row.opens and not row.is_open:
            self.post_message(self.Toggled(row.key, is_open=True))
        else:
            self.action_move(1)

    def action_close(self) -> None:
        """Close the row, or go to the one that has it."""
        row = self.chosen
        if row is not None and row.is_open:
            self.post_message(self.Toggled(row.key, is_open=False))
        elif row is not None and len(row.key) > 1:
            above = next(at for at, one in enumerate(self.rows) if one.key == row.key[:-1])
            self.move_cursor(above)

    def move_cursor(self, to: int) -> None:
        to = max(0, min(to, len(self.rows) - 1))
        if to != self.cursor and self.rows:
            self.cursor = to
            self.refresh()
            self.post_message(self.Moved())
        self.scroll_to_region(Region(0, to, 1, 1), animate=False)


def to_segments(pieces: Sequence[Piece], ground: Style, cursor: Style) -> list[Segment]:
    return [Segment(text, ground + Style.parse(style) + cursor) for text, style in pieces if text]
