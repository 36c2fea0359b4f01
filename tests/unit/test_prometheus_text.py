"""Metrics: the right figures under documented names, and nothing a host says can break the text."""

import re
import shutil
import subprocess
from dataclasses import dataclass, replace
from importlib.resources import files
from math import inf, nan
from pathlib import Path

import pytest
import yaml

from tests.unit.event_stories import SLOT, started
from tests.unit.test_views import preempted, scene, stored_job
from tpuherd.accounting.goodput import GoodputState
from tpuherd.model.slot_history import Verdict
from tpuherd.model.slots_and_plan import Goal
from tpuherd.model.trouble import TroubleRecord
from tpuherd.views import prometheus_text
from tpuherd.views.metric_table import METRICS
from tpuherd.views.prometheus_text import (
    HOSTS_MAX,
    STALE_S,
    ControllerFacts,
    HostValues,
    ReceiverCounts,
    metrics_text,
)

LINE = re.compile(r'([a-z_]+)(\{(?:[a-z]+="(?:[^"\\\n]|\\["\\n])*",?)*\})? (-?[0-9.e+-]+)')


@dataclass(frozen=True, kw_only=True, slots=True)
class Chip:
    hbm_used: float | None = 8e9
    hbm_total: float | None = 32e9
    duty_percent: float | None = 50.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    host: str = "gpt-0-g1-7kq/w0"
    job: str = "gpt"
    at: float = 0.0
    cpu_percent: float | None = 10.0
    ram_used: float | None = 1e9
    disk_free: float | None = None
    chips: tuple[Chip, ...] = (Chip(), Chip())


def values(text: str) -> dict[str, float]:
    """Return the value of each series, by its name with its labels."""
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            match = LINE.fullmatch(line)
            assert match, line
            series = match[1] + (match[2] or "")
            assert series not in found, f"{series} is given twice"
            found[series] = float(match[3])
    return found


def hosts(*many: Machine) -> dict[str, HostValues]:
    return {one.host: one for one in many}


def test_a_job_that_was_preempted_once() -> None:
    story = preempted()
    view = scene(story, stored_jobs={"gpt": stored_job(document={"max_cost": 100})})
    found = values(metrics_text(view, {}, story.now, ControllerFacts(led_since=story.now - 30)))
    assert found['tpuherd_job_slots{job="gpt",phase="running"}'] == 1
    assert found['tpuherd_job_slots_wanted{job="gpt"}'] == 1
    assert found['tpuherd_job_preemptions_total{job="gpt"}'] == 1
    assert found['tpuherd_job_attempts_total{job="gpt",verdict="preempted"}'] == 1
    assert found['tpuherd_nodes{job="gpt",stage="ready"}'] == 1
    assert found['tpuherd_job_cost_limit_dollars{job="gpt"}'] == 100
    assert found['tpuherd_job_cost_dollars_per_hour{job="gpt"}'] == 3600
    account = view.accounts[SLOT]
    assert found['tpuherd_job_cost_dollars_total{job="gpt"}'] == account.cost
    assert found['tpuherd_job_goodput_ratio{job="gpt"}'] == pytest.approx(account.goodput)
    assert found['tpuherd_job_step{job="gpt"}'] == account.step
    assert found['tpuherd_job_queue_wait_seconds{job="gpt"}'] == 0
    states = [value for name, value in found.items() if name.startswith("tpuherd_job_state_sec")]
    assert sum(states) == pytest.approx(account.end - account.start), "each second once"
    assert found["tpuherd_engine_up"] == found["tpuherd_engine_wanted"] == 1
    assert found["tpuherd_engine_lease_age_seconds"] == 30


def test_without_reports_of_steps_there_is_no_goodput() -> None:
    story = started()
    story.wait(60, GoodputState.UNREPORTED)
    found = values(metrics_text(scene(story), {}, story.now))
    assert found['tpuherd_job_state_seconds{job="gpt",state="unreported"}'] == 60
    assert 'tpuherd_job_goodput_ratio{job="gpt"}' not in found


def test_a_slot_that_waits_counts_from_its_loss() -> None:
    story = preempted()
    story.end(Verdict.PREEMPTED)
    story.lose()
    story.ask()
    lost_at = story.now
    view = scene(story)
    later = replace(view.accounts[SLOT])
    assert later.state in prometheus_text.WAITING
    found = values(metrics_text(view, {}, lost_at + 100))
    assert found['tpuherd_job_queue_wait_seconds{job="gpt"}'] >= 100


def test_no_engine_is_wanted_for_jobs_that_are_over() -> None:
    over = scene(preempted(), accounts={}, engine=False)
    assert values(metrics_text(over, {}, 0.0))["tpuherd_engine_wanted"] == 1, (
        "it was just submitted"
    )
    stopped = replace(over, stored_jobs={"gpt": stored_job(goal=Goal.GONE)})
    found = values(metrics_text(stopped, {}, 0.0))
    assert found["tpuherd_engine_wanted"] == found["tpuherd_engine_up"] == 0
    assert "tpuherd_engine_lease_age_seconds" not in found


