"""The invariant of topics that are deleted, judged at each change in the store.

deletions    A topic is marked for deletion only if somebody has asked for it. The mark stays until the topic is
             gone; and the topic goes when it is marked, and no broker of its replicas has a folder of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from odradek.broker.metadata_store.znodes import TopicAssignment
from tests.simulation.final_state import Folder
from tests.simulation.history import History, Kind, Outcome, TopicChange
from tests.simulation.missteps import Finding, begun_since
from tests.simulation.reassignment_invariants import LONGEST_REQUEST_US
from tests.simulation.stored_changes import StoredChanges
from tests.simulation.topic_invariants import LATE_US


class Remains(NamedTuple):
    """What is there after a change: the topics and the marks in the store, and the folders of a topic on all disks."""

    topics: Iterable[str]
    marks: Iterable[str]


def wrong_in_deletions(
    history: History, changes: StoredChanges, remains: Remains, folders: Iterable[Folder], now_us: int
) -> Iterator[Finding]:
    """Judges a transaction. `folders`: of the topics that it has removed."""
    for name, is_marked in changes.marks.items():
        if is_marked and not _was_asked(history, name, now_us):
            yield Finding("deletions", f"{name} is marked for deletion, and nobody asks for it")
        if not is_marked and name in remains.topics:
            yield Finding("deletions", f"the mark of deletion of {name} is gone, and the topic is there")
    for name, (before, after) in changes.topics.items():
        if before is None or after is not None:
            continue
        if name not in changes.marks and name not in remains.marks:
            yield Finding("deletions", f"{name} is gone without a mark of deletion")
        for folder in folders:
            if folder.partition.topic == name and _is_of(folder, before):
                yield Finding("deletions", f"{name} is gone, and broker {folder.broker_id} has {folder.partition}")


def _was_asked(history: History, name: str, now_us: int) -> bool:
    since_us = now_us - LATE_US - LONGEST_REQUEST_US
    return any(
        change.topic == name and change.kind is Kind.DELETE and change.outcome is not Outcome.FAILED
        for change in begun_since(history, TopicChange, since_us)
    )


def _is_of(folder: Folder, topic: TopicAssignment) -> bool:
    """Whether a folder belongs to this topic, not to an earlier one of the name, and to one of its replicas."""
    replicas = topic.replicas.get(folder.partition.partition, ())
    return folder.broker_id in replicas and folder.topic_id == topic.topic_id
