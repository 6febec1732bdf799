"""All that is new in Kafka 4 at once: a group that changes its protocol and back, and transactions of version 2.

Everybody repeats requests until they are answered. So nothing may be lost while brokers die, and nothing is unknown:
`finish` compares what is stored with what was acknowledged.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Iterator
from random import Random

from odradek.protocol.messages.group_admin import ListGroupsRequest
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.offsets import OffsetFetchRequest
from tests.clients.transactions import read_committed, until_no_transaction_is_open
from tests.scenarios.epoch_producer import EpochProducer
from tests.scenarios.migrants import CLASSIC, CONSUMER, Claims, Migrant, Orders
from tests.scenarios.migrants import SETTINGS as OF_MIGRANTS
from tests.scenarios.worker import Worker
from tests.sequences import assert_same
from tests.wire.blocking_client import Client
from tests.wire.coordinators import field_of
from tests.wire.roaming_client import Coordinated, RoamingClient

TOPIC, PARTITIONS = "orders", 6
GROUP = "migrants"
MIGRANTS, PRODUCERS = 4, 3
GIVE_UP_S = 90
MIGRATES_FOR_SURE = 20
"""Eras between which the group is seen as a classic one and as one of the newer protocol."""
SETTINGS = {
    **OF_MIGRANTS,
    "offsets.topic.segment.bytes": "100000",
    "transaction.state.log.segment.bytes": "100000",
    "log.cleaner.backoff.ms": "500",
}
"""Of the brokers. The coordinators' logs are cleaned meanwhile."""
ERAS = ([CLASSIC], [CONSUMER, CLASSIC], [CONSUMER])


class NewerLoad:
    """Started by `newer_load`. `kinds` counts the kinds of the group that were seen."""

    def __init__(self, bootstrap: str, chance: Random) -> None:
        self.kinds: Counter[str] = Counter()
        self._bootstrap, self._past_eras = bootstrap, 0
        with Client(bootstrap.split(",")[0]) as client:
            topics = [MetadataRequest.MetadataRequestTopic(name=TOPIC)]
            (found,) = client.ask(MetadataRequest(topics=topics), 12).topics
        self._claims = Claims()
        orders = Orders(TOPIC, found.topic_id, PARTITIONS)
        self._migrants = [
            Migrant(bootstrap, f"migrant-{number}", GROUP, orders, self._claims, Random(chance.random()))
            for number in range(MIGRANTS)
        ]
        self._producers = [
            EpochProducer(bootstrap, f"producer-{number}", TOPIC, found.topic_id, PARTITIONS, Random(chance.random()))
            for number in range(PRODUCERS)
        ]
        self._workers: list[Worker] = [*self._migrants, *self._producers]
        for each in self._workers:
            each.start()

    def until_all_work(self) -> None:
        """Waits until the group and each producer get on, from now on."""
        transactions = [each.completed for each in self._producers]
        commits = self._claims.commits.total()
        give_up = time.monotonic() + GIVE_UP_S
        while True:
            self._raise_failures()
            behind = [
                each.name for each, count in zip(self._producers, transactions, strict=True) if each.completed <= count
            ]
            if not behind and self._claims.commits.total() > commits + PARTITIONS:
                return
            assert time.monotonic() < give_up, f"{behind or GROUP} did nothing for {GIVE_UP_S} s"
            time.sleep(0.02)

    def next_era(self) -> None:
        """Members speak other protocols from their next life on."""
        era = ERAS[self._past_eras % len(ERAS)]
        self._past_eras += 1
        for each in self._migrants:
            each.protocols = era

    def note_the_kind_of_the_group(self) -> None:
        with contextlib.suppress(OSError):
            for address in self._bootstrap.split(","):
                with Client(address) as client:
                    groups = client.ask(ListGroupsRequest(), 5).groups
                self.kinds.update(each.group_type for each in groups if each.group_id == GROUP)

    def _raise_failures(self) -> None:
        for each in self._workers:
            if each.failure is not None:
                raise AssertionError(f"{each.name} failed") from each.failure

    def finish(self) -> None:
        """Ends the work and judges what is left of it."""
        for each in self._workers:
            each.end()
        self._raise_failures()
        assert len(self.kinds) == 2 or self._past_eras < MIGRATES_FOR_SURE, self.kinds
        self._check_commits()
        until_no_transaction_is_open(self._bootstrap, TOPIC, PARTITIONS)
        read = read_committed(self._bootstrap, TOPIC, PARTITIONS)
        for partition in range(PARTITIONS):
            for producer in self._producers:
                found = [value for value in read[partition] if value.startswith(f"{producer.name}/")]
                assert_same(found, producer.records[partition])
        assert sum(map(len, read.values())) == sum(len(v) for each in self._producers for v in each.records.values())

    def _check_commits(self) -> None:
        topic = OffsetFetchRequest.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=list(range(PARTITIONS)))
        group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=GROUP, topics=[topic])
        client = RoamingClient(self._bootstrap)
        error = "groups.error_code"
        answer = client.ask(
            Coordinated(0, GROUP), OffsetFetchRequest(groups=[group]), 9, lambda found: field_of(found, error)
        )
        client.close()
        assert field_of(answer, error) == 0
        for each in answer.groups[0].topics[0].partitions:
            before = self._claims.acknowledged[each.partition_index]
            self._claims.check(each.partition_index, each.committed_offset, before)

    def stop(self) -> None:
        for each in self._workers:
            each.end()

    def summary(self) -> str:
        """How much there was."""
        commits = ", ".join(
            f"{count} commits of {kind} members" for kind, count in sorted(self._claims.commits.items())
        )
        transactions = sum(each.completed for each in self._producers)
        records = sum(len(values) for each in self._producers for values in each.records.values())
        return f"{commits}; {transactions} transactions, {records} records in them; groups seen: {dict(self.kinds)}"


@contextlib.contextmanager
def newer_load(bootstrap: str, chance: Random) -> Iterator[NewerLoad]:
    """Uses a broker or a cluster meanwhile; the topic is there. In the end everything acknowledged is found."""
    load = NewerLoad(bootstrap, chance)
    try:
        load.until_all_work()
        yield load
        load.until_all_work()
        load.finish()
    finally:
        load.stop()
        print(load.summary())
