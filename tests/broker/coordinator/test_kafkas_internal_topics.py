"""Internal topics in a directory that Apache Kafka wrote: this broker loads the same groups, offsets and
transactions from them as that broker had after loading.
"""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from odradek.broker.metadata.metadata_cache import GROUP_TOPIC, TRANSACTION_TOPIC
from odradek.protocol.documents import to_document
from odradek.protocol.messages.group_admin import DescribeGroupsRequest, ListGroupsRequest
from odradek.protocol.messages.offsets import OffsetFetchRequest
from odradek.protocol.messages.transactions import DescribeTransactionsRequest, ListTransactionsRequest
from odradek.protocol.schema import Message
from odradek.testing import in_process_broker
from odradek.timer import SystemClock
from tests.wire.api import Api, api_of_a_broker

LOGS = Path(__file__).parents[2] / "vectors" / "logs"
KNOWN = json.loads((LOGS / "clean" / "coordinators.json").read_text(encoding="utf-8"))
WRITTEN_MS = 1795231531000 + 60_000
"""The approximate time at which that broker ran. Offsets expire and open transactions are aborted by it."""
FIFTY = {"offsets.topic.num.partitions": 50, "transaction.state.log.num.partitions": 50}
"""That broker had Kafka's defaults."""
WHEN_KILLED = ("Stable", "consumer", "range")
"""State, type and protocol of `group-static` at the kill. The recorded answers are from after its session expired."""


class Then(SystemClock):
    """The time at which the directory was written."""

    def wall_ms(self) -> int:
        return WRITTEN_MS


@asynccontextmanager
async def broker_of(name: str, data_dir: Path) -> AsyncIterator[Api]:
    """Yields a broker that has loaded the internal topics of that set of logs."""
    async with in_process_broker(FIFTY, data_dir=data_dir) as broker:
        for topic in (GROUP_TOPIC, TRANSACTION_TOPIC):
            await broker.coordinators.internal_topics.ensure(topic)
    for folder in (LOGS / name).glob("__*"):
        target = data_dir / folder.name
        ours = (target / "partition.metadata").read_bytes()
        shutil.rmtree(target)
        shutil.copytree(folder, target, copy_function=shutil.copyfile)
        (target / "partition.metadata").write_bytes(ours)
    if name == "killed":
        (data_dir / ".kafka_cleanshutdown").unlink()
    async with api_of_a_broker(data_dir=data_dir, clock=Then()) as api:
        while any(runtime.loading for runtime in api.broker.coordinators.runtimes):  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0)
        yield api


def document(message: Message, version: int) -> Any:
    return to_document(message, version)


def by_partition(topics: list[dict[str, Any]]) -> dict[tuple[str, int], dict[str, Any]]:
    return {(topic["Name"], one["PartitionIndex"]): one for topic in topics for one in topic["Partitions"]}


@pytest.fixture(params=["clean", "killed"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def api(name: str, tmp_path: Path) -> AsyncIterator[Api]:
    with capture_logs() as lines:
        async with broker_of(name, tmp_path) as api:
            assert [line for line in lines if line["log_level"] == "error"] == []
            yield api


async def test_the_state_of_kafkas_coordinators_is_loaded(name: str, api: Api) -> None:
    await groups_their_states_and_their_offsets_are_known(name, api)
    await transactional_ids_and_their_states_are_known(api)


async def groups_their_states_and_their_offsets_are_known(name: str, api: Api) -> None:
    listed = await api(ListGroupsRequest(), 4)
    assert {group.group_id for group in listed.groups} == set(KNOWN["groups"])
    for group_id, known in KNOWN["groups"].items():
        described = document(await api(DescribeGroupsRequest(groups=[group_id]), 4), 4)["Groups"]
        if (name, group_id) == ("killed", "group-static"):
            (group,) = described
            assert (group["GroupState"], group["ProtocolType"], group["ProtocolData"]) == WHEN_KILLED
            assert [member["GroupInstanceId"] for member in group["Members"]] == ["instance-1"]
        else:
            assert described == known["described"]
        fetched = document(await api(OffsetFetchRequest(group_id=group_id, topics=None), 7), 7)
        assert fetched["ErrorCode"] == known["errorCode"]
        assert by_partition(fetched["Topics"]) == by_partition(known["offsets"])


async def transactional_ids_and_their_states_are_known(api: Api) -> None:
    known = {one["TransactionalId"]: one for one in KNOWN["transactions"]}
    described = await api(DescribeTransactionsRequest(transactional_ids=list(known)), 0)
    found = {one["TransactionalId"]: one for one in document(described, 0)["TransactionStates"]}
    assert found == known
    listed = document(await api(ListTransactionsRequest(), 0), 0)["TransactionStates"]
    assert {(one["TransactionalId"], one["ProducerId"], one["TransactionState"]) for one in listed} == {
        (one["TransactionalId"], one["ProducerId"], one["TransactionState"]) for one in known.values()
    }
