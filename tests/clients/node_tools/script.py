"""All acts in their order. Records what the tools print of Apache Kafka 4.4.0:

python -m tests.clients.node_tools.script    # with $KAFKA_CONTROL, into tests/vectors/tools/node.json
"""

from __future__ import annotations

import json
import os
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.beside_kafka.printed import Step
from tests.clients.node_tools.brokers import client_metrics, cluster, features, secured, settings
from tests.clients.node_tools.clients import dumps, loads, replicas
from tests.clients.node_tools.groups import groups, without_the_newer_protocol
from tests.clients.node_tools.stage import RECORDING, RELEASE, Stage, apaches
from tests.clients.node_tools.topics import partitions, records, topics
from tests.clients.node_tools.transactions import transactions
from tests.cluster.kafka_tools.java_tools import java_tools

ACTS = (
    cluster,
    features,
    topics,
    records,
    settings,
    client_metrics,
    groups,
    without_the_newer_protocol,
    transactions,
    partitions,
    secured,
    loads,
    dumps,
    replicas,
)


def played(port: int, data: Path, tools: Sequence[str], directory: Path) -> Mapping[str, Step]:
    """What the tools print of a new node. `tools`: the command before the name of a class."""
    with java_tools(tools, directory / "tools-log") as jvm:
        stage = Stage(port, data, jvm, directory)
        for act in ACTS:
            act(stage)
    return stage.steps


def record() -> None:
    os.environ["KAFKA_VERSION"] = RELEASE
    control = shlex.split(os.environ["KAFKA_CONTROL"])
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        with apaches(control, directory) as (port, data):
            steps = played(port, data, [*control, "tool"], directory)
    RECORDING.write_text(json.dumps(steps, indent=1) + "\n")


if __name__ == "__main__":
    record()
