"""All acts in their order. Records what Kafka's tools print of Apache Kafka:

python -m tests.clients.secured_tools.script    # with $KAFKA_CONTROL, into tests/vectors/tools/secured.json
"""

from __future__ import annotations

import json
import os
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.beside_kafka.printed import Step
from tests.clients.secured_tools.acts import ACTS
from tests.clients.secured_tools.stage import RECORDING, Stage, apaches
from tests.cluster.kafka_tools.java_tools import java_tools
from tests.zookeeper import real_zookeeper


def played(port: int, tools: Sequence[str], directory: Path) -> Mapping[str, Step]:
    """What Kafka's tools print of a new broker. `tools`: the command before the name of a class."""
    with java_tools(tools, directory / "tools-log") as jvm:
        stage = Stage(port, jvm, directory)
        for act in ACTS:
            act(stage)
    return stage.steps


def record() -> None:
    control = shlex.split(os.environ["KAFKA_CONTROL"])
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        (directory / "zookeeper").mkdir()
        with (
            real_zookeeper.running(control, directory / "zookeeper") as zookeeper,
            apaches(control, zookeeper, directory / "kafka") as port,
        ):
            steps = played(port, [*control, "tool"], directory)
    RECORDING.write_text(json.dumps(steps, indent=1) + "\n")


if __name__ == "__main__":
    record()
