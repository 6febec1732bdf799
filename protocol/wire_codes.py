"""Enumerations of numbers in requests, with Kafka's names."""

from __future__ import annotations

from enum import IntEnum


class ConfigResourceType(IntEnum):
    """The resources that have settings; Kafka's `ConfigResource.Type`."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigOperation(IntEnum):
    """The changes that IncrementalAlterConfigs makes to a setting (KIP-339); Kafka's `AlterConfigOp.OpType`."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ElectionType(IntEnum):
    """Which replicas ElectLeaders may elect (KIP-460); Kafka's `ElectionType`."""

    PREFERRED = 0
    UNCLEAN = 1


class UpgradeType(IntEnum):
    """What UpdateFeatures may do with a level (KIP-584, KIP-778); Kafka's `FeatureUpdate.UpgradeType`."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class CoordinatorType(IntEnum):
    """The types of coordinators; Kafka's `FindCoordinatorRequest.CoordinatorType`."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


class AclResourceType(IntEnum):
    """What ACLs protect; Kafka's `ResourceType`. ANY stands in filters alone."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class AclPatternType(IntEnum):
    """How an ACL names resources; Kafka's `PatternType`. ANY and MATCH stand in filters alone."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclPermissionType(IntEnum):
    """Kafka's `AclPermissionType`. ANY stands in filters alone."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class AclOperation(IntEnum):
    """The operations of a principal on a resource; Kafka's `AclOperation`. ANY stands in filters alone."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class SecurityProtocol(IntEnum):
    """The security protocols of listeners, as UpdateMetadata numbers them; Kafka's `SecurityProtocol`."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3


class LeaderAndIsrType(IntEnum):
    """What a LeaderAndIsr contains from version 5 on: some replicas of the broker, or all; Kafka's
    `LeaderAndIsrRequest.Type`.
    """

    UNKNOWN = 0
    INCREMENTAL = 1
    FULL = 2


LEADER_DURING_DELETE = -2
"""The leader of a partition that is being deleted, in UpdateMetadata; Kafka's `LeaderAndIsr.LeaderDuringDelete`."""
EPOCH_DURING_DELETE = -2
"""The leader epoch of a topic that is being deleted, in StopReplica; Kafka's `LeaderAndIsr.EpochDuringDelete`."""
