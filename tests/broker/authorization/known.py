"""What Odradek answers otherwise than Apache Kafka, each with its reason; docs/differences.md lists it for users."""

from __future__ import annotations

from typing import Any

from tests.beside_kafka.known import Known

KNOWN: list[Known] = [
    Known(
        "(LEADER_AND_ISR|STOP_REPLICA|UPDATE_METADATA|CONTROLLED_SHUTDOWN|ALTER_PARTITION|ALLOCATE_PRODUCER_IDS) .*",
        ".*",
        "a node without a cluster does not serve these",
    ),
    Known(
        "API_VERSIONS .*",
        r".*\.(Supported|Finalized)Features",
        "the features are those of Kafka 4.4; Kafka 3.9 had none on ZooKeeper",
    ),
    Known(
        "DESCRIBE_GROUPS 5, (authorized operations|operations of the super user).*",
        r".*\.AuthorizedOperations",
        "the operations on a group are those of Kafka 4.4: the group's settings are among them",
    ),
    Known(
        "METADATA .*, a topic that is created.*",
        r".*\.Topics\[new\]\.(ErrorCode|Partitions|TopicId)",
        "the first answer waits for the topic, Kafka's is LEADER_NOT_AVAILABLE",
    ),
    Known(
        "DESCRIBE_CONFIGS .*, every kind of resource.*|INCREMENTAL_ALTER_CONFIGS .*, every kind of resource.*",
        r".*\.(Results|Responses)\[0\]\..*",
        "the log levels of a broker in a program belong to the program",
    ),
    Known(
        "DESCRIBE_CONFIGS 0, .*",
        r".*\.IsDefault",
        "Kafka 3.9 says in version 0 of no setting that it has its default",
    ),
    Known(
        "DESCRIBE_CONFIGS .*, a kind that does not exist.*",
        r".*\.Results\[there\]\..*",
        "Kafka refuses all resources if the kind of one is unknown; here only that one",
    ),
    Known(
        "DESCRIBE_USER_SCRAM_CREDENTIALS .*, all users",
        "",
        "Kafka never answers a client that may not describe all users",
    ),
    Known(
        "ALTER_CONFIGS .*, a resource that is named twice",
        ".*",
        "Kafka never answers an AlterConfigs that names a resource twice",
    ),
    Known(
        "OFFSET_FETCH 1, three topics",
        r".*\.Topics",
        "Kafka answers version 1 without partitions, and so without an error, if the group is denied",
    ),
]


def is_a_text(path: str, kafka: Any, ours: Any) -> bool:
    """Whether these are messages for people, of which Odradek's may say more."""
    return path.endswith("ErrorMessage") and isinstance(ours, str | None) and (bool(ours) or not kafka)
