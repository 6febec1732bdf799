"""Brokers and clusters for the tests of other projects.

    async with in_process_broker() as broker:
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap)

    async with in_process_cluster(brokers=3) as cluster:
        producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, acks="all")

With `security="SASL_SSL"`, or a `Security`, clients connect as to a production that has TLS and logins:

    async with in_process_broker(security="SASL_SSL") as broker:
        producer = AIOKafkaProducer(**broker.client_settings("aiokafka"))

A broker can be emptied, filled, and started from what another one had:

    await broker.seed({"orders": [b"a value", (b"a key", b"a value")]})
    snapshot = await broker.snapshot()
    await broker.reset()
    async with in_process_broker(snapshot=snapshot) as fork:

Requests and disks fail as a test asks, and a fault that was never hit fails the test:

    broker.faults.add(api="Produce", topic="orders", times=2, error="NOT_LEADER_OR_FOLLOWER")

With `time="virtual"` a test advances the brokers' time, and what falls due happens at once:

    async with in_process_broker(time="virtual") as broker:
        await broker.advance(30)

`in_process_broker` and `in_process_cluster` run on the running event loop, `BrokerThread` and `ClusterThread` in a
thread of their own for blocking clients. The pytest fixtures `odradek_broker`, `odradek_session_broker` and
`odradek_cluster` are such threads.
"""

from odradek.broker.testing import (
    AdvanceFailed,
    BrokerStatus,
    BrokerThread,
    CannotAdvance,
    Cluster,
    ClusterThread,
    Fault,
    Faults,
    InProcessBroker,
    Journal,
    NeverAwaited,
    NoSuchRequest,
    NotReached,
    Record,
    Request,
    ResetError,
    Security,
    Snapshot,
    SnapshotError,
    UnusedFaults,
    allow,
    deny,
    in_process_broker,
    in_process_cluster,
    recorded,
    replayed,
)

__all__ = [
    "AdvanceFailed",
    "BrokerStatus",
    "BrokerThread",
    "CannotAdvance",
    "Cluster",
    "ClusterThread",
    "Fault",
    "Faults",
    "InProcessBroker",
    "Journal",
    "NeverAwaited",
    "NoSuchRequest",
    "NotReached",
    "Record",
    "Request",
    "ResetError",
    "Security",
    "Snapshot",
    "SnapshotError",
    "UnusedFaults",
    "allow",
    "deny",
    "in_process_broker",
    "in_process_cluster",
    "recorded",
    "replayed",
]
