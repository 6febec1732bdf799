"""The offsets that one request wants to commit, and its answers in the making."""

from __future__ import annotations

from typing import Any

from odradek.broker.coordinator.group.offsets import Commits
from odradek.protocol.errors import ErrorCode


class AskedCommits:
    """A commit's partitions, and their answers in the making.

    `commits` is what can be committed; `answers` are those of all partitions that exist.
    """

    __slots__ = ("answers", "commits", "topics")

    def __init__(self) -> None:
        self.topics: list[Any] = []
        self.answers: list[Any] = []
        self.commits: Commits = {}

    def refuse(self, error: ErrorCode) -> None:
        """The request as a whole."""
        for answer in self.answers:
            answer.error_code = error

    def fail(self, error: ErrorCode) -> None:
        """What was to be committed; what was refused for itself stays so."""
        for answer in self.answers:
            if answer.error_code == ErrorCode.NONE:
                answer.error_code = error
