"""Builds the response of OffsetCommit and TxnOffsetCommit, and collects the offsets to commit."""

from __future__ import annotations

from typing import Any

from odradek.broker.coordinator.group.offsets.offsets import Commits
from odradek.protocol.errors import ErrorCode


class OffsetCommitResponseBuilder:
    """The response under construction, and the offsets that can be committed.

    `topics` has the responses of all partitions of the request; `answers`, of those that exist.
    """

    __slots__ = ("answers", "commits", "topics")

    def __init__(self) -> None:
        self.topics: list[Any] = []
        self.answers: list[Any] = []
        self.commits: Commits = {}

    def refuse(self, error: ErrorCode) -> None:
        """Sets the error for all partitions that exist."""
        for answer in self.answers:
            answer.error_code = error

    def fail(self, error: ErrorCode) -> None:
        """Sets the error for the partitions that were to be committed; those with an error of their own keep it."""
        for answer in self.answers:
            if answer.error_code == ErrorCode.NONE:
                answer.error_code = error
