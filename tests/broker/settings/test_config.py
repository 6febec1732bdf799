from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from odradek.broker.settings import BROKER
from odradek.broker.settings.config import (
    SINGLE_NODE_FILE,
    BrokerConfig,
    ConfigError,
    load_config,
    read_properties_file,
)
from odradek.broker.settings.setting import LONG_MAX

HOUR_MS = 3_600_000


def config(**settings: str) -> BrokerConfig:
    return BrokerConfig.from_mapping({name.replace("_", "."): value for name, value in settings.items()})


def test_without_settings_kafkas_defaults_apply() -> None:
    empty = config()
    assert empty.num_partitions == 1
    assert empty.auto_create_topics_enable is True
    assert empty.offsets_topic_replication_factor == 3
    assert empty.log_dirs == ["/tmp/kafka-logs"]
    assert empty.broker_id == -1


def test_the_single_node_file_is_for_one_broker_on_loopback() -> None:
    single = BrokerConfig.single_node()
    assert single.broker_id == 0
    assert single.log_dirs == ["./data"]
    assert [(each.host, each.port) for each in single.listeners] == [("127.0.0.1", 9092)]
    for name in (
        "offsets.topic.replication.factor",
        "transaction.state.log.replication.factor",
        "transaction.state.log.min.isr",
    ):
        assert single.values[name] == 1
    assert single.group_initial_rebalance_delay_ms == 0
    given = read_properties_file(SINGLE_NODE_FILE)
    assert not {"zookeeper.connect", "advertised.listeners"} & given.keys()
    assert given.keys() <= BROKER.keys()


def test_the_file_in_config_is_the_packaged_one() -> None:
    repository = Path(__file__).parents[3]
    assert (repository / "config" / "server.properties").read_bytes() == SINGLE_NODE_FILE.read_bytes()


def test_with_a_config_file_only_that_file_applies(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("broker.id=7\nlog.dirs=/a, /b\n")
    read = load_config(str(path))
    assert read.broker_id == 7
    assert read.log_dirs == ["/a", "/b"]
    assert read.offsets_topic_replication_factor == 3


def test_flags_override_a_config_file_and_the_packaged_one(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("broker.id=7\nlog.dirs=/a\nnum.partitions=3\n")
    for given in (str(path), None):
        read = load_config(given, port=1234, data_dir="/elsewhere", settings=["num.partitions=9", "broker.rack="])
        assert read.log_dirs == ["/elsewhere"]
        assert read.num_partitions == 9
        assert read.broker_rack == ""
        assert read.listeners[0].port == 1234


@pytest.mark.parametrize("text", ["num.partitions", "=3", " =3"])
def test_an_override_needs_a_name_and_a_value(text: str) -> None:
    with pytest.raises(ConfigError, match="name=value"):
        load_config(settings=[text])


def test_a_missing_file_is_named_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*nowhere\.properties"):
        load_config(str(tmp_path / "nowhere.properties"))


def test_a_file_with_a_broken_escape_is_named_in_the_error(tmp_path: Path) -> None:
    path = tmp_path / "broken.properties"
    path.write_bytes(b"broker.rack=\\u12")
    with pytest.raises(ConfigError, match=r"broken\.properties"):
        load_config(str(path))


def test_node_id_and_broker_id_are_synonyms() -> None:
    assert config(node_id="4").broker_id == 4
    assert config(broker_id="5").node_id == 5
    with pytest.raises(ConfigError, match="must be the same"):
        config(broker_id="1", node_id="2")


@pytest.mark.parametrize(
    ("settings", "ms"),
    [
        ({}, 168 * HOUR_MS),
        ({"log.retention.hours": "2"}, 2 * HOUR_MS),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.ms": "-1"}, -1),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.minutes": "-5"}, -1),
    ],
)
def test_retention_is_taken_from_milliseconds_then_minutes_then_hours(settings: dict[str, str], ms: int) -> None:
    assert BrokerConfig.from_mapping(settings).log_config().retention_ms == ms


