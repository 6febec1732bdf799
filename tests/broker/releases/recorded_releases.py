"""The recordings of clients of released brokers, tests/vectors/releases/RELEASE-CLIENT.rec, and what is known of them.

tests/broker/releases/test_released_brokers.py makes them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from tests.broker.releases.first_words import VECTORS
from tests.clients.recording.recorded_clients import SETTINGS

CLIENTS = ("kafka-python", "librdkafka", "java")
REFUSALS = "refusals"
"""The recording of tests/broker/releases/refusals.py."""
RELEASED_SETTINGS = {
    **SETTINGS,
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
"""Those of all brokers."""


def recording_of(release: str, client: str) -> Path:
    return VECTORS / f"{release}-{client}.rec"


class Known(NamedTuple):
    """`line` is a pattern for the beginning of a difference: the place and the recorded value."""

    releases: frozenset[str]
    clients: frozenset[str]
    line: str
    reason: str

    def explains(self, difference: str) -> bool:
        """A difference begins with a time and a connection."""
        return re.match(self.line, difference.split(" ", 2)[2]) is not None


ALL_RELEASES = frozenset({"1.0", "2.0", "2.8"})
ALL_CLIENTS = frozenset(CLIENTS)
BEFORE_2_4 = frozenset({"1.0", "2.0"})
OF_REFUSALS = frozenset({REFUSALS})
KNOWN = [
    Known(
        ALL_RELEASES,
        ALL_CLIENTS,
        r"ApiVersions \d+\.ApiKeys\.\w+: recorded '\d+-\d+', \S+ 'nothing'",
        "APIs that are not served, and APIs between brokers",
    ),
    Known(
        frozenset({"2.8"}),
        frozenset({"kafka-python"}),
        r"CreateTopics 7\.Topics\[orders\]\.Configs: ",
        "settings of topics and their defaults are those of Kafka 3.9",
    ),
    Known(
        ALL_RELEASES,
        OF_REFUSALS,
        r"CreateTopics 1\.Topics\[of-later\]\.Error",
        "settings that came later are known",
    ),
    Known(
        BEFORE_2_4,
        OF_REFUSALS,
        r"CreateTopics 1\.Topics\[never\]\.ErrorCode: recorded -1, ",
        "an invalid value of a setting is INVALID_CONFIG",
    ),
    Known(
        ALL_RELEASES,
        OF_REFUSALS,
        r"AlterConfigs 0\.Responses\[plain\]\.ErrorCode: recorded 42, ",
        "an invalid value of a setting is INVALID_CONFIG",
    ),
    Known(
        ALL_RELEASES,
        OF_REFUSALS,
        r"Produce 3\.Responses\[lonely\]\.PartitionResponses\[0\]\.(ErrorCode: recorded 19|BaseOffset: recorded -1), ",
        "no more replicas need be in sync than there are, as in 3.9",
    ),
    Known(
        BEFORE_2_4,
        OF_REFUSALS,
        r"Produce 3\.Responses\[plain\]\.PartitionResponses\[0\]\.(ErrorCode: recorded 59|BaseOffset: recorded -1), ",
        "a producer that a partition does not know may begin with any sequence, as in 2.8",
    ),
    Known(
        BEFORE_2_4,
        OF_REFUSALS,
        r"ListOffsets 1\.Topics\[plain\]\.Partitions\[0\]\.Offset: recorded 1, ",
        "the record of that producer was written",
    ),
    Known(
        ALL_RELEASES,
        OF_REFUSALS,
        r"ListOffsets 1\.Topics\[plain\]\.Partitions\[0\]\.(ErrorCode|Timestamp|Offset): recorded (0|17)",
        "timestamps below -2 have a meaning, which older versions of ListOffsets do not know",
    ),
]


def explained_by(release: str, client: str) -> set[Known]:
    """What explains differences of a recording."""
    return {known for known in KNOWN if release in known.releases and client in known.clients}


def unexplained(release: str, client: str, differences: list[str]) -> list[str]:
    """The differences without a reason."""
    reasons = explained_by(release, client)
    return [difference for difference in differences if not any(known.explains(difference) for known in reasons)]
