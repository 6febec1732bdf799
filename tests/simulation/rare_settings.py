"""Settings that a part of the seeds has, each by itself."""

from __future__ import annotations

from random import Random

SHARE = 0.4


def rare_settings(source: Random) -> dict[str, str]:
    """Draws which of them a seed has.

    The balance of leaders comes often. There are fewer slots for fetch sessions than followers and consumers, so some
    of them name all partitions in each fetch. Followers get little of a partition, or of all, in each fetch.
    """
    drawn = {
        "leader.imbalance.check.interval.seconds": source.randint(2, 8),
        "max.incremental.fetch.session.cache.slots": source.randint(1, 4),
        "replica.fetch.max.bytes": source.randint(200, 1000),
        "replica.fetch.response.max.bytes": source.randint(400, 4000),
    }
    return {name: str(value) for name, value in drawn.items() if source.random() < SHARE}
