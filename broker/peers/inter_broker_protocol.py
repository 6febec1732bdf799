"""The protocol between brokers: Kafka's with inter.broker.protocol.version 3.0. The settings refuse any other. A newer
version of a request is used only where the other broker serves it and may do without it.

ZooKeeper's entries of brokers do not name their protocol. A broker therefore checks each other broker when it connects
to it: one that does not serve these versions, by its ApiVersions, is of another protocol version.

Source: Kafka's `ControllerChannelManager`, `ReplicaFetcherThread`, `TransactionMarkerChannelManager` and `KafkaServer`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.schema import NEVER, Versions

BROKER_SOFTWARE = "odradek-broker"
"""How a broker names its software to another one, which then shows it the requests between brokers."""

INTER_BROKER_VERSIONS: Mapping[ApiKey, int] = {
    ApiKey.FETCH: 12,
    ApiKey.LIST_OFFSETS: 7,
    ApiKey.LEADER_AND_ISR: 5,
    ApiKey.STOP_REPLICA: 3,
    ApiKey.UPDATE_METADATA: 7,
    ApiKey.CONTROLLED_SHUTDOWN: 3,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: 4,
    ApiKey.WRITE_TXN_MARKERS: 1,
    ApiKey.ALTER_PARTITION: 0,
    ApiKey.ALLOCATE_PRODUCER_IDS: 0,
}
"""The version of each request that a broker sends to another one, and that another one must serve."""

NEWER_VERSIONS: Mapping[ApiKey, int] = {
    ApiKey.WRITE_TXN_MARKERS: 2,  # KIP-1228
}
"""The version that a broker sends instead to one that serves it, as Kafka 4.2 and newer do."""


def version_to_send(key: ApiKey, served: Mapping[int, Versions]) -> int | None:
    """Returns the version to send to a broker; None if our inter-broker protocol does not name the request."""
    newer = NEWER_VERSIONS.get(key)
    return newer if newer is not None and newer in served.get(key, NEVER) else INTER_BROKER_VERSIONS.get(key)


def not_served(required: Mapping[ApiKey, int], served: Mapping[int, Versions]) -> Iterator[str]:
    """Yields the name and version of each required request that is not served, and the versions that are."""
    for key, version in required.items():
        versions = served.get(key, NEVER)
        if version not in versions:
            known = f" (only {versions.lowest} to {versions.highest})" if key in served else ""
            yield f"{key.api_name} {version}{known}"
