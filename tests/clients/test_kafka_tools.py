"""Kafka's own tools that write, read and dump print with our broker what they print with Apache Kafka."""

from __future__ import annotations

import pytest

from tests.clients.kafka_tools.stages import Stage, run_both

STEPS = (
    "ConsumerPerformance reads all with a group",
    "EndToEndLatency sends and waits",
    "a read_committed console consumer reads what was committed",
    "VerifiableProducer writes",
    "VerifiableConsumer reads with a group",
    "DumpLogSegments decodes offsets and groups",
    "DumpLogSegments decodes transactions",
)

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def stages(
    tmp_path_factory: pytest.TempPathFactory, java_tools: list[str], kafka_control: list[str]
) -> tuple[Stage, Stage]:
    return run_both(java_tools, kafka_control, tmp_path_factory.mktemp("stages"))


@pytest.mark.parametrize("step", STEPS)
def test_kafkas_tools_print_the_same(stages: tuple[Stage, Stage], step: str) -> None:
    kafka, ours = stages
    wanted = kafka.output_of(step)
    assert ours.output_of(step).splitlines() == wanted.splitlines()


def test_every_step_of_the_script_is_compared(stages: tuple[Stage, Stage]) -> None:
    kafka, ours = stages
    assert tuple(kafka.script.outputs) == STEPS
    assert tuple(ours.script.outputs) == STEPS
