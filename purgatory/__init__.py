"""Requests that cannot be answered yet, and the machinery that completes them."""

from odradek.purgatory.completion_queue import DEFAULT_BUDGET, CompletionQueue
from odradek.purgatory.delayed_delete_records import DelayedDeleteRecords, DeleteRecordsPartitionStatus
from odradek.purgatory.delayed_elect_leader import DelayedElectLeader
from odradek.purgatory.delayed_fetch import ANSWER_NOW, DelayedFetch
from odradek.purgatory.delayed_operation import DelayedOperation
from odradek.purgatory.delayed_produce import DelayedProduce, ProducePartitionStatus
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
