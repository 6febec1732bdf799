"""The releases of Apache Kafka beside which the rows are measured.

It is $KAFKA_VERSION, which $KAFKA_CONTROL and $KAFKA_TOOLS read, or else DEFAULT. Kafka's tools and its Java client,
which load all brokers, are of the same release. What a newer release no longer has is measured with the last one that
has it: brokers on ZooKeeper, and TestPurgatoryPerformance, whose test jar is not published any more.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

DEFAULT = "4.4.0"
LAST_WITH_ZOOKEEPER = "3.9.1"


def kafka_version() -> str:
    return os.environ.get("KAFKA_VERSION") or DEFAULT


def version_with_zookeeper() -> str:
    """The release of clusters, and of Kafka's own benchmark of the purgatory."""
    version = kafka_version()
    return version if version.startswith(("2.", "3.")) else LAST_WITH_ZOOKEEPER


def environment_of(version: str) -> Mapping[str, str]:
    """Returns this process's environment, in which the control takes this release."""
    return {**os.environ, "KAFKA_VERSION": version}