def test_rolling_jitter_and_flushing_settings_have_synonyms() -> None:
    read = BrokerConfig.from_mapping(
        {"log.roll.hours": "3", "log.roll.jitter.hours": "1", "log.flush.scheduler.interval.ms": "77"}
    ).log_config()
    assert (read.segment_ms, read.segment_jitter_ms, read.flush_ms) == (3 * HOUR_MS, HOUR_MS, 77)
    read = BrokerConfig.from_mapping(
        {"log.roll.ms": "5", "log.roll.hours": "3", "log.roll.jitter.ms": "6", "log.flush.interval.ms": "7"}
    ).log_config()
    assert (read.segment_ms, read.segment_jitter_ms, read.flush_ms) == (5, 6, 7)


def test_a_topics_own_settings_override_the_brokers() -> None:
    read = config(log_segment_bytes="5000", message_max_bytes="70").log_config(
        {"segment.bytes": "6000", "cleanup.policy": "compact,delete"}
    )
    assert (read.segment_bytes, read.max_message_bytes, read.compact, read.delete) == (6000, 70, True, True)


@pytest.mark.parametrize(
    "overrides",
    [{"segment.bytes": "13"}, {"no.such.setting": "1"}, {"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"}],
)
def test_unknown_topic_settings_and_invalid_values_are_refused(overrides: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=next(iter(overrides))):
        config().log_config(overrides)


