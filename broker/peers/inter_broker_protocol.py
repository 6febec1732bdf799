"""The protocol between brokers: Kafka's with inter.broker.protocol.version 3.0. The settings refuse any other.

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
"""The version of each request that a broker sends to another one."""


def not_served(required: Mapping[ApiKey, int], served: Mapping[int, Versions]) -> Iterator[str]:
    """Yields the name and version of each required request that is not served, and the versions that are."""
    for key, version in required.items():
        versions = served.get(key, NEVER)
        if version not in versions:
            known = f" (only {versions.lowest} to {versions.highest})" if key in served else ""
            yield f"{key.api_name} {version}{known}"
