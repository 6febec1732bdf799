"""Brokers and clusters inside the process, for tests."""

from odradek.broker.testing.cluster import Cluster, NotReached
from odradek.broker.testing.cluster_thread import ClusterThread
from odradek.broker.testing.cluster_view import BrokerStatus
from odradek.broker.testing.in_process_cluster import in_process_cluster
from odradek.broker.testing.one_broker import BrokerThread, in_process_broker

__all__ = [
    "BrokerStatus",
    "BrokerThread",
    "Cluster",
    "ClusterThread",
    "NotReached",
    "in_process_broker",
    "in_process_cluster",
]
