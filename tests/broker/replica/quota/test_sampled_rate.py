from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.replica.quota.sampled_rate import SampledRate

KAFKA = json.loads(Path(__file__).with_name("kafka_rates.json").read_text())
"""What the class SimpleRate of Kafka 3.9.1 measured: rows of a time, an amount (0: none) and the rate afterwards."""


@pytest.mark.parametrize("case", KAFKA, ids=[f"{case['windows']} of {case['window_ms']} ms" for case in KAFKA])
def test_the_rate_is_the_one_that_kafka_measures(case: dict[str, Any]) -> None:
    rate = SampledRate(case["windows"], case["window_ms"])
    for at_ms, amount, expected in case["at_amount_rate"]:
        if amount:
            rate.record(amount, at_ms)
        assert rate.per_second(at_ms) == pytest.approx(expected), at_ms


def test_the_first_amount_counts_for_a_whole_window() -> None:
    rate = SampledRate(11, 1000)
    rate.record(5000, 0)
    assert rate.per_second(0) == 5000
    assert rate.per_second(500) == 5000
    assert rate.per_second(2000) == 2500


def test_nothing_is_left_of_an_amount_after_all_windows() -> None:
    rate = SampledRate(3, 1000)
    rate.record(600, 0)
    assert rate.per_second(2999) > 0
    assert rate.per_second(3000) == 0
