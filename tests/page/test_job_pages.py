"""The fleet's page and a job's page in a real browser: what they show, ask, and keep current."""

import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.page import fleets, job_scenes
from tests.page.conftest import OpenTab, find_axe_problems, wait_until
from tests.page.fixture_server import FixtureServer
from tests.page.test_pages import wait_until_connected

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.real, pytest.mark.needs("chromium")]

NODES, HOSTS, CHIPS = 1000, 4, 4
#: What one change of such a fleet may take of the page's own time, on a machine that is shared.
PATCH_MAX_S = 0.05


@pytest.fixture(autouse=True)
def served_job(server: FixtureServer) -> None:
    job_scenes.serve_job(server)


def scroll_through(page: "Page") -> None:
    """Charts and logs start when they are seen."""
    cards = page.locator("main section[aria-labelledby^=card-]:visible")
    for at in range(cards.count()):
        cards.nth(at).scroll_into_view_if_needed()


def open_job(open_tab: OpenTab) -> "Page":
    page = open_tab().open("#/jobs/gpt")
    page.get_by_role("heading", name="Timeline").wait_for()
    return page


def test_charts_logs_and_attempts_give_axe_nothing_to_find(open_tab: OpenTab) -> None:
    for size, colours in (("desktop", "dark"), ("phone", "light")):
        page = open_tab(size, colours).open("#/jobs/gpt")
        page.get_by_text("The program needs more HBM.").first.wait_for()
        scroll_through(page)
        page.locator(".log-line").first.wait_for()
        assert find_axe_problems(page) == []
        wide = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert wide[0] <= wide[1], f"the page is wider than {size}"


def test_hostile_names_inject_nothing(server: FixtureServer, open_tab: OpenTab) -> None:
    jobs = [fleets.build_job(name) for name in fleets.HOSTILE]
    nodes = [fleets.build_node(0, job=name) for name in fleets.HOSTILE]
    for job in jobs:
        job["slot_rows"][0] |= {"phase": "queued", "state": "queue_first", "why": job["job"]}
    hostile = fleets.HOSTILE[0]
    page_of_job = job_scenes.build_job_page(hostile)
    page_of_job["document"] = {hostile: hostile}
    page_of_job["slot_details"][0]["attempts"][0] |= {"why": hostile, "lines": [hostile]}
    lines = [job_scenes.build_line(at, 0, text) for at, text in enumerate(fleets.HOSTILE)]
    server.content |= {
        "/api/overview": fleets.build_overview(jobs=jobs, nodes=nodes),
        f"/api/jobs/{hostile}": page_of_job,
        f"/api/jobs/{hostile}/series": {"series": []},
        f"/api/jobs/{hostile}/logs": {"lines": lines, "more": False},
    }
    page = open_tab().open("")
    page.get_by_role("link", name=hostile).first.wait_for()
    check_unhurt(page)
    page.get_by_role("link", name=hostile).first.click()
    page.get_by_role("heading", name="Timeline").wait_for()
    scroll_through(page)
    page.locator(".log-line").get_by_text(fleets.HOSTILE[1]).wait_for()
    check_unhurt(page)


def check_unhurt(page: "Page") -> None:
    assert page.evaluate("window.hurt") is None
    assert page.locator("main img, main script, main [onmouseover], main [onerror]").count() == 0
    text = page.locator("main").inner_text()
    assert "\u202e" not in text
    assert "\x1b" not in text


def test_a_goodput_that_is_not_known_is_called_unknown(
    server: FixtureServer, open_tab: OpenTab
) -> None:
    unknown = {"goodput": None, "goodput_why": "unknown: the script reports no steps"}
    job = fleets.build_job(slots=3) | unknown
    job["slot_rows"][1] |= unknown
    server.content |= {
        "/api/overview": fleets.build_overview(jobs=[job]),
        "/api/jobs/gpt": job_scenes.build_job_page() | unknown,
        "/api/cost/gpt": fleets.build_report() | unknown,
    }
    page = open_tab().open("")
    page.locator(".job-table tbody").get_by_text("unknown", exact=True).wait_for()
    tile = page.locator('.tile[data-key="goodput"]')
    tile.get_by_text("mean of the slots, 1 unknown").wait_for()
    assert "91.0 %" in tile.inner_text()
    page = open_tab().open("#/jobs/gpt")
    page.get_by_text(str(unknown["goodput_why"])).wait_for()
    page = open_tab().open("#/cost")
    page.locator(".report .tile").get_by_text(str(unknown["goodput_why"])).wait_for()


