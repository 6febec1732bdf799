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
    in_sync.py                why replicas count as in sync, and which cuts keep them so
    cluster_topics.py         topics, and leaders and coordinators that move
    blocking.py, cluster_thread.py, loop_thread.py    the same for blocking clients
    node_loop.py              an event loop for each broker, which can be paused and ended
    security.py     TLS, logins and ACLs (acls.py); certificates.py, client_settings.py: what clients need then
    network.py, gates.py      cuts between brokers, and what stands in front of a paused one
    asking.py                 faults and requests; faults/ has what makes requests and disks fail
    seeding.py                records that a test begins with
    snapshots/                a broker's data that others start from, and resets
    recordings.py             what clients and brokers say, recorded and sent again
    virtual_time/             a test advances the brokers' time
    setting_texts.py          settings as keyword arguments
    process_directories.py    where brokers keep their data; nothing is left when the process ends, or is killed
    still_loops.py            an event loop that a blocking client holds up
    calls.py                  coroutines that nobody awaited; failures.py: how a test fails
    opening.py                `async with`; right_calls.py: names that are elsewhere
    cluster_demo/             the story of an acks=all request that waits: `make cluster-demo`

Its public names are imported here. Callers: users' tests, the pytest fixtures, `odradek serve --test-control`.
"""

from odradek.testing.acls import allow as allow
from odradek.testing.acls import deny as deny
from odradek.testing.calls import NeverAwaited as NeverAwaited
from odradek.testing.cluster import Cluster as Cluster
from odradek.testing.cluster_thread import ClusterThread as ClusterThread
from odradek.testing.cluster_view import BrokerStatus as BrokerStatus
from odradek.testing.failures import NotReached as NotReached
from odradek.testing.faults import Fault as Fault
from odradek.testing.faults import Faults as Faults
from odradek.testing.faults import Journal as Journal
from odradek.testing.faults import NoSuchRequest as NoSuchRequest
from odradek.testing.faults import Request as Request
from odradek.testing.faults import UnusedFaults as UnusedFaults
from odradek.testing.in_process_cluster import in_process_cluster as in_process_cluster
from odradek.testing.one_broker import BrokerThread as BrokerThread
from odradek.testing.one_broker import InProcessBroker as InProcessBroker
from odradek.testing.one_broker import in_process_broker as in_process_broker
from odradek.testing.recordings import recorded as recorded
from odradek.testing.recordings import replayed as replayed
from odradek.testing.security import Security as Security
from odradek.testing.seeding import Record as Record
from odradek.testing.snapshots.manifest import SnapshotError as SnapshotError
from odradek.testing.snapshots.origin import ResetError as ResetError
from odradek.testing.snapshots.snapshot import Snapshot as Snapshot
from odradek.testing.virtual_time.advance import AdvanceFailed as AdvanceFailed
from odradek.testing.virtual_time.controls import CannotAdvance as CannotAdvance
