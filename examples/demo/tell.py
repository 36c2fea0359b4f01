"""Prints what happens, when, and what it cost in the end."""

import json
import os
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tpuherd.accounting.accounts import build_accounts
from tpuherd.accounting.goodput import SlotAccount, find_recoveries
from tpuherd.commands.terminal_facts import choose_colour, has_unicode
from tpuherd.model.slots_and_plan import HistoryEvent
from tpuherd.views.format_text import format_money, format_share, format_span, format_table
from tpuherd.views.job_pages import recovery_text, time_cells
from tpuherd.views.job_rows import recovery_row
from tpuherd.views.slot_pictures import timeline_lines
from tpuherd.views.sparkline import sparkline
from tpuherd.views.text_width import to_ascii

Facts = Mapping[str, Any]
HOUR_S = 3600.0
FILE_COLUMNS = 100  #: of the picture in a file or pipe
#: Log lines that are part of the story.
TELLING = ("herd:", "finished:")


def bucket(facts: Facts, name: str) -> None:
    """Create a bucket, as any client of Cloud Storage would."""
    url = f"{facts['url']}/storage/v1/b?project={facts['project']}"
    body = json.dumps({"name": name, "location": "US"}).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30):
        pass


def left(facts: Facts) -> list[str]:
    """Return the names of all nodes and queued resources."""
    where = f"{facts['url']}/v2/projects/{facts['project']}/locations/-"
    names = []
    for kind in ("nodes", "queuedResources"):
        with urllib.request.urlopen(f"{where}/{kind}", timeout=30) as response:
            names += [one["name"] for one in json.load(response).get(kind, ())]
    return names


class Story:
    """Prints the story, and collects what the report needs."""

    def __init__(self) -> None:
        self.began = time.time()
        self.events: list[HistoryEvent] = []
        self.zones: dict[str, str] = {}  #: of each bid
        self.zone = ""  #: where the training is
        self.losses: dict[int, float] = {}
        self.told: set[str] = set()
        chosen = choose_colour(os.environ)
        colours = sys.stdout.isatty() if chosen is None else chosen
        self.bold, self.dim, self.red, self.plain = (
            ("\033[1m", "\033[2m", "\033[31m", "\033[0m") if colours else ("",) * 4
        )

    def chapter(self, title: str) -> None:
        print(f"\n{self.bold}{title}{self.plain}", flush=True)

    def aside(self, text: str) -> None:
        """Print a line without a time."""
        print(f"  {self.dim}{text}{self.plain}", flush=True)

    def begin(self) -> None:
        """Start counting seconds."""
        self.chapter("What happens")
        self.began = time.time()

    def line(self, text: str, at: float | None = None) -> None:
        print(f"  {(at or time.time()) - self.began:5.1f} s  {text}", flush=True)

    def bad(self, text: str) -> None:
        """Print what the weather does."""
        self.line(f"{self.red}{text}{self.plain}")

    def hear(self, heard: Facts) -> None:
        """Print an event, or a line of the log, if it is part of the story."""
        if "kind" in heard:
            facts = dict(heard)
            facts.pop("seq", None)
            head = {name: facts.pop(name) for name in ("at", "kind", "job", "slot")}
            self.events.append(HistoryEvent(**head, facts=facts))
            tell = TOLD.get(head["kind"])
            text = tell(self, facts) if tell else None
            if text:
                self.line(text, head["at"])
        elif "loss" in heard:
            self.losses[heard["step"]] = heard["loss"]
            self.line(f"step {heard['step']:3}  loss {heard['loss']:.3f}")
        elif str(heard.get("text", "")).startswith(TELLING):
            text = self.once(heard["text"], str(heard["text"]).removeprefix("herd: "))
            if text:
                self.line(text)

    def once(self, name: str, text: str) -> str | None:
        """Return the text the first time: several hosts or requests report the same."""
        if name in self.told:
            return None
        self.told.add(name)
        return text

    def report(self) -> Iterator[str]:
        """Yield what each loss cost, where the time went, and the result."""
        (account,) = build_accounts(self.events, self.events[-1].at).values()
        for recovery in find_recoveries(account):
            yield recovery_text(recovery_row(recovery))
        yield ""
        yield from times(account)
        yield ""
        yield (
            f"goodput {format_share(account.goodput)} of {format_span(account.wanted_s)}, "
            f"{account.steps_lost} steps lost,"
            f" cost {format_money(account.cost, known=account.priced)}"
        )
        gone_s = sum(recovery.until - recovery.at for recovery in find_recoveries(account))
        share = format_share(gone_s / HOUR_S)
        yield f"(in a training of one hour, these losses would have cost {share})"
        if self.losses:
            losses = list(self.losses.values())
            yield f"loss {losses[0]:.3f} {sparkline(losses)} {losses[-1]:.3f}"

    def picture(self) -> None:
        """Print the timeline of the job: what it waited for, when it worked, what it lost."""
        colours = sys.stdout.isatty()
        width = os.get_terminal_size().columns if colours else FILE_COLUMNS
        accounts = [*build_accounts(self.events, self.events[-1].at).values()]
        self.chapter("The whole job in one line")
        for line in timeline_lines(accounts, {}, colour=bool(self.bold), width=width - 2):
            print(f"  {line if has_unicode(os.environ) else to_ascii(line)}", flush=True)


