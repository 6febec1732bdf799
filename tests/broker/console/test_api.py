"""GET /api/... returns what a running broker holds, as docs/console.md says."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from odradek.broker.console.queries import MOST_ROWS
from odradek.broker.server import Broker
from odradek.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.groups import SyncGroupRequest
from odradek.protocol.messages.offsets import OffsetCommitRequest
from odradek.protocol.messages.producers import InitProducerIdRequest
from odradek.protocol.messages.transactions import AddPartitionsToTxnRequest
from odradek.testing import in_process_broker
from tests.broker.console.waiters import EVIL, fetch_of, join_of
from tests.broker.metrics.test_metrics import ask
from tests.broker.metrics.test_waiting_is_counted import delete_records
from tests.broker.replica.test_over_sockets import batch, client_of, create, hold_high_watermark
from tests.patience import until
from tests.wire.raw_client import RawClient
from tests.wire.requests import end, produce

Rows = list[dict[str, Any]]


@asynccontextmanager
async def broker_with_console(
    settings: Mapping[str, object] | None = None, security: str = "PLAINTEXT"
) -> AsyncIterator[tuple[Broker, int]]:
    """Yields a broker and the port of its console."""
    async with in_process_broker({"odradek.metrics.port": "0", **(settings or {})}, security=security) as broker:
        assert broker.metrics_server is not None
        yield broker, broker.metrics_server.port


async def api(port: int, path: str) -> dict[str, Any]:
    status, headers, body = await ask(port, f"/api/{path}")
    assert (status, headers["Content-Type"]) == (200, "application/json"), body
    found = json.loads(body)
    assert isinstance(found, dict)
    return found


async def rows(port: int, path: str) -> Rows:
    found: Rows = (await api(port, path))["rows"]
    return found


async def purgatory(port: int, name: str) -> dict[str, Any]:
    [found] = [each for each in (await api(port, "waiting"))["purgatories"] if each["name"] == name]
    assert isinstance(found, dict)
    return found


async def coordinate(client: RawClient, key: str, key_type: int = 0) -> None:
    """Waits until the broker coordinates a group, or a transactional id (1)."""

    async def is_found() -> bool:
        found = await client.call(FindCoordinatorRequest(key=key, key_type=key_type), 2)
        return bool(found.error_code == 0)

    await until(is_found)


@pytest.mark.parametrize(
    ("host", "shown"),
    [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("::1", "[::1]")],  # nosec B104
)
async def test_a_broker_knows_the_address_of_its_console(host: str, shown: str) -> None:
    async with broker_with_console({"odradek.metrics.host": host}) as (broker, port):
        assert broker.console == f"http://{shown}:{port}"


@pytest.mark.parametrize("settings", [{}, {"odradek.metrics.port": "0", "odradek.console.enable": "false"}])
async def test_a_broker_without_a_console_has_no_address_of_it(settings: dict[str, str]) -> None:
    async with in_process_broker(settings) as broker:
        with pytest.raises(ValueError, match=r"the broker has no console: it needs odradek\.metrics\.port"):
            _ = broker.console


async def test_the_overview_counts_what_the_broker_has() -> None:
    async with broker_with_console() as (broker, port), client_of(broker) as client:
        await create(client, "orders", 3)
        found = await api(port, "overview")
    assert (found["broker_id"], found["controller_id"]) == (broker.broker_id, broker.broker_id)
    assert [each["is_controller"] for each in found["brokers"]] == [True]
    assert (found["topics"], found["connections"]) == (1, 1)
    assert found["partitions"] == {
        "here": 3,
        "led": 3,
        "followed": 0,
        "offline": 0,
        "replicas_of_led": 3,
        "in_sync_of_led": 3,
        "under_replicated": 0,
        "under_min_isr": 0,
        "isr_shrinks": 0,
        "isr_expands": 0,
    }


async def test_topics_and_partitions_show_leaders_offsets_and_sizes() -> None:
    async with broker_with_console() as (broker, port), client_of(broker) as client:
        await create(client, "orders", 2, retention_ms="1000000")
        await client.call(produce("orders", batch(3), acks=1), 9)
        [topic] = await rows(port, "topics")
        first, second = await rows(port, "partitions?name=orders")
    assert (topic["name"], topic["partitions"], topic["led_here"], topic["offsets_here"]) == ("orders", 2, 2, 3)
    assert topic["settings"] == {"retention.ms": "1000000"}
    assert topic["size_bytes"] == first["size_bytes"] > second["size_bytes"] == 0
    assert (first["leader"], first["role"], first["isr"]) == (broker.broker_id, "leader", [broker.broker_id])
    assert (first["log_start_offset"], first["high_watermark"], first["log_end_offset"]) == (0, 3, 3)
    assert second["log_end_offset"] == 0


async def test_a_list_is_sorted_searched_and_cut_into_pages() -> None:
    async with broker_with_console() as (broker, port), client_of(broker) as client:
        for name in ("orders-b", "clicks", "orders-a", "orders-c"):
            await create(client, name)
        found = await api(port, "topics?search=ORDERS&limit=2")
        assert [row["name"] for row in found["rows"]] == ["orders-a", "orders-b"]
        assert (found["total"], found["matching"], found["offset"], found["left_off"]) == (4, 3, 0, 1)
        found = await api(port, "topics?search=ORDERS&limit=2&offset=2")
        assert [row["name"] for row in found["rows"]] == ["orders-c"]
        assert found["left_off"] == 0
        assert (await api(port, "topics?offset=9"))["rows"] == []


async def committed(client: RawClient, group: str, topic: str, offset: int) -> None:
    await coordinate(client, group)
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=""
    )
    topics = [OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=[partition])]
    request = OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=topics)
    response = await client.call(request, 7)
    assert response.topics[0].partitions[0].error_code == 0


async def test_groups_show_their_members_offsets_and_lag() -> None:
    settings = {"group.initial.rebalance.delay.ms": 0}
    async with broker_with_console(settings) as (broker, port), client_of(broker) as client:
        await create(client, "orders")
        await client.call(produce("orders", batch(5), acks=1), 9)
        await committed(client, "old", "orders", 2)
        await coordinate(client, "readers")
        joined = await client.call(join_of("readers"), 3, "reader-7")
        assignment = SyncGroupRequest.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"")
        await client.call(
            SyncGroupRequest(
                group_id="readers",
                generation_id=joined.generation_id,
                member_id=joined.member_id,
                assignments=[assignment],
            ),
            2,
        )
        old, readers = await rows(port, "groups")
        assert (old["name"], old["state"], old["committed_partitions"], old["lag"]) == ("old", "Empty", 1, 3)
        assert (readers["name"], readers["state"], readers["members"]) == ("readers", "Stable", 1)
        assert await rows(port, "offsets?name=old") == [
            {"topic": "orders", "partition": 0, "committed": 2, "lag": 3},
        ]
        [member] = await rows(port, "members?name=readers")
        assert (member["client_id"], member["client_host"], member["is_leader"]) == ("reader-7", "/127.0.0.1", True)
        assert 0 < member["session_left_ms"] <= member["session_timeout_ms"] == 30_000
        [session] = (await purgatory(port, "Heartbeat"))["rows"]
        assert session["clients"][0]["client_id"] == "reader-7"
        assert session["why"] == "a heartbeat: without one the member leaves group readers"


async def test_transactions_show_their_state_and_partitions() -> None:
    async with broker_with_console() as (broker, port), client_of(broker) as client:
        await create(client, "orders", 12)
        await coordinate(client, "tx", 1)
        producer = await client.call(InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000), 3)
        assert producer.error_code == 0
        topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name="orders", partitions=list(range(12)))
        await client.call(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id="tx",
                v3_and_below_producer_id=producer.producer_id,
                v3_and_below_producer_epoch=producer.producer_epoch,
                v3_and_below_topics=[topic],
            ),
            2,
        )
        [row] = await rows(port, "transactions")
        assert (row["name"], row["state"], row["producer_id"]) == ("tx", "Ongoing", producer.producer_id)
        assert (row["timeout_ms"], len(row["partitions"]), row["partitions_left_off"]) == (60_000, 10, 2)
        assert row["open_ms"] >= 0
        await client.call(end("tx", (producer.producer_id, producer.producer_epoch), committed=True), 2)

        async def is_committed() -> bool:
            [row] = await rows(port, "transactions")
            return bool(row["state"] == "CompleteCommit")

        await until(is_committed)
        [row] = await rows(port, "transactions")
        assert (row["open_ms"], row["partitions"]) == (None, [])
        assert (row["version"], row["next_producer_id"]) == (0, None)


async def test_what_waits_is_shown_with_its_client_its_reason_and_its_deadline() -> None:
    async with (
        broker_with_console() as (broker, port),
        client_of(broker) as client,
        client_of(broker) as second,
        client_of(broker) as third,
    ):
        await create(client, "t")
        await create(client, "u")
        await client.call(produce("t", batch(3), acks=1), 9)
        hold_high_watermark(broker)
        client.send_request(produce("t", batch(1), acks=-1, timeout_ms=60_000), 9, "writer")
        second.send_request(fetch_of(("u", 0, 0), min_bytes=7, wait_ms=50_000), 11, "reader")
        third.send_request(delete_records(3, 40_000), 2, "admin")
        names = ("Produce", "Fetch", "DeleteRecords")

        async def all_wait() -> bool:
            return all([(await purgatory(port, name))["waiting"] == 1 for name in names])

        await until(all_wait)
        produced, fetched, deleted = [(await purgatory(port, name))["rows"][0] for name in names]
        connections = {row["number"]: row for row in await rows(port, "connections")}
    assert produced["why"] == "acks: t-0 is replicated up to 3, needs 4 (broker 1 has not fetched yet)"
    assert fetched["why"] == "fewer than the 7 bytes that the consumer asks for: u-0 from 0, which ends at 0"
    assert deleted["why"] == "not all replicas of t-0 have deleted the records before 3"
    assert [row["clients"][0]["client_id"] for row in (produced, fetched, deleted)] == ["writer", "reader", "admin"]
    assert [row["clients"][0]["request"] for row in (produced, fetched, deleted)] == [
        "PRODUCE v9",
        "FETCH v11",
        "DELETE_RECORDS v2",
    ]
    assert [round(row["left_ms"] + row["waited_ms"], -4) for row in (produced, fetched, deleted)] == [
        60_000,
        50_000,
        40_000,
    ]
    of_reader = connections[fetched["clients"][0]["connection"]]
    assert (of_reader["client_id"], of_reader["unanswered"]) == ("reader", 1)
    assert of_reader["address"] == fetched["clients"][0]["address"]


async def test_a_rebalance_names_the_members_that_it_waits_for() -> None:
    settings = {"group.initial.rebalance.delay.ms": 0}
    async with (
        broker_with_console(settings) as (broker, port),
        client_of(broker) as client,
        client_of(broker) as second,
    ):
        await coordinate(client, "g")
        await client.call(join_of("g"), 3, "first")

        async def reasons() -> list[str]:
            return [row["why"] for row in (await purgatory(port, "Rebalance"))["rows"]]

        await until(reasons)
        assert await reasons() == ["SyncGroup of 1 of 1 members of group g (first)"]
        second.send_request(join_of("g"), 3, "second")

        async def rejoins() -> bool:
            return await reasons() == ["1 of 2 members of group g to rejoin (first)"]

        await until(rejoins)
        [row] = (await purgatory(port, "Rebalance"))["rows"]
        assert [(each["client_id"], each["request"]) for each in row["clients"]] == [("second", "JoinGroup")]


async def test_a_member_that_must_give_up_partitions_is_named() -> None:
    settings = {"group.consumer.assignment.interval.ms": 0}
    async with broker_with_console(settings) as (broker, port), client_of(broker) as client:
        await create(client, "orders", 2)
        await coordinate(client, "readers")

        async def beat(member_id: str, epoch: int, client_id: str, **fields: Any) -> Any:
            request = ConsumerGroupHeartbeatRequest(
                group_id="readers", member_id=member_id, member_epoch=epoch, **fields
            )
            response = await client.call(request, 1, client_id)
            assert response.error_code == 0
            return response

        joins = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": ["orders"], "topic_partitions": []}
        await beat("a", 0, "first", **joins)
        await beat("b", 0, "second", **joins)
        kept = (await beat("a", 2, "first")).assignment.topic_partitions[0].partitions[0]
        [row] = (await purgatory(port, "Rebalance"))["rows"]
        assert row["why"] == f"first of group readers gives up orders-{1 - kept}, for which second waits"
        assert 20_000 < row["left_ms"] <= 30_000
        assert [(each["client_id"], each["member_id"]) for each in row["clients"]] == [("first", "a")]
        [group] = await rows(port, "groups")
        assert (group["state"], group["type"], group["members"]) == ("Reconciling", "consumer", 2)
        assert (group["generation"], group["target_generation"]) == (3, 3)
        waits = {row["member_id"]: row["waits_for"] for row in await rows(port, "members?name=readers")}
        assert waits == {"a": "its client to give up partitions", "b": "other members to give up partitions"}


async def test_a_classic_member_of_a_consumer_group_that_must_sync_is_named() -> None:
    async with broker_with_console({}) as (broker, port), client_of(broker) as client:
        await create(client, "orders", 2)
        await coordinate(client, "readers")
        request = ConsumerGroupHeartbeatRequest(
            group_id="readers",
            member_id="a",
            rebalance_timeout_ms=30_000,
            subscribed_topic_names=["orders"],
            topic_partitions=[],
        )
        assert (await client.call(request, 1)).error_code == 0
        joined = await client.call(join_of("readers"), 3, "classic")
        assert joined.error_code == 0
        [row] = (await purgatory(port, "Rebalance"))["rows"]
        assert row["why"] == "SyncGroup of classic of group readers, which speaks the classic protocol"
        assert [each["member_id"] for each in row["clients"]] == [joined.member_id]


async def test_the_first_rebalance_waits_for_more_members() -> None:
    settings = {"group.initial.rebalance.delay.ms": 100_000}
    async with broker_with_console(settings) as (broker, port), client_of(broker) as client:
        await coordinate(client, "g")
        client.send_request(join_of("g"), 3, "first")

        async def waits() -> bool:
            return bool((await purgatory(port, "Rebalance"))["rows"])

        await until(waits)
        [row] = (await purgatory(port, "Rebalance"))["rows"]
    assert row["why"] == "more members may join group g, which has 1 (group.initial.rebalance.delay.ms)"
    assert 0 < row["left_ms"] <= 100_000


async def test_the_wheel_has_each_deadline_in_one_bucket() -> None:
    settings = {"odradek.timer.tick.ms": 5, "odradek.timer.wheel.size": 10}
    async with broker_with_console(settings) as (broker, port), client_of(broker) as client:
        await create(client, "t")
        client.send_request(fetch_of(("t", 0, 0)), 11)
        await until(lambda: broker.replica_manager.fetch_purgatory.delayed)
        found = await api(port, "wheel")
    levels = found["levels"]
    assert [level["tick_ms"] for level in levels] == [5 * 10**power for power in range(len(levels))]
    assert all(len(level["tasks"]) == level["buckets"] == 10 for level in levels)
    assert all(level["time_ms"] // level["tick_ms"] % 10 == level["hand"] for level in levels)
    assert sum(sum(level["tasks"]) for level in levels) == found["tasks"] >= 1
    assert levels[-1]["time_ms"] <= found["now_ms"] <= found["next_expiration_ms"] + 1000


async def test_settings_that_differ_are_shown_and_secrets_hidden() -> None:
    settings = {"num.partitions": "7", "config.providers.file.param.password": "s3cret"}
    async with broker_with_console(settings, "SASL_SSL") as (broker, port):
        found = {row["name"]: row for row in await rows(port, "settings?limit=500")}
        given = broker.config.given
    assert (found["num.partitions"]["value"], found["num.partitions"]["default"]) == ("7", "1")
    assert found["num.partitions"]["source"] == "STATIC_BROKER_CONFIG"
    assert "log.retention.bytes" not in found
    secrets = [name for name in given if "jaas" in name or "password" in name]
    assert len(secrets) > 1
    for name in secrets:
        assert (found[name]["value"], found[name]["is_sensitive"]) == (None, True)
        assert given[name] not in json.dumps(found)


async def test_long_and_hostile_names_are_cut_and_stay_text() -> None:
    long_name = "g" * 30_000
    async with broker_with_console() as (broker, port), client_of(broker) as client:
        await create(client, "orders")
        await committed(client, EVIL, "orders", 0)
        await committed(client, long_name, "orders", 0)
        evil, long_one = await rows(port, "groups")
    assert evil["name"] == EVIL
    assert long_one["name"] == "g" * 256 + "…"


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("topics?limit=0", f"The parameter limit must be a number from 1 to {MOST_ROWS}, not '0'"),
        ("topics?limit=x", f"The parameter limit must be a number from 1 to {MOST_ROWS}, not 'x'"),
        ("topics?offset=-1", "The parameter offset must be a number from 0 to 10000000, not '-1'"),
        ("topics?limit=1&limit=2", "A parameter is given twice"),
        ("topics?colour=red", "There is no parameter 'colour' here; there are: limit, offset, search"),
        ("wheel?limit=1", "There is no parameter 'limit' here; there are: none"),
        ("topics?limit", "The query is not of the form NAME=VALUE&NAME=VALUE"),
        ("partitions", "The parameter name is missing"),
        ("partitions?name=gone", "There is no topic of this name"),
        ("members?name=gone", "This broker coordinates no group of this name"),
        ("offsets?name=gone", "This broker coordinates no group of this name"),
    ],
)
async def test_a_wrong_query_gets_a_clear_error(path: str, error: str) -> None:
    async with broker_with_console() as (_, port):
        status, _, body = await ask(port, f"/api/{path}")
    assert status == 400
    assert json.loads(body)["error"].startswith(error)


async def test_an_unknown_path_names_those_that_exist() -> None:
    async with broker_with_console() as (_, port):
        status, _, body = await ask(port, "/api/secrets")
        assert (status, "/api/waiting" in json.loads(body)["error"]) == (404, True)
        assert (await ask(port, "/console/../console.py"))[0] == 404
        assert (await ask(port, "/api/topics", method="POST"))[0] == 405


async def test_before_clients_are_served_the_api_says_so() -> None:
    async with broker_with_console() as (broker, port):
        broker.state = type(broker.state).STARTING
        status, _, body = await ask(port, "/api/topics")
        broker.state = type(broker.state).RUNNING
    assert (status, json.loads(body)) == (503, {"error": "The broker does not serve clients", "state": 1})


async def test_the_console_can_be_switched_off() -> None:
    async with broker_with_console({"odradek.console.enable": "false"}) as (_, port):
        assert [(await ask(port, path))[0] for path in ("/", "/api/overview", "/metrics")] == [404, 404, 200]


async def test_pages_of_foreign_hosts_cannot_read_the_console() -> None:
    async with broker_with_console() as (_, port):
        raw = b"GET /api/overview HTTP/1.1\r\nHost: evil.example\r\n\r\n"
        assert (await ask(port, raw=raw))[0] == 421
