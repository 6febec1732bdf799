"""The settings table against the own settings of Apache Kafka 4.4.0, and of 3.9.1 for those that 4.x no longer has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.settings import (
    BROKER,
    BROKER_GROUPS,
    TOPIC,
    BrokerSettings,
    ConfigError,
    Setting,
    TopicSettings,
    Value,
    parse_value,
    value_text,
)
from odradek.broker.settings.rules import OneOf
from odradek.broker.settings.setting import HIGH, PASSWORD
from odradek.broker.settings.values import parse_type
from odradek.storage.log_config import TOPIC_SETTINGS

OLDER, NEWER = (
    json.loads((Path(__file__).parents[2] / "vectors" / folder / "configs.json").read_text())
    for folder in ("", "kafka_4.4")
)
"""The settings of Apache Kafka 3.9.1 and 4.4.0."""


def vectors_of(kind: str) -> dict[str, dict[str, Any]]:
    """Those of 4.4, and those that it no longer has as they were in 3.9."""
    return {row["name"]: row for release in (OLDER, NEWER) for row in release[kind]}


TOPIC_VECTORS, BROKER_VECTORS = vectors_of("topic"), vectors_of("broker")
OTHER_DEFAULTS = {
    "inter.broker.protocol.version": "3.0-IV1",
    "node.id": "-1",
    "process.roles": "",
}
"""The protocol between brokers is that of one release only; node.id and process.roles are not required."""
OTHER_BOUNDS = {
    "log.segment.bytes": "[14,...]",
    "segment.bytes": "[14,...]",
    "node.id": None,
}
"""Segments may be as small as in 3.9, for tests; node.id may be -1, as broker.id."""
OTHER_ATTRIBUTES = {"listeners": "listeners_listed", "log.dirs": "log_dirs_listed"}
"""The plain names are those of the parsed values."""


def test_topic_settings_equal_kafkas() -> None:
    assert TOPIC.keys() == TOPIC_VECTORS.keys()


def test_broker_settings_equal_kafkas_and_our_own_are_prefixed() -> None:
    assert {name for name in BROKER if not name.startswith("odradek.")} == BROKER_VECTORS.keys()
    assert {name for name in BROKER if name.startswith("odradek.")} == BROKER_GROUPS["Odradek's own"].keys()


@pytest.mark.parametrize(
    ("table", "vectors"), [(TOPIC, TOPIC_VECTORS), (BROKER, BROKER_VECTORS)], ids=["topic", "broker"]
)
def test_each_row_has_kafkas_type_default_importance_and_bounds(
    table: dict[str, Setting[Value]], vectors: dict[str, dict[str, Any]]
) -> None:
    for name, row in vectors.items():
        setting = table[name]
        ours = {
            "type": setting.type.name,
            "default": value_text(setting.default),
            "importance": setting.importance.value,
            "valid": None if setting.valid is None else setting.valid.text,
            "internal": setting.internal,
        }
        wanted = {key: row[key] for key in ours}
        wanted["default"] = OTHER_DEFAULTS.get(name, wanted["default"])
        wanted["valid"] = OTHER_BOUNDS.get(name, wanted["valid"])
        assert ours == wanted, name


@pytest.mark.parametrize(("table", "kind"), [(TOPIC, "topic"), (BROKER, "broker")], ids=["topic", "broker"])
def test_the_settings_that_kafka_4_no_longer_has_are_marked(table: dict[str, Setting[Value]], kind: str) -> None:
    older, newer = ({row["name"] for row in release[kind]} for release in (OLDER, NEWER))
    assert {name for name, setting in table.items() if setting.removed_in is not None} == older - newer


def test_each_topic_setting_takes_its_default_from_the_same_broker_settings() -> None:
    for name, row in TOPIC_VECTORS.items():
        ours = [(synonym.name, synonym.multiplier) for synonym in TOPIC[name].synonyms]
        assert ours == [(each["name"], each.get("multiplier", 1)) for each in row["brokerSynonyms"] or ()], name


def test_each_broker_setting_is_updated_and_replaced_by_synonyms_as_in_kafka() -> None:
    for name, row in BROKER_VECTORS.items():
        setting = BROKER[name]
        assert setting.update_mode.value == row["updateMode"], name
        assert [synonym.name for synonym in setting.synonyms] or [name] == row["synonyms"], name


def test_synonyms_of_broker_settings_have_the_multipliers_of_topic_settings() -> None:
    multipliers = {each.name: each.multiplier for setting in TOPIC.values() for each in setting.synonyms}
    for setting in BROKER.values():
        for synonym in setting.synonyms:
            assert synonym.multiplier == multipliers[synonym.name]


def test_the_settings_that_take_effect_and_no_others_are_attributes() -> None:
    for table, settings in ((BROKER, BrokerSettings), (TOPIC, TopicSettings)):
        for name, setting in table.items():
            attribute = OTHER_ATTRIBUTES.get(name, name.replace(".", "_"))
            assert (getattr(settings, attribute, None) is setting) == setting.takes_effect, name


def test_an_attribute_is_the_typed_value_and_read_only() -> None:
    settings = TopicSettings({"flush.ms": 5})
    assert settings.flush_ms == TopicSettings.flush_ms.of(settings) == 5
    with pytest.raises(AttributeError, match=r"flush\.ms is read only"):
        settings.flush_ms = 6  # type: ignore[assignment]
    assert settings.flush_ms == 5


def test_every_default_is_valid_and_survives_a_round_trip() -> None:
    for setting in [*TOPIC.values(), *BROKER.values()]:
        text = value_text(setting.default)
        if text is not None and not (setting.valid and setting.valid.text == "[broker, controller]"):
            assert parse_value(setting, text) == setting.default, setting


def test_every_setting_is_documented_in_one_sentence() -> None:
    for setting in [*TOPIC.values(), *BROKER.values()]:
        assert setting.documentation.endswith("."), setting
        assert ". " not in setting.documentation, setting
        assert len(setting.documentation) < 180, setting


def test_the_log_has_the_same_defaults_as_the_table() -> None:
    for row in TOPIC_SETTINGS:
        assert row.default == TOPIC[row.name].default, row.name


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("num.partitions", " 3\t", 3),
        ("num.partitions", "+7", 7),
        ("auto.create.topics.enable", "TRUE", True),
        ("log.cleanup.policy", "compact ,delete", ["compact", "delete"]),
        ("log.cleanup.policy", "", []),
        ("log.retention.ms", "9223372036854775807", 2**63 - 1),
        ("log.cleaner.min.cleanable.ratio", "5e-1", 0.5),
        ("log.cleaner.min.cleanable.ratio", ".5d", 0.5),
        ("log.message.format.version", "2.8", "2.8"),
        ("log.message.format.version", "0.10.2", "0.10.2"),
        ("inter.broker.protocol.version", "3.0", "3.0"),
        ("inter.broker.protocol.version", "3.0.2", "3.0.2"),
        ("inter.broker.protocol.version", "3.0-IV1", "3.0-IV1"),
        ("compression.gzip.level", "-1", -1),
        ("group.consumer.migration.policy", "Upgrade", "Upgrade"),
        ("replica.selector.class", " org.example.Selector ", "org.example.Selector"),
    ],
)
def test_a_value_is_parsed_as_in_java(name: str, text: str, value: object) -> None:
    assert parse_value(BROKER[name], text) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("num.partitions", "0"),
        ("num.partitions", "1_000"),
        ("num.partitions", "٣"),
        ("num.partitions", "2147483648"),
        ("num.partitions", "9" * 5000),
        ("num.partitions", ""),
        ("num.partitions", "1.0"),
        ("offsets.topic.replication.factor", "32768"),
        ("log.retention.ms", "9223372036854775808"),
        ("auto.create.topics.enable", "yes"),
        ("log.cleanup.policy", "compact,drop"),
        ("log.cleaner.min.cleanable.ratio", "1.5"),
        ("log.cleaner.min.cleanable.ratio", "half"),
        ("log.cleaner.min.cleanable.ratio", "nan"),
        ("log.cleaner.min.cleanable.ratio", "1_0"),
        ("log.message.format.version", "5.7"),
        ("inter.broker.protocol.version", "3.0-IV0"),
        ("inter.broker.protocol.version", "2.8"),
        ("inter.broker.protocol.version", "3.9-IV0"),
        ("inter.broker.protocol.version", "5.7"),
        ("compression.gzip.level", "0"),
        ("compression.gzip.level", "10"),
        ("compression.type", "brotli"),
        ("remote.log.manager.copier.thread.pool.size", "0"),
        ("group.consumer.migration.policy", "sometimes"),
        ("remote.log.metadata.manager.impl.prefix", ""),
        ("group.share.delivery.count.limit", "11"),
    ],
)
def test_an_invalid_value_is_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=name) as caught:
        parse_value(BROKER[name], text)
    assert caught.value.name == name


@pytest.mark.parametrize(
    ("text", "replicas"),
    [("*", ["*"]), ("", []), ("0:1,12:3", ["0:1", "12:3"]), (" 0:1 , 1:2 ", ["0:1", "1:2"])],
)
def test_throttled_replicas_are_a_star_or_a_list_of_pairs(text: str, replicas: list[str]) -> None:
    assert parse_value(TOPIC["leader.replication.throttled.replicas"], text) == replicas


@pytest.mark.parametrize("text", ["0", "0:x", "*,0:1", ":1", "0:", "1:2:3"])
def test_other_values_of_throttled_replicas_are_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_value(TOPIC["leader.replication.throttled.replicas"], text)


def test_a_secret_never_appears_in_an_error() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_value(Setting(PASSWORD, None, HIGH, name="a.password", doc="Secret.", valid=OneOf("a", "b")), "hunter2")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.5"),
        (1.0, "1.0"),
        (0.0, "0.0"),
        (-0.25, "-0.25"),
        (1e7, "1.0E7"),
        (9999999.0, "9999999.0"),
        (12345678.9, "1.23456789E7"),
        (0.001, "0.001"),
        (0.0001, "1.0E-4"),
        (1e300, "1.0E300"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (float("inf"), "Infinity"),
        (float("-inf"), "-Infinity"),
        (float("nan"), "NaN"),
    ],
)
def test_a_double_is_formatted_as_in_java(value: float, text: str) -> None:
    assert value_text(value) == text
    if value == value:
        assert parse_type(BROKER["log.cleaner.min.cleanable.ratio"].type, text) == value
