"""Three brokers for sixty simulated seconds under thirty faults. `make simulate SEEDS=A-B` runs other seeds."""

from __future__ import annotations

import pytest

from tests.simulation.many import reports
from tests.simulation.world import Scale
from tests.soak import rounds

SEEDS = rounds(20, in_soak=1000)
SEEDS_PER_TEST = rounds(5, in_soak=1000)
LEAST_RECORDS, LEAST_REQUESTS, LEAST_HITS = 5000, 1000, 20
"""Of each seed: acknowledged records, Produce requests with one of them, and faults that hit work in flight."""


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.soak("1,000 seeds", minutes=60)
@pytest.mark.parametrize("first", range(1, SEEDS + 1, SEEDS_PER_TEST))
def test_three_brokers_under_faults_keep_their_promises(first: int) -> None:
    ended = list(reports(range(first, first + SEEDS_PER_TEST), Scale(brokers=3)))
    assert len(ended) == SEEDS_PER_TEST
    assert [report.text for report in ended if not report.has_passed] == []
    for report in ended:
        assert report.acknowledged_records >= LEAST_RECORDS, report.text
        assert report.produce_requests >= LEAST_REQUESTS, report.text
        assert report.hits >= LEAST_HITS, report.text
