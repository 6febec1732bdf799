"""All steps in their order. Records them from Apache Kafka:

python -m tests.cluster.kafka_tools.script    # with $KAFKA_CONTROL, into tests/vectors/tools/cluster.json
"""

from __future__ import annotations

import json
import os
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.beside_kafka.printed import Step
from tests.cluster.cluster import Cluster
from tests.cluster.kafka_tools.configs import configs
from tests.cluster.kafka_tools.elections import brokers_down, elections
from tests.cluster.kafka_tools.features import features
from tests.cluster.kafka_tools.groups import groups
from tests.cluster.kafka_tools.java_tools import java_tools
from tests.cluster.kafka_tools.logs import comparison, logs
from tests.cluster.kafka_tools.reassignments import reassignments, under_way
from tests.cluster.kafka_tools.stage import RECORDING, SETTINGS, Stage
from tests.cluster.kafka_tools.topics import topics_of_a_whole_cluster
from tests.cluster.kafka_tools.transactions import transactions
from tests.cluster.mixed_cluster import mixed_cluster
from tests.zookeeper import real_zookeeper

ACTS = (
    features,
    topics_of_a_whole_cluster,
    configs,
    elections,
    reassignments,
    logs,
    groups,
    transactions,
    under_way,
    brokers_down,
    comparison,
)


def played(cluster: Cluster, tools: Sequence[str], directory: Path) -> Mapping[str, Step]:
    """What Kafka's tools print of a new cluster. `tools`: the command before the name of a class."""
    cluster.create_offsets_topic()
    with java_tools(tools, directory / "tools-log") as jvm:
        stage = Stage(cluster, jvm, directory)
        for act in ACTS:
            act(stage)
    return stage.steps


def played_by_apache(control: Sequence[str], zookeeper: str, directory: Path) -> Mapping[str, Step]:
    """The same of three brokers of Apache Kafka."""
    with mixed_cluster(control, zookeeper, directory, apache=(1, 2, 3), settings=SETTINGS) as cluster:
        return played(cluster, [*control, "tool"], directory)


def record() -> None:
    control = shlex.split(os.environ["KAFKA_CONTROL"])
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        (directory / "zookeeper").mkdir()
        with real_zookeeper.running(control, directory / "zookeeper") as zookeeper:
            steps = played_by_apache(control, zookeeper, directory)
    RECORDING.parent.mkdir(exist_ok=True)
    RECORDING.write_text(json.dumps(steps, indent=1) + "\n")


if __name__ == "__main__":
    record()
