from collections.abc import AsyncIterator
from typing import Any

import pytest

from odradek.broker.metadata.new_topic import NewPartitions, NewTopic
from odradek.clients.admin.client import AdminClient, parse_addresses
from odradek.clients.admin.transactions import TransactionAdmin
from odradek.clients.network_errors import NodeUnreachable
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.transactions import DescribeTransactionsResponse
from odradek.protocol.schema import Message
from odradek.protocol.wire_codes import ConfigOperation, ConfigResourceType, CoordinatorType
from odradek.testing import in_process_broker


@pytest.fixture
async def admin() -> AsyncIterator[AdminClient]:
    async with in_process_broker() as broker, AdminClient(f"127.0.0.1:1,{broker.bootstrap}") as client:
        yield client


async def test_a_topic_is_created_described_extended_and_deleted(admin: AdminClient) -> None:
    await admin.create_topic(NewTopic("t", 2, configs={"retention.ms": "5"}))
    assert len((await admin.topic("t")).partitions) == 2
    await admin.create_partitions(NewPartitions("t", 3))
    assert [topic.name for topic in await admin.topics()] == ["t"]
    ((directory,),) = (await admin.describe_log_dirs()).values()
    assert [partition.partition_index for topic in directory.topics for partition in topic.partitions] == [0, 1, 2]
    await admin.delete_topic("t")
    assert await admin.topics() == []


async def test_settings_are_changed_one_by_one(admin: AdminClient) -> None:
    await admin.create_topic(NewTopic("t", configs={"retention.ms": "5"}))
    changes = [("segment.bytes", ConfigOperation.SET, "1000"), ("retention.ms", ConfigOperation.DELETE, None)]
    await admin.alter_configs(ConfigResourceType.TOPIC, "t", changes)
    await admin.alter_configs(ConfigResourceType.TOPIC, "t", [("flush.ms", ConfigOperation.SET, "9")])
    configs = await admin.describe_configs(ConfigResourceType.TOPIC, "t")
    assert {one.name: one.value for one in configs if one.config_source == 1} == {
        "flush.ms": "9",
        "segment.bytes": "1000",
    }


async def test_refusals_are_protocol_errors(admin: AdminClient) -> None:
    await admin.create_topic(NewTopic("t"))
    refused = [
        (admin.create_topic(NewTopic("t")), ErrorCode.TOPIC_ALREADY_EXISTS),
        (admin.create_topic(NewTopic("a/b")), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (admin.topic("missing"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (admin.delete_topic("missing"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (admin.create_partitions(NewPartitions("t", 1)), ErrorCode.INVALID_PARTITIONS),
        (admin.describe_configs(ConfigResourceType.TOPIC, "missing"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (
            admin.alter_configs(ConfigResourceType.TOPIC, "t", [("no.such", ConfigOperation.SET, "1")]),
            ErrorCode.INVALID_CONFIG,
        ),
    ]
    for attempt, code in refused:
        with pytest.raises(ProtocolError) as caught:
            await attempt
        assert caught.value.code == code


async def test_an_admin_client_without_a_reachable_broker_raises() -> None:
    with pytest.raises(NodeUnreachable, match=r"127\.0\.0\.1:1: "):
        await AdminClient("127.0.0.1:1,127.0.0.1:2").describe_cluster()


def test_addresses_are_parsed() -> None:
    assert parse_addresses("a, b:1,[::1]:2,[::2]") == [("a", 9092), ("b", 1), ("::1", 2), ("::2", 9092)]
    for wrong in ("", ",", "a:b", "a:0", ":1", "a:70000"):
        with pytest.raises(ValueError, match="HOST:PORT"):
            parse_addresses(wrong)


class Moving(AdminClient):
    """Finds another coordinator each time. Each returns the next of `codes`; the last code repeats."""

    def __init__(self, *codes: ErrorCode) -> None:
        super().__init__("127.0.0.1:1", timeout_ms=500)
        self.codes = list(codes)
        self.asked: list[int] = []

    async def coordinator(self, kind: CoordinatorType, key: str) -> int:
        return len(self.asked)

    async def ask_broker(self, broker_id: int, request: Message) -> Any:
        self.asked.append(broker_id)
        code = self.codes.pop(0) if len(self.codes) > 1 else self.codes[0]
        found = DescribeTransactionsResponse.TransactionState(transactional_id="t", error_code=code)
        return DescribeTransactionsResponse(transaction_states=[found])


async def test_a_request_to_a_loading_or_moved_coordinator_is_retried_after_a_new_lookup() -> None:
    admin = Moving(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR, ErrorCode.NONE)
    assert (await TransactionAdmin(admin).describe("t")).coordinator == 2
    assert admin.asked == [0, 1, 2]


async def test_a_request_to_a_coordinator_that_keeps_loading_times_out() -> None:
    admin = Moving(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    with pytest.raises(ProtocolError) as failure:
        await TransactionAdmin(admin).describe("t")
    assert failure.value.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert 1 < len(admin.asked) <= 7
