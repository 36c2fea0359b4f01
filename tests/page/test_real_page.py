"""The page of a real `herd ui`: a world, a job, and a node preempted by the page's own button."""

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.integration.engines import Owner, owner
from tests.page.conftest import OpenTab

pytestmark = [pytest.mark.real, pytest.mark.needs("chromium")]

#: The other pages, and what each shows once it has its data.
OTHERS = {"capacity": "us-central2-b", "cost": "Where the time went", "quota": "allowed"}
RUN = """\
for step in $(seq 1 2000); do
    python3 -m tpuherd_host.report step=$step loss=$(python3 -c "print(2.5 / ($step + 1))")
    sleep 0.5
done
"""


@pytest.fixture(scope="module")
def user() -> Iterator[Owner]:
    with owner() as found:
        found.job("gpt", RUN, accelerator="v4-8", zones="us-central2-b", tier="spot")
        yield found


@contextmanager
def serve_page(user: Owner) -> Iterator[str]:
    """Run `herd ui`; the address that it prints."""
    with user.begun("ui", "--no-browser") as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)/\?token=\S+", line)
        assert found, line
        yield found[0]
        process.send_signal(signal.SIGINT)
        process.wait(60)


def test_a_node_is_preempted_by_a_button_and_the_job_page_tells_it(
    user: Owner, open_tab: OpenTab
) -> None:
    user.happened("attempt.first_step")
    with serve_page(user) as address:
        home, token = address.split("?")
        tab = open_tab(home=home)
        page = tab.open(f"?{token}")
        page.locator('#link-status[data-status="live"]').wait_for()
        assert "token" not in page.url
        page.get_by_role("link", name="World").click()
        page.get_by_role("button", name=re.compile("Preempt gpt-0-g1")).click()
        page.get_by_text(re.compile(r"preempt: .*gpt-0-g1")).first.wait_for()
        page.locator(".world-log").get_by_text(re.compile("preempt")).first.wait_for()
        tab.open("#/jobs/gpt")
        page.locator("main").get_by_text(re.compile("preempt")).first.wait_for(timeout=90_000)
        user.happened("attempt.first_step", many=2)
        for name, text in OTHERS.items():
            tab.open(f"#/{name}")
            page.locator("main").get_by_text(text).first.wait_for()
            assert page.locator("main .notice.bad").count() == 0, name
