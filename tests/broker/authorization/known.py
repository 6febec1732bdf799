"""What Odradek answers otherwise than Apache Kafka, each with its reason; docs/differences.md lists it for users."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.scenarios.same_as_kafka.peer import differences


class Known(NamedTuple):
    """`key`: a pattern for a line's key. `where`: one for the state or note, and the place in the answer."""

    key: str
    where: str
    reason: str

    def is_about(self, key: str) -> bool:
        return re.fullmatch(self.key, key) is not None

    def explains(self, key: str, where: str) -> bool:
        return self.is_about(key) and re.fullmatch(self.where, where) is not None


KNOWN: list[Known] = []


def unexplained(key: str, about: str, kafka: Any, ours: Any) -> Iterator[str]:
    """Every value that differs without a known reason."""
    for path, expected, found in differences(kafka, ours):
        if is_a_text(path, expected, found) or any(known.explains(key, about + path) for known in KNOWN):
            continue
        yield f"{key}: {about}: {path}: Kafka {expected!r}, ours {found!r}"


def is_a_text(path: str, kafka: Any, ours: Any) -> bool:
    """Whether these are messages for people, of which Odradek's may say more."""
    return path.endswith("ErrorMessage") and isinstance(ours, str | None) and (bool(ours) or not kafka)
