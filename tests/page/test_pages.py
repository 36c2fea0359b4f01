"""Each page in a real browser: it shows its data, stays live, and keeps the rules of the house."""

from typing import TYPE_CHECKING, Any

import pytest

from tests.page import fleets
from tests.page.conftest import OpenTab, find_axe_problems, wait_until
from tests.page.fixture_server import STATIC, FixtureServer

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.real, pytest.mark.needs("chromium")]

#: Each page: its address, and a text that it shows once its data is there.
PAGES = {
    "sweep": ("#/sweeps/lr", "28 of 40"),
    "capacity": ("#/capacity", "us-central2-b"),
    "cost": ("#/cost", "$930.25"),
    "quota": ("#/quota", "us-east1-d"),
    "world": ("#/world", "gpt-1-g1-7kq"),
}
LOOKS = [("desktop", "light"), ("desktop", "dark"), ("phone", "light"), ("phone", "dark")]


def change_cost(server: FixtureServer) -> None:
    server.content["/api/cost"] = {**fleets.build_cost(), "total": 1234.5}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_shows_its_data_and_axe_finds_nothing(name: str, open_tab: OpenTab) -> None:
    address, text = PAGES[name]
    for size, colours in LOOKS:
        tab = open_tab(size, colours)
        page = tab.open(address)
        page.locator("main").get_by_text(text).first.wait_for()
        assert find_axe_problems(page) == []
        wide = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert wide[0] <= wide[1], f"{name} is wider than {size}"


@pytest.mark.parametrize("name", PAGES)
def test_hostile_names_inject_nothing(name: str, server: FixtureServer, open_tab: OpenTab) -> None:
    fleets.serve_hostile_fleet(server)
    tab = open_tab()
    page = tab.open(PAGES[name][0])
    page.locator("main h1").wait_for()
    page.locator("main :text-matches('img src=x|onmouseover')").first.wait_for(state="attached")
    assert page.evaluate("window.hurt") is None
    assert page.locator("main img, main script, main [onmouseover], main [onerror]").count() == 0
    links = page.evaluate("[...document.querySelectorAll('a')].map((a) => a.getAttribute('href'))")
    assert all(link.startswith(("#", "/api/jobs/")) for link in links), links
    assert "\u202e" not in page.locator("main").inner_text()
    assert find_axe_problems(page) == []


def test_a_change_is_shown_at_once(server: FixtureServer, open_tab: OpenTab) -> None:
    page = open_tab().open("#/cost")
    page.get_by_text("$930.25").wait_for()
    wait_until_connected(page)
    change_cost(server)
    server.send("changes", {"now": fleets.NOW, "seq": 8, "jobs": [fleets.build_job()], "nodes": []})
    page.get_by_text("$1,234.50").wait_for()


def test_the_page_is_right_after_the_server_was_gone(
    server: FixtureServer, open_tab: OpenTab
) -> None:
    tab = open_tab(careful=False)  # the browser itself reports refused connections as errors
    page = tab.open("#/cost")
    page.get_by_text("$930.25").wait_for()
    wait_until_connected(page)
    server.stop()
    page.locator('#link-status[data-status="reconnecting"]').wait_for()
    assert page.get_by_text("$930.25").count() == 1, "what was there stays"
    change_cost(server)
    server.start()
    page.get_by_text("$1,234.50").wait_for()
    wait_until_connected(page)
    assert tab.read_refused() == []


def wait_until_connected(page: "Page") -> None:
    page.locator('#link-status[data-status="live"]').wait_for()


def test_an_error_is_a_sentence_and_the_page_recovers(
    server: FixtureServer, open_tab: OpenTab
) -> None:
    server.errors["/api/capacity"] = (503, {"error": "The store is damaged.", "hint": "Wait."})
    tab = open_tab(careful=False)  # the browser itself reports the status as an error
    page = tab.open("#/capacity")
    page.get_by_text("The store is damaged.").wait_for()
    server.errors.clear()
    page.get_by_role("button", name="Try again").click()
    page.get_by_role("heading", name="By zone, type and tier").wait_for()
    wait_until(lambda: page.get_by_text("The store is damaged.").count() == 0)


