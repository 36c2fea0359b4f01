"""What the agent reads of processors, traffic and libtpu's ports."""

import pytest

from tpuherd_host.agent.host.host_usage import (
    PORTS,
    UsageCounters,
    parse_metrics_ports,
    parse_processor_ticks,
    parse_traffic,
    usage_rates,
)

STAT = """\
cpu  400 10 90 8000 500 0 20 5 0 0
cpu0 400 10 90 8000 500 0 20 5 0 0
intr 1 2 3
"""
TRAFFIC = """\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop
    lo: 999 9 0 0 0 0 0 0 999 9 0 0 0 0 0 0
  ens8: 1000 9 0 0 0 0 0 0 200 9 0 0 0 0 0 0
eth1:50 9 0 0 0 0 0 0 5 9 0 0 0 0 0 0
docker0: 777 9 0 0 0 0 0 0 777 9 0 0 0 0 0 0
broken: x
"""


def test_idle_and_waiting_processors_are_not_busy() -> None:
    assert parse_processor_ticks(STAT) == (525, 9025)
    assert parse_processor_ticks("") == (0, 0)


def test_only_interfaces_that_lead_out_count() -> None:
    assert parse_traffic(TRAFFIC) == (1050, 205)


def test_rates_are_over_the_time_between_two_looks() -> None:
    before = UsageCounters(10.0, 100, 1000, 5000, 7000)
    rates = usage_rates(before, UsageCounters(12.0, 150, 1200, 9000, 7000))
    assert rates == {"over_s": 2.0, "cpu_percent": 25.0, "net_in": 2000.0, "net_out": 0.0}


def test_a_counter_that_went_backwards_gives_no_rate() -> None:
    before = UsageCounters(10.0, 100, 1000, 5000, 7000)
    rates = usage_rates(before, UsageCounters(12.0, 90, 900, 10, 20))
    assert (rates["cpu_percent"], rates["net_in"], rates["net_out"]) == (None, None, None)


@pytest.mark.parametrize(
    ("text", "ports"),
    [
        ("", PORTS),
        ("TPU_RUNTIME_METRICS_PORTS: '8431,8432,8433,8434'\n", PORTS),
        ("A: 'b'\nTPU_RUNTIME_METRICS_PORTS: '9001, 9002'\n", (*PORTS, 9001, 9002)),
        ("TPU_RUNTIME_METRICS_PORTS: '0,99999,123456789012'\n", PORTS),
    ],
)
def test_the_ports_are_those_of_tpu_env_and_the_usual_ones(
    text: str, ports: tuple[int, ...]
) -> None:
    assert parse_metrics_ports(text) == ports
