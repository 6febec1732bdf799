"""Each unusual setting is there in some seeds, and in some not."""

from __future__ import annotations

from collections import Counter

from odradek.broker.settings.config import BrokerConfig
from tests.simulation.unusual_settings import unusual_settings_of

SEEDS = range(1, 101)
FOR_ALL = "offsets.topic.compression.codec"


def test_each_setting_is_there_in_some_seeds() -> None:
    found = [unusual_settings_of(seed) for seed in SEEDS]
    times = Counter(name for settings in found for name in settings.brokers)
    assert times.pop(FOR_ALL) == len(SEEDS)
    assert all(15 <= each <= 70 for each in times.values()), times
    assert len({settings.codec for settings in found}) == 3
    assert len({tuple(settings.balances) for settings in found}) == 3


def test_brokers_accept_the_settings() -> None:
    for seed in SEEDS:
        settings = unusual_settings_of(seed).brokers
        known = BrokerConfig.single_node({"broker.id": "1", "listeners": "PLAINTEXT://localhost:0", **settings})
        assert known.offsets_topic_compression_codec == int(settings[FOR_ALL])
