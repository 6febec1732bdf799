"""Kafka's own tools for groups and transactions print with our broker what they print with Apache Kafka."""

from __future__ import annotations

import pytest

from tests.clients.kafka_tools.stages import Stage, run_both

STEPS = (
    "ConsumerPerformance reads all with a group",
    "EndToEndLatency sends and waits",
    "list groups",
    "list groups with states",
    "list groups that are stable",
    "describe the offsets of a group at work",
    "describe the members",
    "describe the state",
    "reset the offsets of a group at work",
    "delete a group at work",
    "delete offsets of a topic that is read",
    "describe an empty group",
    "describe the state of an empty group",
    "describe the members of an empty group",
    "describe a group that is not there",
    "say what a reset to the beginning would do",
    "reset by a shift",
    "reset to an offset beyond the end",
    "reset to the end",
    "describe after the resets",
    "delete the offsets of one partition",
    "describe all groups",
    "delete a group and one that is not there",
    "list groups after a deletion",
    "list transactions",
    "describe a transaction that is open",
    "describe a transaction that is not there",
    "describe the producers",
    "find hanging transactions",
    "abort a transaction that does not begin there",
    "abort a transaction that is open",
    "describe the producers after that",
    "describe a transaction that is complete",
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
