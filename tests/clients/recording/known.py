"""Where Odradek answers recorded clients otherwise than Apache Kafka. docs/differences.md lists it for users."""

from __future__ import annotations

import re
from typing import NamedTuple

from tests.clients.recording.recorded_clients import APPLICATIONS, CLIENTS, NEWER


class Known(NamedTuple):
    """`line` is a pattern for the beginning of a difference: the place and the recorded value. `clients` meet it."""

    clients: frozenset[str]
    line: str
    reason: str

    def explains(self, difference: str) -> bool:
        """A difference begins with a time and a connection."""
        return re.match(self.line, difference.split(" ", 2)[2]) is not None


ALL = frozenset({*CLIENTS, *APPLICATIONS})
KNOWN = [
    Known(ALL | {*NEWER}, r"ApiVersions \d+\.ApiKeys\.", "APIs that are not served, and APIs between brokers"),
    Known(
        frozenset({"kafka-python", "java", "spring", "streams", "java-4.4"}),
        r"CreateTopics 7\.Topics\[.*\]\.Configs: recorded \[",
        "the settings of a topic are those of Kafka 4.4, and one that it has dropped and that takes effect here",
    ),
    Known(
        ALL - {"faststream"} | {*NEWER},
        r"ApiVersions \d+\.(Supported|Finalized)Features",
        "features are those of KRaft",
    ),
    Known(
        frozenset({"kafka-python", "java"}),
        r"DeleteTopics 6\.Responses\[orders\]\.TopicId: recorded 'orders'",
        "the id of a topic that is deleted by its name is returned in KRaft mode",
    ),
    Known(
        frozenset({"franz-go"}),
        r"Metadata 12\.Topics\[orders\]\.(ErrorCode: recorded 3|TopicId: recorded '0000|Partitions: recorded \[\])",
        "Kafka answers before the topic that a Metadata request creates is there",
    ),
]


def unexplained(differences: list[str]) -> list[str]:
    """The differences without a reason."""
    return [difference for difference in differences if not any(known.explains(difference) for known in KNOWN)]
