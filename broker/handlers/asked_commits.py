"""The offsets that a request wants to commit, and the response under construction."""

from __future__ import annotations

from typing import Any

from odradek.broker.coordinator.group.offsets import Commits
from odradek.protocol.errors import ErrorCode


class AskedCommits:
    """The partitions of a commit, and their responses under construction.

    `commits` has the offsets that can be committed; `answers` has the responses of all partitions that exist.
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
