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

The files:

    one_broker.py             one broker
    in_process_cluster.py     a cluster with settings that make sense for tests
    cluster.py                brokers that are killed, paused, cut off, and started again
    cluster_view.py           what it looks like from outside
    cluster_waits.py          waiting for it; conditions.py: the states that tests wait for
    in_sync.py                why replicas count as in sync; cuts.py: cuts that keep them so
    cluster_topics.py         topics, and leaders and coordinators that move
    cluster_thread.py, loop_thread.py    the same for blocking clients
    node_loop.py              an event loop for each broker, which can be paused and ended
    security.py     TLS, logins and ACLs (acls.py); certificates.py, client_settings.py: what clients need then
    network.py, gates.py      cuts between brokers, and what stands in front of a paused one
    asking.py                 faults and requests; faults/ has what makes requests and disks fail
    seeding.py, partitioner.py    records that a test begins with
    snapshots/                a broker's data that others start from, and resets
    recordings.py             what clients and brokers say, recorded and sent again
    virtual_time/             a test advances the brokers' time
    setting_texts.py          settings as keyword arguments
    temporary_directory.py    where brokers keep their data
    process_directories.py    removes such directories when the process ends, and those of processes that were killed
    not_reached.py            the error of a state that tests wait for
    still_loops.py            an event loop that a blocking client holds up
    calls.py                  coroutines that nobody awaited; failures.py: notes of a test that fails
    opening.py                `async with` and `with`; right_calls.py: names that are elsewhere
    cluster_demo/             the story of an acks=all request that waits: `make cluster-demo`

Callers: users' tests, the pytest fixtures, `odradek serve --test-control`.
"""

from odradek.testing.acls import allow, deny
from odradek.testing.calls import NeverAwaited
from odradek.testing.cluster import Cluster
from odradek.testing.cluster_thread import ClusterThread
from odradek.testing.cluster_view import BrokerStatus
from odradek.testing.faults import Fault, Faults, Journal, NoSuchRequest, Request, UnusedFaults
from odradek.testing.in_process_cluster import in_process_cluster
from odradek.testing.not_reached import NotReached
from odradek.testing.one_broker import BrokerThread, InProcessBroker, in_process_broker
from odradek.testing.recordings import recorded, replayed
from odradek.testing.security import Security
from odradek.testing.seeding import Record
from odradek.testing.snapshots.manifest import SnapshotError
from odradek.testing.snapshots.origin import ResetError
from odradek.testing.snapshots.snapshot import Snapshot
from odradek.testing.virtual_time.errors import AdvanceFailed, CannotAdvance

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