def test_a_change_is_shown_where_it_happened(server: FixtureServer, open_tab: OpenTab) -> None:
    page = open_tab().open("")
    wait_until_connected(page)
    row = page.locator(".job-table tbody tr").filter(has_text="gpt")
    row.get_by_text("running").wait_for()
    slot = {
        **fleets.build_slot(1),
        "phase": "queued",
        "state": "capacity_wait",
        "why": "no v4 left",
    }
    job = {**fleets.build_job(), "phases": {"running": 1, "queued": 1}, "slot_rows": [slot]}
    problem = {"source": "cloud", "message": "403", "hint": "log in", "count": 3}
    problem |= {"since": fleets.NOW - 60, "at": fleets.NOW}
    change = {"now": fleets.NOW, "seq": 8, "jobs": [job], "nodes": [], "problems": [problem]}
    change |= {"removed_nodes": ["gpt-1-g1-7kq"], "removed_jobs": []}
    server.send("changes", change)
    server.send("events", [job_scenes.build_event(9, "bid.refused gpt-1-g2-7kq stockout")])
    page.get_by_text("no v4 left").wait_for()
    row.get_by_text("1 queued").wait_for()
    page.get_by_text("Problem with the cloud: 403").wait_for()
    page.get_by_text("4 chips of 1 node").wait_for()
    page.locator(".event").get_by_text("stockout").wait_for()
    server.content["/api/overview"] = fleets.build_overview(jobs=[fleets.build_job("other")])
    server.send("reset", {})
    page.locator(".job-table").get_by_text("other").wait_for()
    wait_until(lambda: page.get_by_text("no v4 left").count() == 0)


def test_the_chips_and_the_timeline_are_read_by_keys(open_tab: OpenTab) -> None:
    page = open_tab().open("")
    said = page.locator("#announcer")
    page.locator("canvas.chips").focus()
    page.keyboard.press("ArrowRight")
    said.get_by_text("gpt-0, host 0, chip 1: running, duty 88 %").wait_for()
    page.keyboard.press("PageDown")
    said.get_by_text("gpt-1, host 0, chip 0").wait_for()
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Timeline").wait_for()
    page.locator(".timeline-plot").focus()
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    said.get_by_text(re.compile("gpt-0: productive, 50 m 00 s")).wait_for()
    page.keyboard.press("ArrowDown")
    said.get_by_text(re.compile("gpt-1: productive")).wait_for()
    shares = page.locator(".timeline .legend").inner_text()
    page.keyboard.press("Enter")
    wait_until(lambda: page.locator(".timeline .legend").inner_text() != shares)  # it is zoomed
    page.keyboard.press("0")
    wait_until(lambda: page.locator(".timeline .legend").inner_text() == shares)
    page.keyboard.press("?")
    page.get_by_role("dialog").get_by_text("show these keys").wait_for()


def test_the_timeline_tells_what_losses_cost(open_tab: OpenTab) -> None:
    page = open_job(open_tab)
    sentence = page.locator(".timeline-sentence").inner_text()
    wanted = 2 * sum(seconds for seconds, _ in job_scenes.STORY)
    share = 100 * 2 * job_scenes.LOST_S / wanted
    assert sentence.startswith(f"2 losses cost 34 m 00 s of 4 h 00 m ({share:.1f} %), about $")
    page.get_by_text("As a table", exact=True).click()
    page.get_by_role("columnheader", name="capacity wait").wait_for()
    page.get_by_text("queue 10 m 00 s").first.wait_for()
    page.get_by_role("button", name="Only failures").click()
    wait_until(lambda: page.locator("article.attempt").count() == 2)
    page.get_by_text("Use a smaller batch.").first.wait_for()


def test_a_job_is_changed_only_after_a_question(server: FixtureServer, open_tab: OpenTab) -> None:
    server.content["POST /api/jobs/gpt/stop"] = {"message": "Stopped gpt"}
    page = open_job(open_tab)
    page.get_by_role("button", name="Stop").click()
    question = page.get_by_role("dialog")
    question.get_by_text("2 nodes ($6.44 an hour) are given back").wait_for()
    question.get_by_text("gpt-[0-1]: up to 100 steps since the last checkpoint").wait_for()
    question.get_by_role("button", name="Cancel").click()
    assert server.posted == []
    page.get_by_role("button", name="Stop").click()
    question.get_by_role("button", name="Stop").click()
    page.get_by_text("Stopped gpt").first.wait_for()
    page.get_by_role("button", name="Scale").click()
    question.get_by_role("spinbutton").fill("5")
    question.get_by_text("3 more nodes (about $9.66 an hour more)").wait_for()
    page.keyboard.press("Enter")
    page.get_by_text("done").first.wait_for()
    wait_until(lambda: len(server.posted) == 2)
    assert server.posted == [("/api/jobs/gpt/stop", {}), ("/api/jobs/gpt/scale", {"count": 5})]
    wait_until(lambda: page.get_by_role("dialog").count() == 0)


def test_who_may_only_look_has_no_buttons(server: FixtureServer, open_tab: OpenTab) -> None:
    server.content["/api/overview"] = {**fleets.build_overview(), "may_change": False}
    page = open_job(open_tab)
    wait_until_connected(page)
    assert not page.get_by_role("button", name="Stop").is_visible()


