"""Half of the seeds have small segments."""

from __future__ import annotations

from tests.simulation.segments import INDEX_SIZES, SIZES, segments_of


def test_half_of_the_seeds_have_small_segments_of_many_sizes() -> None:
    found = [segments for seed in range(1, 301) if (segments := segments_of(seed)) is not None]
    assert 120 <= len(found) <= 180
    assert all(SIZES[0] <= segments.size <= SIZES[1] for segments in found)
    assert len({segments.size for segments in found}) > 100
    assert any(segments.index_size < 2 * INDEX_SIZES[0] for segments in found)
