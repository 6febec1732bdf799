"""The settings of a group in effect."""

from __future__ import annotations

from collections.abc import Mapping

from structlog.testing import capture_logs

from odradek.broker.coordinator.group.consumer.settings import ConsumerGroupSettings, GroupSettingsInEffect
from odradek.broker.settings.config import BrokerConfig

SESSION, INTERVAL = "consumer.session.timeout.ms", "consumer.assignment.interval.ms"


class Own:
    """The settings of groups, each change in a mapping of its own."""

    def __init__(self, **groups: Mapping[str, str]) -> None:
        self.groups: dict[str, Mapping[str, str]] = dict(groups)
        self.config = BrokerConfig.from_mapping({"broker.id": "0", "group.consumer.heartbeat.interval.ms": "6000"})
        self.in_effect = GroupSettingsInEffect(self.config, self.groups)

    def of(self, group_id: str) -> ConsumerGroupSettings:
        return self.in_effect.of(group_id)


def test_a_group_without_settings_has_the_brokers() -> None:
    own = Own(g={SESSION: "50000"})
    assert own.of("other") is own.of("another")
    assert own.of("other") == ConsumerGroupSettings.from_config(own.config)
    assert (own.of("g").session_timeout_ms, own.of("g").heartbeat_interval_ms) == (50000, 6000)
    assert own.of("g") is own.of("g")


def test_a_change_of_the_groups_or_the_brokers_settings_takes_effect_at_once() -> None:
    own = Own(g={INTERVAL: "0"})
    assert (own.of("g").assignment_interval_ms, own.of("other").assignment_interval_ms) == (0, 1000)
    own.groups["g"] = {SESSION: "46000"}
    assert (own.of("g").assignment_interval_ms, own.of("g").session_timeout_ms) == (1000, 46000)
    own.config.apply_dynamic({"group.consumer.assignment.interval.ms": "5"}, {})
    assert (own.of("g").assignment_interval_ms, own.of("other").assignment_interval_ms) == (5, 5)
    del own.groups["g"]
    assert own.of("g").session_timeout_ms == 45000


def test_a_stored_value_outside_the_bounds_counts_as_the_nearest_one_with_one_warning() -> None:
    own = Own(low={SESSION: "1"}, high={SESSION: "70000", INTERVAL: "20000"}, damaged={SESSION: "x"})
    with capture_logs() as lines:
        for _ in range(3):
            found = [own.of(group).session_timeout_ms for group in ("low", "high", "damaged")]
            assert found == [45000, 60000, 45000]
        assert own.of("high").assignment_interval_ms == 15000
    assert [(line["log_level"], line["group"], line["names"]) for line in lines] == [
        ("warning", "low", [SESSION]),
        ("warning", "high", [SESSION, INTERVAL]),
        ("warning", "damaged", [SESSION]),
    ]