@pytest.mark.parametrize(
    "settings",
    [
        {"broker.id": "1001"},
        {"broker.id": "-2"},
        {"broker.id": "-1", "broker.id.generation.enable": "false"},
        {"process.roles": "broker,controller"},
        {"process.roles": "controller", "node.id": "1"},
        {"process.roles": "broker,broker", "node.id": "1"},
        {"controller.listener.names": "CONTROLLER"},
        {"log.dirs": " , "},
        {"log.roll.ms": "0"},
        {"log.roll.jitter.ms": "-1"},
        {"log.retention.ms": "0"},
        {"queued.max.request.bytes": "5"},
        {"odradek.login.timeout.ms": "0"},
        {"max.connections.per.ip": "0"},
        {"max.connections.per.ip.overrides": "localhost"},
        {"max.connections.per.ip.overrides": "127.0.0.1:many"},
        {"connections.max.idle.ms": "100"},
        {"replica.fetch.wait.max.ms": "40000"},
        {"log.cleaner.threads": "128"},
        {"offsets.commit.required.acks": "4"},
        {"offsets.commit.required.acks": "-2"},
        {"offsets.topic.compression.codec": "5"},
        {"offsets.topic.compression.codec": "-1"},
        {"log.cleaner.min.compaction.lag.ms": "5", "log.cleaner.max.compaction.lag.ms": "4"},
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        BrokerConfig.from_mapping(settings)


def test_unknown_settings_are_kept_and_named_in_one_warning() -> None:
    read = config(my_plugin_size="3", another_name="x")
    with capture_logs() as lines:
        read.warn()
    assert [line["names"] for line in lines] == [["another.name", "my.plugin.size"]]
    assert lines[0]["log_level"] == "warning"
    assert read.given["my.plugin.size"] == "3"


def test_a_setting_without_effect_logs_a_warning() -> None:
    read = BrokerConfig.from_mapping(
        {"num.io.threads": "4", "num.partitions": "2", "listener.name.x.max.connections": "5"}
    )
    with capture_logs() as lines:
        read.warn()
    assert [line["names"] for line in lines] == [["listener.name.x.max.connections", "num.io.threads"]]


def test_the_packaged_file_causes_no_warning_but_added_settings_do() -> None:
    with capture_logs() as lines:
        load_config().warn()
        load_config(settings=["background.threads=3"]).warn()
    assert [line["names"] for line in lines] == [["background.threads"]]


def test_a_dynamic_setting_overrides_a_static_one_and_this_brokers_the_clusters() -> None:
    read = config(log_segment_bytes="1000", message_max_bytes="2000")
    changes: list[frozenset[str]] = []
    read.on_change(changes.append)
    read.apply_dynamic({"log.segment.bytes": "3000", "message.max.bytes": "4000"}, {"log.segment.bytes": "5000"})
    assert (read.log_segment_bytes, read.message_max_bytes) == (5000, 4000)
    assert read.log_config().segment_bytes == 5000
    read.apply_dynamic({}, {})
    assert (read.log_segment_bytes, read.message_max_bytes) == (1000, 2000)
    assert changes == [{"log.segment.bytes", "message.max.bytes"}] * 2


def test_a_dynamic_setting_hides_static_synonyms() -> None:
    read = config(log_roll_hours="2", log_retention_minutes="5")
    read.apply_dynamic({"log.roll.ms": "7"}, {"log.retention.ms": "9"})
    assert (read.log_config().segment_ms, read.log_config().retention_ms) == (7, 9)


def test_an_invalid_stored_setting_is_ignored_and_logged() -> None:
    read = config()
    with capture_logs() as lines:
        read.apply_dynamic({"log.segment.bytes": "3", "message.max.bytes": "4000"}, {})
    assert (read.log_segment_bytes, read.message_max_bytes) == (1073741824, 4000)
    assert [line["name"] for line in lines] == ["log.segment.bytes"]


def test_settings_that_are_only_dynamic_are_read_from_the_dynamic_layers_alone() -> None:
    leaders, followers = "leader.replication.throttled.rate", "follower.replication.throttled.rate"
    read = BrokerConfig.from_mapping({leaders: "1"})
    assert read.dynamic_only.leader_replication_throttled_rate == LONG_MAX
    assert read.unknown_names() == [leaders]
    changes: list[frozenset[str]] = []
    read.on_change(changes.append)
    with capture_logs() as lines:
        read.apply_dynamic({leaders: "5", followers: "6"}, {leaders: "7", followers: "x"})
    assert read.dynamic_only.leader_replication_throttled_rate == 7
    assert read.dynamic_only.follower_replication_throttled_rate == 6
    assert [line["name"] for line in lines] == [followers]
    read.apply_dynamic({}, {})
    assert read.dynamic_only.leader_replication_throttled_rate == LONG_MAX
    assert changes == [{leaders, followers}] * 2


def test_a_change_is_checked_against_all_layers() -> None:
    read = config(log_cleaner_max_compaction_lag_ms="10")
    with pytest.raises(ConfigError, match=r"min\.compaction\.lag\.ms"):
        read.check_dynamic({"log.cleaner.min.compaction.lag.ms": "11"}, per_broker=False)
    read.check_dynamic({"log.cleaner.min.compaction.lag.ms": "9"}, per_broker=False)
    assert read.log_cleaner_min_compaction_lag_ms == 0


@pytest.mark.parametrize(
    ("flag", "names", "value"),
    [
        ("log.dir=/there", ("log.dirs", "log.dir"), (None, ["/there"])),
        ("node.id=7", ("broker.id", "node.id"), (7, 7)),
        ("broker.id=7", ("broker.id", "node.id"), (7, 7)),
        ("log.retention.hours=2", ("log.retention.ms", "log.retention.hours"), (None, 2)),
    ],
)
def test_a_flag_overrides_every_synonym_in_the_file(
    tmp_path: Path, flag: str, names: tuple[str, str], value: tuple[object, object]
) -> None:
    file = tmp_path / "server.properties"
    file.write_text("broker.id=1\nlog.dirs=/here\nlog.retention.ms=5\n")
    config = load_config(str(file), settings=[flag])
    assert tuple(config.values[name] for name in names) == value
    assert load_config(settings=["log.dir=/there"]).log_dirs == ["/there"]
    assert BrokerConfig.single_node({"node.id": "7"}).broker_id == 7


@pytest.mark.parametrize("name", ["remote.storage.enable", "remote.log.copy.disable", "remote.log.delete.on.disable"])
def test_a_topic_cannot_enable_tiered_storage(name: str) -> None:
    config().check_topic_config({name: "false"})
    with pytest.raises(ConfigError, match=name):
        config().check_topic_config({name: "true"})
