"""The connector's options, and the topics that the settings name."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.kafka.connector import TUNED, connector_options
from odradek.pipeline.kafka.inputs import TopicMatcher, refuse_beyond, refuse_missing
from odradek.pipeline.kafka.topics import Topic
from odradek.pipeline.settings import make_settings

ORDERS = Topic("id-1", {0: 10, 1: 0}, {0: 20, 1: 5})


def test_the_connectors_options_follow_the_settings() -> None:
    settings = make_settings(
        {
            "topics": ["a", "b"],
            "bootstrap_server": "one:9092,two:9092",
            "on_data_loss": "continue",
            "isolation_level": "read_uncommitted",
            "kafka": {"max.poll.records": "5", "security.protocol": "SSL"},
        }
    )
    assert connector_options(settings) == {
        **{f"kafka.{name}": value for name, value in TUNED.items()},
        "kafka.bootstrap.servers": "one:9092,two:9092",
        "failOnDataLoss": "false",
        "includeHeaders": "true",
        "kafka.isolation.level": "read_uncommitted",
        "kafka.max.poll.records": "5",
        "kafka.security.protocol": "SSL",
    }
    assert connector_options(make_settings({}))["failOnDataLoss"] == "true"


@pytest.mark.parametrize(
    ("name", "instead"), [("isolation.level", "isolation-level"), ("bootstrap.servers", "bootstrap-server")]
)
def test_an_option_that_has_its_own_setting_is_refused(name: str, instead: str) -> None:
    with pytest.raises(PipelineError, match=f"{name} has a setting of its own; set {instead}"):
        connector_options(make_settings({"topics": ["a"], "kafka": {name: "x"}}))


def test_topics_are_named_one_by_one_or_by_a_java_pattern(spark: SparkSession) -> None:
    matches = TopicMatcher(spark, make_settings({"topics": ["a.b", "c"]}))
    assert matches(["a.b", "c", "axb", ""]) == ["a.b", "c"]
    matches = TopicMatcher(spark, make_settings({"topics_pattern": r"orders-\p{Digit}++|x"}))
    assert matches(["orders-12", "x", "orders-"]) == ["orders-12", "x"]
    assert matches(["orders-1a", "xx", "x"]) == ["x"], "also where some are known"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "no topics are set; set topics or topics-pattern"),
        ({"topics": ["a,b"]}, "topic 'a,b' is not a valid topic name; for a pattern, set topics-pattern"),
        ({"topics": ["a", ""]}, "topic '' is not a valid topic name"),
        ({"topics": ["a" * 250]}, "is not a valid topic name"),
        ({"topics": ["a", "b"], "results_topic": "b"}, "results-topic b is one of the topics that are read"),
        ({"topics_pattern": "b.*", "results_topic": "bc"}, "results-topic bc is one of the topics that are read"),
        ({"topics_pattern": "*"}, r"'\*' is not a Java regular expression"),
    ],
)
def test_invalid_topics_are_reported_before_a_broker_is_asked(
    spark: SparkSession, given: dict[str, object], says: str
) -> None:
    with pytest.raises(PipelineError, match=says):
        TopicMatcher(spark, make_settings(given))


def test_a_missing_topic_is_an_error_unless_it_is_known() -> None:
    settings = make_settings({"topics": ["orders", "gone"]})
    with pytest.raises(PipelineError, match="topic gone does not exist; create it, or change topics"):
        refuse_missing(settings, {"orders": ORDERS})
    refuse_missing(settings, {"orders": ORDERS}, known=["gone"])
    refuse_missing(settings, {"orders": ORDERS, "gone": ORDERS})
    pattern = make_settings({"topics_pattern": "o.*"})
    with pytest.raises(PipelineError, match=r"no topic matches o\.\*; change topics-pattern"):
        refuse_missing(pattern, {})
    refuse_missing(pattern, {}, known=["orders"])


def test_a_partition_does_not_begin_after_its_end() -> None:
    refuse_beyond({"orders": {0: 20, 1: 0}}, {"orders": ORDERS})
    with pytest.raises(PipelineError, match="starting-offsets: orders-1 starts at 6, but the log ends at 5"):
        refuse_beyond({"orders": {0: 20, 1: 6}}, {"orders": ORDERS})
