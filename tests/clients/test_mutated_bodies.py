"""Whatever the broker acknowledges, Kafka's Java client and librdkafka read to the end.

The bodies of batches of all codecs are damaged, and sent to a topic of each ``compression.type``. Our decoders must be
as strict as those of both clients, and what the broker compresses itself must be readable. ODRADEK_BODIES_SEED chooses
other bodies.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
from itertools import islice

import pytest
from kafka.admin import KafkaAdminClient, NewTopic

from odradek.protocol.errors import ErrorCode
from odradek.protocol.records import Compression
from tests.clients.bodies.acknowledged import Answer, answers
from tests.clients.bodies.mutator import Body, mutated_bodies
from tests.clients.bodies.readers import JAVA, LIBRDKAFKA, Reading, read_by
from tests.clients.conftest import ClientBroker
from tests.soak import rounds

BODIES = rounds(600, in_soak=40_000)
SEED = int(os.environ.get("ODRADEK_BODIES_SEED", "29"))
TOPICS = {f"bodies-{codec}": codec for codec in ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")}
REFUSALS = {ErrorCode.INVALID_RECORD}


@pytest.fixture
def topics(client_broker: ClientBroker) -> Iterator[list[str]]:
    """A topic of each compression.type."""
    admin = KafkaAdminClient(bootstrap_servers=client_broker.bootstrap)
    new = [NewTopic(name, 1, 1, topic_configs={"compression.type": codec}) for name, codec in TOPICS.items()]
    admin.create_topics(new)
    yield list(TOPICS)
    admin.delete_topics(list(TOPICS))
    admin.close()


def bodies_for(topics: list[str], seed: int) -> Iterator[tuple[str, Body]]:
    """Half of them for the topic that keeps the producer's codec."""
    rng = random.Random(seed)
    for body in mutated_bodies(seed):
        yield topics[0] if rng.random() < 0.5 else rng.choice(topics[1:]), body


@pytest.mark.long
@pytest.mark.soak("40,000 damaged bodies of batches, read by two clients", minutes=5)
@pytest.mark.timeout(1800)
def test_clients_read_every_batch_that_the_broker_acknowledges(
    client_broker: ClientBroker, topics: list[str], java_programs: list[str]
) -> None:
    bootstrap = client_broker.bootstrap
    answered = list(answers(bootstrap, islice(bodies_for(topics, SEED), BODIES)))
    stored = [answer for answer in answered if answer.code is ErrorCode.NONE]
    readings = {
        "librdkafka": read_by(LIBRDKAFKA, bootstrap, topics),
        "Java": read_by([*java_programs, JAVA], bootstrap, topics),
    }
    found = [fault for name, reading in readings.items() for fault in faults(name, stored, reading)]
    assert not found, f"{len(found)} of {len(stored)}:\n" + "\n".join(found[:20])
    refused = Counter(answer.code for answer in answered if answer.code is not ErrorCode.NONE)
    assert set(refused) == REFUSALS
    assert refused.total() > BODIES // 4
    kept = Counter(answer.body.codec for answer in stored)
    assert min(kept[codec] for codec in Compression) > BODIES // 100, kept


def faults(name: str, stored: list[Answer], readings: dict[str, Reading]) -> Iterator[str]:
    """Yields each acknowledged body that the client did not read, or read differently."""
    for answer in stored:
        reading = readings[answer.topic]
        for offset, expected in answer.checksums().items():
            if reading.checksums.get(offset) != expected:
                why = reading.stops.get(offset, "another record" if offset in reading.checksums else "no record")
                yield f"{name} at offset {offset} of {answer.topic}: {why}: {answer.body}"
                break
