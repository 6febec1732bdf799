"""What each client does while it is recorded.

It creates a topic, writes, reads by assignment, and reads in a group whose offsets it commits. Clients whose programs
here have transactions commit one and abort one.
"""

from __future__ import annotations

import signal
import subprocess
from itertools import islice
from pathlib import Path

import confluent_kafka
import kafka
from confluent_kafka.admin import AdminClient
from kafka.admin import KafkaAdminClient, NewTopic

from tests.clients import program_clients, python_clients
from tests.clients.workload import PARTITIONS, binary_records, text_records
from tests.patience import PATIENCE_S, block_until

COUNT = 120
GROUP = "readers"


def kafka_python(bootstrap: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([NewTopic(name="orders", num_partitions=PARTITIONS, replication_factor=1)])
    records = list(binary_records(COUNT, null_headers=False))
    python_clients.kafka_python_produce(bootstrap, "orders", records, "gzip")
    assert len(python_clients.kafka_python_consume(bootstrap, "orders", COUNT)) == COUNT
    for _ in range(2):
        consumer = kafka.KafkaConsumer(
            "orders",
            bootstrap_servers=bootstrap,
            group_id=GROUP,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        assert len(list(islice(consumer, COUNT // 2))) == COUNT // 2
        consumer.commit()
        consumer.close()
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, transactional_id="clerk")
    producer.init_transactions()
    for ends in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        producer.send("orders", b"in a transaction", partition=0).get(timeout=PATIENCE_S)
        ends()
    producer.close()
    admin.delete_topics(["orders"])
    admin.close()


def librdkafka(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    created = admin.create_topics([confluent_kafka.admin.NewTopic("orders", PARTITIONS, 1)])
    created["orders"].result(30)
    python_clients.confluent_produce(bootstrap, "orders", binary_records(COUNT), "zstd")
    assert len(python_clients.confluent_consume(bootstrap, "orders", COUNT)) == COUNT
    settings = {"bootstrap.servers": bootstrap, "group.id": GROUP, "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer({**settings, "enable.auto.commit": False})
    consumer.subscribe(["orders"])
    python_clients.confluent_messages(consumer, COUNT)
    consumer.commit(asynchronous=False)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": "clerk"})
    producer.init_transactions(30)
    for ends in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        producer.produce("orders", b"in a transaction", partition=0)
        position = [confluent_kafka.TopicPartition("orders", 0, 7)]
        producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata(), 30)
        ends(30)
    consumer.close()
    admin.delete_topics(["orders"])["orders"].result(30)


def newer_librdkafka(bootstrap: str) -> None:
    """A second consumer of the newer group protocol gets partitions that the first one gives up."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    created = admin.create_topics([confluent_kafka.admin.NewTopic("orders", PARTITIONS, 1)])
    created["orders"].result(30)
    python_clients.confluent_produce(bootstrap, "orders", binary_records(COUNT), "zstd")
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": GROUP,
        "group.protocol": "consumer",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    first, second = (confluent_kafka.Consumer({**settings, "client.id": name}) for name in ("first", "second"))
    first.subscribe(["orders"])
    python_clients.confluent_messages(first, COUNT)
    first.commit(asynchronous=False)
    second.subscribe(["orders"])

    def has_partitions() -> bool:
        for consumer in (first, second):
            consumer.poll(0.05)
        return bool(second.assignment())

    block_until(has_partitions)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": "clerk"})
    producer.init_transactions(30)
    for ends in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        producer.produce("orders", b"in a transaction", partition=0)
        position = [confluent_kafka.TopicPartition("orders", 0, COUNT)]
        producer.send_offsets_to_transaction(position, first.consumer_group_metadata(), 30)
        ends(30)
    first.close()
    second.close()


def newer_java(tools: list[str], bootstrap: str) -> None:
    """An idempotent producer, a consumer of the newer group protocol, and transactions that raise the epoch."""
    topics = [*tools, "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", bootstrap]
    for topic in ("orders", "paid"):
        create = ["--topic", topic, "--create", "--partitions", "1", "--replication-factor", "1"]
        program_clients.run([*topics, *create])
    of_topic = ["--bootstrap-server", bootstrap, "--topic", "orders", "--max-messages", str(COUNT)]
    program_clients.run([*tools, "org.apache.kafka.tools.VerifiableProducer", *of_topic])
    in_group = ["--group-id", GROUP, "--group-protocol", "consumer", "--reset-policy", "earliest"]
    assert program_clients.run([*tools, "org.apache.kafka.tools.VerifiableConsumer", *of_topic, *in_group])
    written = ["--topic", "paid", "--num-records", "60", "--record-size", "10", "--throughput", "30"]
    transactions = ["--transactional-id", "clerk", "--transaction-duration-ms", "500"]
    where = ["--command-property", f"bootstrap.servers={bootstrap}"]
    program_clients.run([*tools, "org.apache.kafka.tools.ProducerPerformance", *where, *written, *transactions])


def java(tools: list[str], bootstrap: str) -> None:
    topics = [*tools, "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", bootstrap, "--topic", "orders"]
    program_clients.run([*topics, "--create", "--partitions", "1", "--replication-factor", "1"])
    program_clients.java_produce(tools, bootstrap, "orders", text_records(COUNT), "lz4")
    assert len(program_clients.java_consume(tools, bootstrap, "orders", COUNT)) == COUNT
    consume = [*tools, "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", bootstrap]
    in_group = ["--topic", "orders", "--group", GROUP, "--from-beginning", "--max-messages", str(COUNT)]
    assert program_clients.run([*consume, *in_group])
    program_clients.run([*topics, "--delete"])


def franz_go(program: Path, bootstrap: str) -> None:
    program_clients.franz_go_produce(program, bootstrap, "orders", binary_records(COUNT), "snappy")
    assert len(program_clients.franz_go_consume(program, bootstrap, "orders", COUNT)) == COUNT
    process = subprocess.Popen(
        [str(program), "member", bootstrap, GROUP, "orders", "cooperative-sticky"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        read = 0
        while read < COUNT:
            line = process.stdout.readline()
            assert line, f"it ended after {read} records"
            read += line.startswith("record ")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.communicate()