@pytest.mark.parametrize(("phases", "offered"), [({"running": 2}, False), ({"gave up": 1}, True)])
def test_a_job_that_gave_up_can_be_resumed(
    server: FixtureServer, open_tab: OpenTab, phases: dict[str, int], offered: bool
) -> None:
    overview = fleets.build_overview()
    jobs = [{**job, "phases": phases} if job["job"] == "gpt" else job for job in overview["jobs"]]
    server.content["/api/overview"] = {**overview, "jobs": jobs}
    page = open_job(open_tab)
    page.get_by_role("button", name="Delete").wait_for()
    assert page.get_by_role("button", name="Resume").is_visible() is offered


def test_logs_are_folded_filtered_and_followed(server: FixtureServer, open_tab: OpenTab) -> None:
    overview = fleets.build_overview(nodes=[fleets.build_node(0, hosts=4)])
    page_of_job = job_scenes.build_job_page(slots=1)
    server.content |= {"/api/overview": overview, "/api/jobs/gpt": page_of_job}
    page = open_job(open_tab)
    scroll_through(page)
    lines = page.locator(".log-line:visible")
    lines.get_by_text("step 9").wait_for()
    wait_until(lambda: lines.count() == 11)
    assert lines.filter(has_text="step 9").locator(".log-host").inner_text() == "all 4 hosts"
    assert lines.filter(has_text="only here").locator(".log-host").inner_text() == "gpt-0/w2"
    stream = "/api/jobs/gpt/logs/stream"
    page.locator(".log-state").get_by_text("live").wait_for()
    again = job_scenes.build_lines()[-1]
    fresh = job_scenes.build_line(12, 0, "25%\r50%\rloss is nan")
    server.send("lines", [again, fresh], stream=stream)
    lines.get_by_text("loss is nan", exact=True).wait_for()
    assert lines.filter(has_text="only here").count() == 1, "a repeated line is shown once"
    page.get_by_label("Filter lines").fill("/NaN$/")
    page.get_by_text("1 of 12 lines match").wait_for()
    wait_until(lambda: page.locator("mark").inner_text() == "nan")
    page.get_by_label("Filter lines").fill("step w3")
    page.get_by_text("10 of 12 lines match").wait_for()
    page.get_by_label("Worker").select_option("3")
    page.locator(".log-tools a[href$='?worker=3']").wait_for()
    wait_until(lambda: any("logs?worker=3" in path for path in server.requests))


def test_an_old_token_is_told_and_not_tried_for_ever(
    server: FixtureServer, open_tab: OpenTab
) -> None:
    page = open_tab(careful=False).open("")  # the browser itself reports the status as an error
    wait_until_connected(page)
    refusal = (401, {"error": "no", "hint": ""})
    server.errors |= {"/api/stream": refusal, "/api/overview": refusal}
    server.stop()
    server.start()
    page.get_by_text("This page is no longer live.").wait_for()
    asked = len(server.requests)
    page.wait_for_timeout(2_000)
    assert len(server.requests) == asked
    page.locator("#link-status").get_by_text("signed out").wait_for()


def test_a_job_that_is_not_there_is_told(open_tab: OpenTab) -> None:
    page = open_tab(careful=False).open("#/jobs/none")
    page.get_by_text("There is nothing at /api/jobs/none.").wait_for()
    assert not page.get_by_role("heading", name="Timeline").is_visible()


def read_script_seconds(session: Any) -> float:
    metrics = session.send("Performance.getMetrics")["metrics"]
    return float(next(one["value"] for one in metrics if one["name"] == "ScriptDuration"))


def test_a_thousand_nodes_do_not_lag(server: FixtureServer, open_tab: OpenTab) -> None:
    server.content["/api/overview"] = job_scenes.build_wide_overview()
    page = open_tab().open("")
    page.get_by_text("16,000 chips of 1,000 nodes").wait_for()
    wait_until_connected(page)
    row = page.locator(".job-table tbody tr").filter(has_text="train-3")
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    before, rounds = read_script_seconds(session), 20
    for number in range(rounds):
        hosts = {
            f"train-0-{at}-g1-7kq/w0": {**fleets.build_host(0, CHIPS), "duty": [number] * CHIPS}
            for at in range(60)
        }
        slot = {**fleets.build_slot(5, job="train-3"), "step": 2000 + number}
        job = {**fleets.build_job("train-3", slots=100), "slot_rows": [slot], "attempt": number}
        server.send("samples", {"now": fleets.NOW, "hosts": hosts})
        server.send("changes", {"now": fleets.NOW, "seq": 8 + number, "jobs": [job]})
        row.get_by_text(f"1,200–{2000 + number:,} of 5,000").wait_for()
    each = (read_script_seconds(session) - before) / rounds
    assert each < PATCH_MAX_S
