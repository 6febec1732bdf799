"""Brokers and clusters inside the process, for tests.

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

Its public names are exported here. Callers: users' tests, `pytest_plugin.py`, `cluster_demo`.
"""

from odradek.broker.testing.acls import allow, deny
from odradek.broker.testing.calls import NeverAwaited
from odradek.broker.testing.cluster import Cluster
from odradek.broker.testing.cluster_thread import ClusterThread
from odradek.broker.testing.cluster_view import BrokerStatus
from odradek.broker.testing.faults import Fault, Faults, Journal, NoSuchRequest, Request, UnusedFaults
from odradek.broker.testing.in_process_cluster import in_process_cluster
from odradek.broker.testing.not_reached import NotReached
from odradek.broker.testing.one_broker import BrokerThread, InProcessBroker, in_process_broker
from odradek.broker.testing.recordings import recorded, replayed
from odradek.broker.testing.security import Security
from odradek.broker.testing.seeding import Record
from odradek.broker.testing.snapshots.manifest import SnapshotError
from odradek.broker.testing.snapshots.origin import ResetError
from odradek.broker.testing.snapshots.snapshot import Snapshot
from odradek.broker.testing.virtual_time.errors import AdvanceFailed, CannotAdvance

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
