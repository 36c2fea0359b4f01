"""One browser for all tests of the page, and a tab that notices everything it must not do."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from tests.conformance.world import until
from tests.page.fixture_server import FixtureServer
from tests.page.fleets import serve_fleet

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
#: Where the browser is: Debian's package, or what CHROMIUM names.
CHROMIUM = "chromium"
#: Says in the page whatever its policy of contents refuses.
WATCH_POLICY = """
window.refused = [];
document.addEventListener("securitypolicyviolation", (event) => {
    window.refused.push(`${event.violatedDirective} ${event.blockedURI}`);
});
"""
SIZES = {"desktop": (1440, 900), "phone": (360, 780)}


@pytest.fixture(scope="session")
def browser() -> Iterator["Browser"]:
    program = shutil.which(os.environ.get("CHROMIUM", CHROMIUM))
    if program is None:
        pytest.skip("needs chromium on PATH (.ci/run installs it)")
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright (make .venv)")
    with playwright.sync_playwright() as started:
        found = started.chromium.launch(executable_path=program, args=FLAGS)
        yield found
        found.close()


@pytest.fixture
def server() -> Iterator[FixtureServer]:
    with serve_page() as found:
        yield found


@contextmanager
def serve_page() -> Iterator[FixtureServer]:
    """The page's server with a fleet, as long as the block lasts."""
    found = FixtureServer()
    serve_fleet(found)
    found.start()
    yield found
    if found.running is not None:
        found.stop()


@dataclass
class Tab:
    """A page of the browser, and what went wrong in it."""

    page: "Page"
    home: str  #: where its server is: everything else is foreign
    errors: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)

    def open(self, address: str) -> "Page":
        self.page.goto(self.home + address)
        return self.page

    def read_refused(self) -> list[str]:
        found: list[str] = self.page.evaluate("window.refused")
        return found

    def import_module(self, path: str, body: str) -> Any:
        """Run the body of a function of one module, in the page."""
        return self.page.evaluate(
            f"async () => {{ const it = await import({path!r}); {body} }}",
        )


def find_axe_problems(page: "Page") -> list[str]:
    """What axe finds, as sentences."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    found = axe.Axe().run(page).response["violations"]
    return [
        f"{one['id']}: {node['html'][:120]} {node['failureSummary']}"
        for one in found
        for node in one["nodes"]
    ]


OpenTab = Callable[..., Tab]


@pytest.fixture
def open_tab(browser: "Browser", server: FixtureServer) -> Iterator[OpenTab]:
    with open_tabs(browser, server) as made:
        yield made


@contextmanager
def open_tabs(browser: "Browser", server: FixtureServer) -> Iterator[OpenTab]:
    """Makes tabs by size and colours; afterwards, none may have broken a rule of the page."""
    contexts: list[BrowserContext] = []
    tabs: list[Tab] = []

    def make_tab(
        size: str = "desktop", colours: str = "light", *, careful: bool = True, home: str = ""
    ) -> Tab:
        wide, high = SIZES[size]
        context = browser.new_context(
            viewport={"width": wide, "height": high},
            color_scheme="dark" if colours == "dark" else "light",
            timezone_id="Europe/Berlin",
            reduced_motion="reduce",
        )
        context.add_init_script(WATCH_POLICY)
        contexts.append(context)
        tab = watch_tab(context.new_page(), home or server.url)
        if careful:
            tabs.append(tab)
        return tab

    yield make_tab
    for tab in tabs:
        assert tab.errors == []
        assert tab.foreign == []
        assert tab.read_refused() == []
    for context in contexts:
        context.close()


def watch_tab(page: "Page", home: str) -> Tab:
    tab = Tab(page=page, home=home)
    page.set_default_timeout(20_000)
    page.on("pageerror", lambda error: tab.errors.append(f"error: {error}"))
    page.on("console", lambda line: tab.errors.append(line.text) if line.type == "error" else None)
    page.on("request", lambda request: note_request(tab, request.url))
    return tab


def note_request(tab: Tab, url: str) -> None:
    if not url.startswith((tab.home, "data:", "about:")):
        tab.foreign.append(url)


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait until this is so: a page draws a moment after a key, and asks its server after that."""
    until(holds, "the page")