def test_hosts_beyond_the_limit_are_summed() -> None:
    many = [Machine(host=f"gpt-{n:04}-g1-7kq/w0") for n in range(HOSTS_MAX + 50)]
    found = values(metrics_text(scene(preempted()), hosts(*many), 60.0))
    used = [name for name in found if name.startswith("tpuherd_chip_hbm_used_bytes")]
    assert len(used) == 2 * HOSTS_MAX + 1
    assert found['tpuherd_chip_hbm_used_bytes{job="gpt",host="other",chip="other"}'] == 100 * 8e9
    assert found['tpuherd_chip_duty_ratio{job="gpt",host="other",chip="other"}'] == 0.5
    assert found["tpuherd_hosts_summed"] == 50
    assert found['tpuherd_host_sample_age_seconds{job="gpt",host="gpt-0000-g1-7kq/w0"}'] == 60


def test_values_of_a_host_that_is_gone_are_left_out() -> None:
    text = metrics_text(scene(preempted()), hosts(Machine()), STALE_S + 1)
    assert "tpuherd_chip" not in text and "tpuherd_hosts_summed 0" in text


def test_what_hosts_report_can_not_break_the_text() -> None:
    wild = Machine(
        host='a"b\\c\nd\x1b[31m\udcff',
        cpu_percent=nan,
        ram_used=None,
        chips=(Chip(hbm_used=inf, hbm_total=None, duty_percent=-5.0), Chip(duty_percent=1e300)),
    )
    text = metrics_text(scene(preempted()), hosts(wild), 0.0)
    assert text.encode() and all(LINE.fullmatch(one) for one in text.splitlines() if one[0] != "#")
    found = values(text)
    label = 'job="gpt",host="a\\"b\\\\c\\nd\x1b[31m?"'
    assert f"tpuherd_host_cpu_ratio{{{label}}}" not in found
    assert f'tpuherd_chip_hbm_used_bytes{{{label},chip="0"}}' not in found
    assert found[f'tpuherd_chip_hbm_used_bytes{{{label},chip="1"}}'] == 8e9


def test_problems_and_receivers() -> None:
    trouble = TroubleRecord(source="cloud", sentence="no answer", since=0, at=1)
    engine = ControllerFacts(
        orphans=2, receivers={"slack": ReceiverCounts(sent=5, failures=3, waiting=1)}
    )
    found = values(metrics_text(scene(preempted(), troubles=[trouble]), {}, 0.0, engine))
    assert found['tpuherd_problems{source="cloud"}'] == 1
    assert found["tpuherd_orphans"] == 2
    assert found['tpuherd_notify_failures_total{receiver="slack"}'] == 3


def test_alert_rules_use_only_metrics_that_exist() -> None:
    rules = yaml.safe_load((files("tpuherd.views") / "alert_rules.yml").read_text())
    for rule in rules["groups"][0]["rules"]:
        names = re.findall(r"tpuherd_[a-z_]+", rule["expr"])
        assert names and set(names) <= set(METRICS), rule["alert"]


@pytest.mark.needs("promtool")
def test_promtool_accepts_the_metrics() -> None:
    story = preempted()
    engine = ControllerFacts(led_since=story.now, receivers={"slack": ReceiverCounts(sent=5)})
    text = metrics_text(scene(story), hosts(Machine(at=story.now)), story.now, engine)
    promtool = shutil.which("promtool") or ""
    done = subprocess.run([promtool, "check", "metrics"], input=text.encode(), capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


RULE_TESTS = """
rule_files: [alert_rules.yml]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - {series: 'tpuherd_info{version="1"}', values: '1x30'}
      - {series: 'tpuherd_engine_up', values: '1x5 0x25'}
      - {series: 'tpuherd_engine_wanted', values: '1x30'}
      - {series: 'tpuherd_job_slots{job="gpt",phase="gave up"}', values: '0x20 1x10'}
      - {series: 'tpuherd_job_attempts_total{job="gpt",verdict="failure"}', values: '0x4 3x26'}
      - {series: 'tpuherd_job_queue_wait_seconds{job="gpt"}', values: '0+600x30'}
      - {series: 'tpuherd_job_last_step_age_seconds{job="gpt"}', values: '0+600x30'}
      - {series: 'tpuherd_job_cost_dollars_total{job="gpt"}', values: '0+10x30'}
      - {series: 'tpuherd_job_cost_limit_dollars{job="gpt"}', values: '100x30'}
      - {series: 'tpuherd_orphans', values: '0x5 2x25'}
      - {series: 'tpuherd_notify_failures_total{receiver="slack"}', values: '0+1x30'}
      - {series: 'tpuherd_problems{source="cloud"}', values: '0x5 1x25'}
    promql_expr_test:
      - {expr: 'count(ALERTS{alertstate="firing"})', eval_time: 1m, exp_samples: []}
      - expr: 'count by (alertname) (ALERTS{alertstate="firing"})'
        eval_time: 30m
        exp_samples:
EXPECTED
"""


@pytest.mark.needs("promtool")
def test_promtool_fires_each_alert_when_it_should(tmp_path: Path) -> None:
    text = (files("tpuherd.views") / "alert_rules.yml").read_text()
    (tmp_path / "alert_rules.yml").write_text(text)
    alerts = [rule["alert"] for rule in yaml.safe_load(text)["groups"][0]["rules"]]
    rows = [f"""          - {{labels: '{{alertname="{name}"}}', value: 1}}"""
            for name in alerts if name != "TpuherdMetricsMissing"]  # fmt: skip
    (tmp_path / "tests.yml").write_text(RULE_TESTS.replace("EXPECTED", "\n".join(rows)))
    for words in (["check", "rules", "alert_rules.yml"], ["test", "rules", "tests.yml"]):
        done = subprocess.run(["promtool", *words], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