def times(account: SlotAccount) -> Iterator[str]:
    """Yield a table of where the time went."""
    seconds = {str(state): time for state, time in account.seconds.items() if round(time, 1)}
    rows = [("", "", "", ""), *time_cells(seconds)]
    yield from format_table(rows, right=(1, 2)).splitlines()[1:]


def asked(story: Story, facts: Facts) -> str | None:
    story.zones[facts["bid"]] = facts["offer"]["zone"]
    text = f"requests a spot v5litepod-16 in {facts['offer']['zone']}"
    return story.once(f"{facts['bid']} asked", text)


def granted(story: Story, facts: Facts) -> str | None:
    return f"{story.zones.get(facts['bid'], '')} grants a node"


def launched(story: Story, facts: Facts) -> str:
    story.zone = story.zones.get(facts["bid"], "")
    return f"attempt {facts['number']} starts on 4 hosts in {story.zone}"


def noticed(story: Story, facts: Facts) -> str | None:
    text = (
        f"the hosts receive the notice: {str(facts.get('notice', '')).replace('TRUE', '').strip()}"
    )
    return story.once(f"{facts['bid']} noticed", text)


def refused(story: Story, facts: Facts) -> str | None:
    where = story.zones.get(facts["bid"], "")
    return story.once(f"{where} refused", f"{where} refuses: {facts.get('message', '')[:70]}")


def ended(story: Story, facts: Facts) -> str:
    last = [] if facts["verdict"] in ("success", "preempted") else facts.get("lines") or []
    number = facts["attempt"].split("-a")[-1].split("-")[0]  # of charlm-0-a1-k3v9x0
    head = f"attempt {number} ended, {facts['verdict']}: {facts['why']}"
    return "\n           ".join([head, *last])


#: How each kind of event is printed; the others are in `herd events charlm`.
TOLD: Mapping[str, Callable[[Story, Facts], str | None]] = {
    "bid.requested": asked,
    "bid.refused": refused,
    "bid.granted": granted,
    "bid.notice_received": noticed,
    "bid.lost": lambda story, facts: f"the node is lost: {facts['cause']}",
    "slot.prepared": lambda story, facts: "code and setup are done on all hosts",
    "attempt.launched": launched,
    "attempt.ended": ended,
    "slot.done": lambda story, facts: f"done: {facts['why']}",
    "slot.gave_up": lambda story, facts: f"gave up: {facts['why']}",
}
