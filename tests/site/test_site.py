"""The built site: every link leads somewhere, search finds things, nothing comes from elsewhere."""

import re
from collections.abc import Iterator
from functools import cache
from html import unescape
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import pytest

from tests.page.conftest import FLAGS, watch_tab

if TYPE_CHECKING:
    from playwright.sync_api import Page

ROOT = Path(__file__).parents[2]
SITE = ROOT / "build" / "site" / "html"
LINK = re.compile(r"""<(?:a|link|img|script)\b[^>]*?\b(?:href|src)=["']?([^"'\s>]+)""")
ANCHOR = re.compile(r"""\bid=["']?([^"'\s>]+)""")
LOADED = re.compile(r"""<(?:link|img|script)\b[^>]*?\b(?:href|src)=["']?([^"'\s>]+)""")
PHONE = {"width": 360, "height": 780}


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    def handle(*words: object) -> QuietHandler:
        return QuietHandler(*words, directory=str(SITE))  # type: ignore[arg-type]

    with ThreadingHTTPServer(("127.0.0.1", 0), handle) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def pages() -> list[Path]:
    return sorted(SITE.rglob("*.html"))


@cache
def anchors(page: Path) -> frozenset[str]:
    return frozenset(unescape(one) for one in ANCHOR.findall(page.read_text()))


def target_file(page: Path, link: str) -> Path:
    path = unquote(urlsplit(link).path)
    there = SITE / path.lstrip("/") if path.startswith("/") else page.parent / path
    there = (there if path else page).resolve()
    return there / "index.html" if there.is_dir() else there


def test_every_link_leads_somewhere() -> None:
    """Those to other sites are listed, not tried."""
    dead, outside = set[str](), set[str]()
    for page in pages():
        for link in map(unescape, LINK.findall(page.read_text())):
            if re.match(r"[a-z]+:", link):
                outside.add(link)
                continue
            if page.name == "404.html":
                continue  # shown at any address
            file, anchor = target_file(page, link), unquote(urlsplit(link).fragment)
            known = anchors(file) if anchor and file.is_file() else {""}
            if not file.is_file() or (anchor and anchor not in known):
                dead.add(f"{page.relative_to(SITE)}: {link}")
    (SITE.parent / "links-outside.txt").write_text("\n".join(sorted(outside)) + "\n")
    assert sorted(dead) == []
    assert len(pages()) > 100


def test_nothing_is_loaded_from_elsewhere() -> None:
    loaded = {link for page in pages() for link in LOADED.findall(page.read_text())}
    assert [link for link in loaded if re.match(r"(https?:)?//", link)] == []


def test_every_page_of_the_repository_is_on_it_with_its_title() -> None:
    for source in (ROOT / "docs").rglob("*.md"):
        part = source.relative_to(ROOT / "docs").with_suffix("")
        place = SITE / (part.parent if part.name == "README" else part) / "index.html"
        title = re.findall(r"^# (.+)$", source.read_text(), re.M)[0]
        words = re.sub(r"<[^>]+>|¶", "", unescape(place.read_text()))
        assert re.sub(r"[`*]", "", title) in words, source


@pytest.fixture(scope="module")
def open_page(address: str) -> Iterator["Page"]:
    playwright = pytest.importorskip("playwright.sync_api")
    import shutil

    program = shutil.which("chromium")
    if program is None:
        pytest.skip("needs chromium on PATH (.ci/run installs it)")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=program, args=FLAGS)
        page = browser.new_page(color_scheme="dark")
        tab = watch_tab(page, address)
        page.goto(address)
        yield page
        browser.close()
    assert (tab.errors, tab.foreign) == ([], [])


def test_search_finds_preemption_and_leads_there(open_page: "Page") -> None:
    open_page.locator(".md-search__button").first.click()
    entry = open_page.get_by_role("combobox")
    entry.fill("preemption")
    open_page.get_by_role("option").filter(has_text="Walk 1: a preemption").click()
    open_page.wait_for_url("**/explanation/architecture/**")


def test_a_phone_needs_no_scrolling_sideways(open_page: "Page", address: str) -> None:
    open_page.set_viewport_size(PHONE)  # type: ignore[arg-type]
    for page in ("", "reference/job/", "howto/watching/"):
        open_page.goto(address + page)
        wide = open_page.evaluate("document.documentElement.scrollWidth")
        assert wide <= PHONE["width"], page


def test_it_follows_the_colors_of_the_system(open_page: "Page", address: str) -> None:
    open_page.goto(address)
    scheme = "document.body.getAttribute('data-md-color-scheme')"
    background = "getComputedStyle(document.body).backgroundColor"
    dark = open_page.evaluate(background)
    open_page.emulate_media(color_scheme="light")
    open_page.reload()
    assert open_page.evaluate(background) != dark, open_page.evaluate(scheme)
