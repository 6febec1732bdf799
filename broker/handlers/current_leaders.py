"""The leaders of partitions that another broker leads now, with their addresses, so that the client goes there without
asking for Metadata first. (KIP-951)

From version 10 on Produce names the leader with NOT_LEADER_OR_FOLLOWER, from version 16 on Fetch also with
FENCED_LEADER_EPOCH. The address is that of the listener that the client uses; a leader that is not alive, or has no
such listener, is named without one.

Source: Kafka's `KafkaApis.getCurrentLeader`.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek.broker.metadata.metadata_cache import NO_LEADER, MetadataCache
from odradek.broker.replica.fetch.fetch_session import FetchResult
from odradek.broker.replica.partition.hosted_partitions import HostedPartitions
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.fetch import FetchResponse
from odradek.protocol.messages.produce import ProduceResponse
from odradek.protocol.topic_partition import TopicPartition

LEADS_ELSEWHERE = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
UNKNOWN = (NO_LEADER, -1)


class CurrentLeaders:
    def __init__(self, partitions: HostedPartitions, metadata: MetadataCache) -> None:
        self._partitions = partitions
        self._metadata = metadata

    def name_in_fetch(self, response: FetchResponse, refused: Iterable[FetchResult], listener: str) -> None:
        """Completes the response. `refused` are the failed reads of the request."""
        named: dict[int, None] = {}
        for target, data in refused:
            if data.error_code in LEADS_ELSEWHERE:
                leader, epoch = leader_and_epoch = self._leader(target.topic_partition)
                if leader_and_epoch != UNKNOWN:
                    data.current_leader = FetchResponse.LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
                    named[leader] = None
        response.node_endpoints = [
            FetchResponse.NodeEndpoint(node_id=node, host=host, port=port, rack=rack)
            for node, host, port, rack in self._addresses(named, listener)
        ]

    def name_in_produce(self, response: ProduceResponse, listener: str) -> None:
        """Completes the response."""
        named: dict[int, None] = {}
        for topic in response.responses:
            for partition in topic.partition_responses:
                if partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    leader, epoch = leader_and_epoch = self._leader(TopicPartition(topic.name, partition.index))
                    if leader_and_epoch != UNKNOWN:
                        partition.current_leader = ProduceResponse.LeaderIdAndEpoch(
                            leader_id=leader, leader_epoch=epoch
                        )
                        named[leader] = None
        response.node_endpoints = [
            ProduceResponse.NodeEndpoint(node_id=node, host=host, port=port, rack=rack)
            for node, host, port, rack in self._addresses(named, listener)
        ]

    def _leader(self, topic_partition: TopicPartition) -> tuple[int, int]:
        """Returns the leader's id, or -1, and the leader epoch, as far as this broker knows them."""
        partition = self._partitions.get(topic_partition)
        if partition is not None:
            return partition.leader_id, partition.leader_epoch
        state = self._metadata.partition(topic_partition.topic, topic_partition.partition)
        return UNKNOWN if state is None else (state.leader, state.leader_epoch)

    def _addresses(self, brokers: Iterable[int], listener: str) -> list[tuple[int, str, int, str | None]]:
        """Returns the id, host, port and rack of those that are alive and have the listener."""
        found = []
        for broker_id in brokers:
            broker = self._metadata.broker(broker_id)
            endpoint = None if broker is None else broker.endpoint(listener)
            if broker is not None and endpoint is not None:
                found.append((broker_id, endpoint.host, endpoint.port, broker.rack))
        return found
