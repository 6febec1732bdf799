"""Requests that cannot be answered yet, and the machinery that completes them.

    delayed_operation.py   completes exactly once, by an event or by its timeout
    purgatory.py           where operations wait under their keys; watchers.py: those of one key
    completion_queue.py    tries them after the running handler has finished
    expirations.py         counts timeouts

The operations: delayed_acknowledgement.py (of Produce and DeleteRecords), delayed_fetch.py, delayed_topic_change.py,
delayed_elect_leader.py; of groups: delayed_join.py, delayed_sync.py, delayed_heartbeat.py, delayed_step.py.

Callers: `broker`. It does not know what a partition is: what it must call is passed in.
"""

from odradek.purgatory.completion_queue import DEFAULT_BUDGET, CompletionQueue
from odradek.purgatory.delayed_acknowledgement import (
    DelayedDeleteRecords,
    DelayedProduce,
    DeleteRecordsPartitionStatus,
    ProducePartitionStatus,
)
from odradek.purgatory.delayed_elect_leader import DelayedElectLeader
from odradek.purgatory.delayed_fetch import ANSWER_NOW, DelayedFetch
from odradek.purgatory.delayed_operation import DelayedOperation
from odradek.purgatory.delayed_topic_change import DelayedTopicChange
from odradek.purgatory.expirations import FetchExpirations, PartitionExpirations
from odradek.purgatory.purgatory import DEFAULT_PURGE_INTERVAL, DelayedOperationPurgatory, WaitingOperation

__all__ = [
    "ANSWER_NOW",
    "DEFAULT_BUDGET",
    "DEFAULT_PURGE_INTERVAL",
    "CompletionQueue",
    "DelayedDeleteRecords",
    "DelayedElectLeader",
    "DelayedFetch",
    "DelayedOperation",
    "DelayedOperationPurgatory",
    "DelayedProduce",
    "DelayedTopicChange",
    "DeleteRecordsPartitionStatus",
    "FetchExpirations",
    "PartitionExpirations",
    "ProducePartitionStatus",
    "WaitingOperation",
]
