"""Operations that wait in a running broker's purgatories are listed and counted, in its objects and in /metrics."""

from __future__ import annotations

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.delete_records import DeleteRecordsRequest
from odradek.protocol.topic_partition import TopicPartition
from tests.broker.metrics.test_metrics import Samples, ask, broker_with_metrics, samples_of, value
from tests.broker.replica.test_over_sockets import batch, client_of, create, hold_high_watermark
from tests.patience import until
from tests.wire.requests import fetch, produce

PURGATORY = "kafka_server_delayedoperationpurgatory"


def delete_records(offset: int, timeout_ms: int) -> DeleteRecordsRequest:
    partition = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=offset)
    topic = DeleteRecordsRequest.DeleteRecordsTopic(name="t", partitions=[partition])
    return DeleteRecordsRequest(topics=[topic], timeout_ms=timeout_ms)


def counted(samples: Samples, name: str) -> dict[str, float]:
    """Returns a family's value for each purgatory."""
    return {kind: value(samples, name, delayedOperation=kind) for kind in ("Produce", "Fetch", "DeleteRecords")}


async def test_waiting_operations_are_listed_and_counted_in_each_purgatory_with_their_outcome() -> None:
    async with broker_with_metrics() as (broker, port):
        manager = broker.replica_manager
        purgatories = (manager.produce_purgatory, manager.fetch_purgatory, manager.delete_records_purgatory)
        async with client_of(broker) as client, client_of(broker) as second, client_of(broker) as third:
            await create(client)
            await create(client, "u", 2)
            answer = await client.call(produce("t", batch(3), acks=1), 9)
            assert answer.responses[0].partition_responses[0].error_code == 0
            hold_high_watermark(broker)
            client.send_request(produce("t", batch(1), acks=-1, timeout_ms=60_000), 9)
            second.send_request(fetch((TopicPartition("u", 0), 0), (TopicPartition("u", 1), 0), max_wait_ms=50_000), 11)
            third.send_request(delete_records(3, 40_000), 2)
            await until(lambda: all(purgatory.delayed for purgatory in purgatories))

            rows = [row for purgatory in purgatories for row in purgatory.waiting()]
            assert [type(row.operation).__name__ for row in rows] == [
                "DelayedProduce",
                "ParkedFetch",
                "DelayedDeleteRecords",
            ]
            assert [sorted(map(str, row.keys)) for row in rows] == [
                ["t-0"],
                ["u-0", "u-1"],
                ["t-0"],
            ]
            now_ms = broker.clock.now_ms()
            assert [round((row.age_ms + row.deadline_ms - now_ms) / 10_000) for row in rows] == [6, 5, 4]
            samples = samples_of((await ask(port))[2])
            assert counted(samples, f"{PURGATORY}_numdelayedoperations") == {
                "Produce": 1,
                "Fetch": 1,
                "DeleteRecords": 1,
            }
            assert counted(samples, f"{PURGATORY}_purgatorysize") == {"Produce": 1, "Fetch": 2, "DeleteRecords": 1}

            async with client_of(broker) as other:
                await other.call(produce("u", batch(1), 1, acks=1), 9)
            await second.response()
        await until(lambda: broker.timer.size == 0)

        async with client_of(broker) as client:  # the same again with short timeouts
            answer = await client.call(produce("t", batch(1), acks=-1, timeout_ms=20), 9)
            assert answer.responses[0].partition_responses[0].error_code == ErrorCode.REQUEST_TIMED_OUT
            await client.call(fetch((TopicPartition("u", 0), 0), max_wait_ms=20), 11)
            assert (await client.call(delete_records(3, 20), 2)).topics[0].partitions[0].error_code == 7
            samples = samples_of((await ask(port))[2])
        assert counted(samples, "odradek_purgatory_completed_total")["Fetch"] == 1
        assert counted(samples, "odradek_purgatory_expired_total") == {"Produce": 1, "Fetch": 1, "DeleteRecords": 1}
        assert counted(samples, f"{PURGATORY}_numdelayedoperations") == {"Produce": 0, "Fetch": 0, "DeleteRecords": 0}
        expires = "kafka_server_delayedproducemetrics_expires_total"
        assert value(samples, expires, topic="t", partition="0") == value(samples, expires) == 1
        expires = "kafka_server_delayedfetchmetrics_expires_total"
        assert value(samples, expires, fetcherType="consumer") == 1
        assert value(samples, expires, fetcherType="follower") == 0
        assert value(samples, "kafka_server_delayeddeleterecordsmetrics_expires_total") == 1
