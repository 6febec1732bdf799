"""Why replicas are not in sync, as far as the brokers say.

(A) A broker that the cluster does not list is down, or its session has ended.
(B) A replica that its broker does not list in a log directory is offline. Asked for the replica's producers, Odradek
    answers why; Kafka answers with the name of the error.
(C) A replica that is in a directory without room cannot follow.
(D) Any other replica lags, or its broker does not reach the leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from odradek.clients.admin.client import AdminClient
from odradek.clients.admin.overview import ClusterOverview
from odradek.clients.network_errors import NetworkError
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from odradek.protocol.messages.producers import DescribeProducersRequest, DescribeProducersResponse
from odradek.protocol.topic_partition import TopicPartition

LEAST_ROOM_BYTES = 1 << 20
NOT_THERE = "the broker is not in the cluster"
LAGS = "lags behind the leader"

Reasons = dict[tuple[int, str], list[TopicPartition]]


async def why_out_of_sync(admin: AdminClient, found: ClusterOverview, *, patience_s: float) -> Reasons:
    """Returns the replicas that are not in sync, by broker and reason. Waits for each broker for `patience_s` at most;
    one that does not answer, or does not tell this client, is in it with that.
    """
    missing: dict[int, list[TopicPartition]] = {}
    for partition in found.partitions.values():
        for broker_id in partition.missing:
            missing.setdefault(broker_id, []).append(partition.key)
    asked = sorted(missing)
    answers = await asyncio.gather(*(_why(admin, found, one, missing[one], patience_s) for one in asked))
    reasons: Reasons = {}
    for broker_id, answer in zip(asked, answers, strict=True):
        for key, reason in answer.items():
            reasons.setdefault((broker_id, reason), []).append(key)
    return reasons


async def _why(
    admin: AdminClient, found: ClusterOverview, broker_id: int, keys: Sequence[TopicPartition], patience_s: float
) -> dict[TopicPartition, str]:
    if broker_id not in found.brokers:
        return dict.fromkeys(keys, NOT_THERE)
    try:
        async with asyncio.timeout(patience_s):
            return await _ask(admin, broker_id, keys)
    except TimeoutError:
        return dict.fromkeys(keys, f"the broker has not answered for {patience_s:g} s")
    except (NetworkError, ProtocolError) as error:
        return dict.fromkeys(keys, f"the broker does not say: {error}")


async def _ask(admin: AdminClient, broker_id: int, keys: Sequence[TopicPartition]) -> dict[TopicPartition, str]:
    topics = [
        DescribeLogDirsRequest.DescribableLogDirTopic(topic=topic, partitions=numbers)
        for topic, numbers in _by_topic(keys).items()
    ]
    response: DescribeLogDirsResponse = await admin.ask_broker(broker_id, DescribeLogDirsRequest(topics=topics))
    if response.error_code:
        raise ProtocolError(ErrorCode.of(response.error_code))
    reasons = {
        TopicPartition(topic.name, partition.partition_index): _of_directory(directory)
        for directory in response.results
        for topic in directory.topics
        for partition in topic.partitions
        if not partition.is_future_key
    }
    offline = [key for key in keys if key not in reasons]
    if offline:
        reasons |= await _why_offline(admin, broker_id, offline)
    return {key: reasons.get(key, LAGS) for key in keys}


def _of_directory(directory: DescribeLogDirsResponse.DescribeLogDirsResult) -> str:
    if 0 <= directory.usable_bytes < LEAST_ROOM_BYTES:
        return f"{directory.log_dir} has {directory.usable_bytes} bytes left"
    return LAGS


async def _why_offline(admin: AdminClient, broker_id: int, keys: Sequence[TopicPartition]) -> dict[TopicPartition, str]:
    topics = [
        DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=numbers)
        for topic, numbers in _by_topic(keys).items()
    ]
    response: DescribeProducersResponse = await admin.ask_broker(broker_id, DescribeProducersRequest(topics=topics))
    reasons = {}
    for topic in response.topics:
        for partition in topic.partitions:
            if partition.error_code:
                key, name = TopicPartition(topic.name, partition.partition_index), ErrorCode.of(partition.error_code)
                reason = partition.error_message or name.name
                reasons[key] = reason.replace(f"the log of {key} ", "the log ")
    return reasons


def _by_topic(keys: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for key in keys:
        found.setdefault(key.topic, []).append(key.partition)
    return found
