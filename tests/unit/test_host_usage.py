"""What the agent says of its host's rates, and where libtpu's values are."""

import pytest

from tpuherd_host.agent.host.host_sample import Counters
from tpuherd_host.agent.host.host_usage import PORTS, parse_metrics_ports, usage_rates


def test_rates_are_over_the_time_between_two_looks() -> None:
    before = Counters(10.0, (100, 1000), (5000, 7000))
    rates = usage_rates(before, Counters(12.0, (150, 1200), (9000, 7000)))
    assert rates == {"over_s": 2.0, "cpu_percent": 25.0, "net_in": 2000, "net_out": 0}


def test_a_counter_that_went_backwards_gives_no_rate() -> None:
    before = Counters(10.0, (100, 1000), (5000, 7000))
    rates = usage_rates(before, Counters(12.0, (90, 900), (10, 20)))
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
