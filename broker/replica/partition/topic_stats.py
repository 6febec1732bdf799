"""Counters of topics, incremented on the hot paths and read by the metrics exporter. Names as in Kafka's
BrokerTopicMetrics.
"""

from __future__ import annotations

COUNTERS = (
    "bytes_in",
    "bytes_out",
    "failed_fetch_requests",
    "failed_produce_requests",
    "fetch_requests",
    "messages_in",
    "produce_requests",
)


class TopicStats:
    """Plain counts since the start: bytes, messages, requests per partition (as Kafka counts them) and unexpected
    failures.
    """

    __slots__ = COUNTERS

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self.messages_in = 0
        self.produce_requests = 0
        self.fetch_requests = 0
        self.failed_produce_requests = 0
        self.failed_fetch_requests = 0


class AllTopicStats:
    """The counters of every topic in use, until the topic is deleted; `forgotten` adds up the counters of deleted
    topics.
    """

    __slots__ = ("by_topic", "forgotten")

    def __init__(self) -> None:
        self.by_topic: dict[str, TopicStats] = {}
        self.forgotten = TopicStats()

    def of(self, topic: str) -> TopicStats:
        stats = self.by_topic.get(topic)
        if stats is None:
            stats = self.by_topic[topic] = TopicStats()
        return stats

    def forget(self, topic: str) -> None:
        stats = self.by_topic.pop(topic, None)
        if stats is not None:
            for name in COUNTERS:
                setattr(self.forgotten, name, getattr(self.forgotten, name) + getattr(stats, name))
