"""Enumerations of numbers in requests, with Kafka's names."""

from __future__ import annotations

from enum import IntEnum


class ConfigResourceType(IntEnum):
    """The resources that have settings; Kafka's `ConfigResource.Type`."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8


class ConfigOperation(IntEnum):
    """The changes that IncrementalAlterConfigs makes to a setting (KIP-339); Kafka's `AlterConfigOp.OpType`."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class CoordinatorType(IntEnum):
    """The types of coordinators; Kafka's `FindCoordinatorRequest.CoordinatorType`."""

    GROUP = 0
    TRANSACTION = 1


class AclOperation(IntEnum):
    """The operations of a principal on a resource; Kafka's `AclOperation`."""

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
