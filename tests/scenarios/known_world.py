"""What large requests name in a broker: a topic with records, a group with offsets and a member, a transaction."""

from __future__ import annotations

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.groups import (
    HeartbeatRequest,
)
from tests.base_requests import Known, small_batch
from tests.wire import requests as requests
from tests.wire.blocking_client import Client
from tests.wire.coordinators import field_of, find_coordinators, until_loaded

SETTINGS: dict[str, object] = {
    "auto.create.topics.enable": False,
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2,
    "transaction.state.log.min.isr": 1,
}
PARTITIONS = 10
MEMBER_METADATA_BYTES = 1000
ERROR_OF_PARTITION = "results_by_topic_v3_and_below.results_by_partition.partition_error_code"


class KnownWorld:
    """`known` names the objects that exist after `restore()`, which recreates what requests deleted or ended."""

    def __init__(self, bootstrap: str, known: Known) -> None:
        self._connection = Client(bootstrap)
        self.known = known
        find_coordinators(self._connection)
        self._join()
        self._begin_transaction()

    def close(self) -> None:
        self._connection.close()

    def restore(self) -> Known:
        self._have_topic()
        self._commit()
        if self._heartbeat() != ErrorCode.NONE:
            self._join()
        if self._add_partition() != ErrorCode.NONE:
            self._begin_transaction()
        return self.known

    def _have_topic(self) -> None:
        name = self.known.topic
        created = self._connection.ask(requests.create_topics(name, partitions=PARTITIONS))
        if field_of(created, "topics.error_code") == ErrorCode.NONE:
            self.known = self.known._replace(topic_id=created.topics[0].topic_id)
            produced = self._connection.ask(requests.produce(name, small_batch(), acks=1))
            assert field_of(produced, "responses.partition_responses.error_code") == ErrorCode.NONE

    def _commit(self) -> None:
        request = requests.commit(self.known.group, self.known.topic, 0, 1)
        until_loaded(self._connection, request, "topics.partitions.error_code")

    def _heartbeat(self) -> int:
        known = self.known
        heartbeat = HeartbeatRequest(
            group_id=known.joined_group, generation_id=known.generation, member_id=known.member_id
        )
        return int(self._connection.ask(heartbeat).error_code)

    def _join(self) -> None:
        """Joins as the only member: the previous one leaves."""
        self._connection.ask(requests.leave(self.known.joined_group, [self.known.member_id]))
        group, metadata = self.known.joined_group, bytes(MEMBER_METADATA_BYTES)
        refused = until_loaded(self._connection, requests.join(group, "", metadata), "error_code")
        joined = self._connection.ask(requests.join(group, refused.member_id, metadata))
        assert joined.error_code == ErrorCode.NONE
        sync = requests.sync(group, joined.generation_id, joined.member_id, {joined.member_id: b""})
        assert self._connection.ask(sync).error_code == ErrorCode.NONE
        self.known = self.known._replace(member_id=joined.member_id, generation=joined.generation_id)

    def _begin_transaction(self) -> None:
        request = requests.init(self.known.transactional_id)
        begun = until_loaded(self._connection, request, "error_code")
        self.known = self.known._replace(producer_id=begun.producer_id, producer_epoch=begun.producer_epoch)

    def _add_partition(self) -> int:
        known = self.known
        producer = (known.producer_id, known.producer_epoch)
        request = requests.add_partition(known.transactional_id, producer, known.topic, 0)
        added = until_loaded(self._connection, request, ERROR_OF_PARTITION)
        return field_of(added, ERROR_OF_PARTITION)
