"""Requests that cannot be answered yet, and what wakes them."""

from purgatory.completion_queue import DEFAULT_BUDGET, CompletionQueue
from purgatory.delayed_delete_records import DelayedDeleteRecords, DeleteRecordsPartitionStatus
from purgatory.delayed_fetch import ANSWER_NOW, DelayedFetch
from purgatory.delayed_operation import DelayedOperation
from purgatory.delayed_produce import DelayedProduce, ProducePartitionStatus
from purgatory.expirations import FetchExpirations, PartitionExpirations
from purgatory.purgatory import DEFAULT_PURGE_INTERVAL, DelayedOperationPurgatory, WaitingOperation

__all__ = [
    "ANSWER_NOW",
    "DEFAULT_BUDGET",
    "DEFAULT_PURGE_INTERVAL",
    "CompletionQueue",
    "DelayedDeleteRecords",
    "DelayedFetch",
    "DelayedOperation",
    "DelayedOperationPurgatory",
    "DelayedProduce",
    "DeleteRecordsPartitionStatus",
    "FetchExpirations",
    "PartitionExpirations",
    "ProducePartitionStatus",
    "WaitingOperation",
]