def test_the_page_has_all_its_styles(open_tab: OpenTab) -> None:
    page = open_tab().open("#/quota")
    page.get_by_role("heading", name="Quota").wait_for()
    names = "[...document.styleSheets].map((one) => one.href.split('/').at(-1))"
    assert sorted(page.evaluate(names)) == sorted(file.name for file in STATIC.glob("*.css"))


EMPTY: dict[str, tuple[str, Any, str]] = {
    "sweep": (
        "/api/sweeps/lr",
        {**fleets.build_sweep(trials=0), "best": None},
        "No trial has been created yet",
    ),
    "capacity": ("/api/capacity", {"rows": [], "hours": []}, "No node has been requested yet"),
    "cost": (
        "/api/cost",
        {**fleets.build_cost(()), "days": [], "sentences": []},
        "Nothing has cost anything",
    ),
    "quota": ("/api/quota", {"limits": [], "trouble": ""}, "no grants are declared"),
    "world": (
        "/api/world",
        {**fleets.build_world(), "nodes": [], "rules": [], "log": [], "can": []},
        "There is no node",
    ),
}


@pytest.mark.parametrize("name", EMPTY)
def test_a_page_without_data_says_what_to_do(
    name: str, server: FixtureServer, open_tab: OpenTab
) -> None:
    path, content, sentence = EMPTY[name]
    server.content[path] = content
    page = open_tab().open(PAGES[name][0])
    page.locator("main").get_by_text(sentence).wait_for()
    assert find_axe_problems(page) == []


def test_the_buttons_of_the_world(server: FixtureServer, open_tab: OpenTab) -> None:
    server.content["POST /api/world/preempt"] = {"message": "us-east1-d/gpt-1-g1-7kq has 30 s"}
    page = open_tab().open("#/world")
    page.get_by_role("button", name="Preempt gpt-1-g1-7kq").press("Enter")
    page.get_by_text("us-east1-d/gpt-1-g1-7kq has 30 s").wait_for()
    page.get_by_role("button", name="Drought us-central2-b").click()
    page.get_by_role("button", name="End http-error-1").click()
    page.get_by_label("Kind").select_option("preempt")
    page.get_by_label("target").fill("gpt-*")
    page.get_by_role("button", name="Let it happen").click()
    page.get_by_text("preempt: done.").wait_for()
    assert server.posted == [
        ("/api/world/preempt", {"target": "us-east1-d/gpt-1-g1-7kq"}),
        ("/api/world/drought", {"zone": "us-central2-b", "for": "10m"}),
        ("/api/world/clear", {"rule": "http-error-1"}),
        ("/api/world/preempt", {"target": "gpt-*"}),
    ]


def test_a_table_is_sorted_and_filtered_by_keyboard(open_tab: OpenTab) -> None:
    page = open_tab().open("#/sweeps/lr")
    column = page.get_by_role("columnheader", name="loss")
    column.get_by_role("button").press("Enter")
    wait_until(lambda: column.get_attribute("aria-sort") == "descending")
    column.get_by_role("button").press("Enter")
    wait_until(lambda: column.get_attribute("aria-sort") == "ascending")
    values = page.locator('.data-table td[data-title="loss"]').all_inner_texts()
    numbers = [float(value) for value in values if value != "–"]
    assert numbers == sorted(numbers)
    assert set(values[len(numbers) :]) == {"–"}, "what is unknown comes last"
    page.keyboard.press("/")
    page.keyboard.type("lion pruned")
    count = page.locator(".table-count")
    count.get_by_text("of 28").wait_for()
    rows = page.locator(".data-table tbody tr")
    wait_until(lambda: rows.count() == int(count.inner_text().split()[0]))
    assert "adam" not in page.locator(".data-table tbody").inner_text()


def test_the_heat_map_is_read_by_arrow_keys(open_tab: OpenTab) -> None:
    page = open_tab().open("#/capacity")
    page.locator(".heat-table td").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    said = page.locator(".heat-detail")
    wait_until(lambda: said.inner_text().startswith("us-central2-b, 01:00:"))
