"""What a fault does beside error codes: it waits, ends the connection, changes the answer, or answers itself."""

from __future__ import annotations

import asyncio
import threading
import time
from functools import partial
from typing import Any

import aiokafka
import pytest
from crc32c import crc32c

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.group_admin import ListGroupsRequest
from odradek.protocol.messages.list_offsets import ListOffsetsRequest
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.records import read_batch_header
from odradek.testing import (
    BrokerThread,
    NotReached,
    Request,
    UnusedFaults,
    in_process_broker,
    in_process_cluster,
)
from tests.patience import block_until, until
from tests.testing.faults.test_selected_items import end_offset, fetch, until_coordinated
from tests.wire.blocking_client import Client
from tests.wire.frames import body_of
from tests.wire.records import codes
from tests.wire.requests import join
from tests.wire.requests import produce_to as produce


def test_a_delayed_request_is_handled_later_and_in_its_turn(broker: BrokerThread, client: Client) -> None:
    broker.faults.add(api="Produce", times=1, delay=0.2)
    began = time.monotonic()
    client.send(produce({"orders": [0]}, value=b"first"), 9)
    client.send(produce({"orders": [0]}, value=b"second"), 9)
    first, second = (client.receive().responses[0].partition_responses[0].base_offset for _ in range(2))
    assert (first, second) == (0, 1)
    assert time.monotonic() - began >= 0.19


def test_a_held_request_waits_until_it_is_released_and_others_go_on(broker: BrokerThread, client: Client) -> None:
    fault = broker.faults.add(api="Produce", client_id="raw", hold=True)
    client.send(produce({"orders": [0]}), 9)
    block_until(lambda: fault.held == 1)
    with Client(broker.bootstrap, "another") as other:
        assert codes(other.ask(produce({"orders": [1]}), 9)) == {("orders", 1): 0}
        assert end_offset(other, "orders", 0) == 0, "a held request is not handled"
    fault.release()
    assert codes(client.receive()) == {("orders", 0): 0}
    assert codes(client.ask(produce({"orders": [0]}), 9)) == {("orders", 0): 0}
    assert (fault.hits, fault.held) == (2, 0), "a released fault holds no more"


def test_requests_behind_a_held_one_are_handled_if_the_order_does_not_matter(
    broker: BrokerThread, client: Client
) -> None:
    fault = broker.faults.add(api="Produce", nth=1, hold=True, in_order=False)
    client.send(produce({"orders": [0]}), 9)
    client.send(produce({"orders": [1]}), 9)
    with Client(broker.bootstrap, "another") as other:
        block_until(lambda: end_offset(other, "orders", 1) == 1)
        assert end_offset(other, "orders", 0) == 0
    fault.release()
    assert [list(codes(client.receive())) for _ in range(2)] == [[("orders", 0)], [("orders", 1)]]


def test_a_held_request_of_a_client_that_goes_away_is_never_handled(broker: BrokerThread) -> None:
    fault = broker.faults.add(api="Produce", hold=True)
    with Client(broker.bootstrap) as leaving:
        leaving.send(produce({"orders": [0]}), 9)
        block_until(lambda: fault.held == 1)
    block_until(lambda: fault.held == 0)
    fault.release()
    with Client(broker.bootstrap) as other:
        assert end_offset(other, "orders", 0) == 0


def test_a_broker_that_stops_answers_held_requests() -> None:
    with BrokerThread() as broker:
        fault = broker.faults.add(api="Metadata", hold=True)
        client = Client(broker.bootstrap)
        client.send(MetadataRequest(topics=None), 9)
        block_until(lambda: fault.held == 1)
    with client:
        assert client.receive().topics == [], "and need not wait until its patience ends"


@pytest.mark.parametrize(("when", "written"), [("before", 0), ("after", 1)])
def test_a_connection_that_ends_before_or_after_the_request_is_handled(
    broker: BrokerThread, client: Client, when: Any, written: int
) -> None:
    broker.faults.add(api="Produce", close=when)
    client.send(produce({"orders": [0]}), 9)
    with pytest.raises(ConnectionError, match="closed after 0 of 4"):
        client.raw.receive()
    with Client(broker.bootstrap) as other:
        assert end_offset(other, "orders", 0) == written


@pytest.mark.parametrize(("when", "written"), [("before", 0), ("after", 1)])
def test_an_answer_that_never_comes_while_the_connection_stays(
    broker: BrokerThread, client: Client, when: Any, written: int
) -> None:
    broker.faults.add(api="Produce", drop=when)
    client.send(produce({"orders": [0]}), 9)
    assert end_offset(client, "orders", 0) == written, "the next answer on this connection is that to the next request"


@pytest.mark.parametrize("size", [0, 3, 11])
def test_an_answer_is_cut(broker: BrokerThread, client: Client, size: int) -> None:
    broker.faults.add(api="Produce", cut=size)
    client.send(produce({"orders": [0]}), 9)
    received = b""
    while more := client.raw.socket.recv(100):
        received += more
    assert len(received) == size
    with Client(broker.bootstrap) as other:
        assert end_offset(other, "orders", 0) == 1


def test_an_answer_that_does_not_exist_is_cut_to_nothing(broker: BrokerThread, client: Client) -> None:
    fault = broker.faults.add(api="Produce", cut=10)
    client.send(produce({"orders": [0]}, acks=0), 9)
    assert client.raw.socket.recv(100) == b""
    assert fault.hits == 1


def test_a_request_is_handled_and_fails_all_the_same(broker: BrokerThread, client: Client) -> None:
    broker.faults.add(api="Produce", times=1, error="REQUEST_TIMED_OUT", handled=True)
    failed = int(ErrorCode.REQUEST_TIMED_OUT)
    assert codes(client.ask(produce({"orders": [0, 1]}), 9)) == {("orders", 0): failed, ("orders", 1): failed}
    assert [end_offset(client, "orders", partition) for partition in (0, 1)] == [1, 1]


def test_a_partition_is_written_and_fails_all_the_same(broker: BrokerThread, client: Client) -> None:
    fault = broker.faults.add(api="Produce", topic="orders", partition=1, error="REQUEST_TIMED_OUT", handled=True)
    answered = codes(client.ask(produce({"orders": [0, 1], "other": [0]}), 9))
    assert answered == {("orders", 0): 0, ("orders", 1): int(ErrorCode.REQUEST_TIMED_OUT), ("other", 0): 0}
    written = [end_offset(client, *each) for each in (("orders", 0), ("orders", 1), ("orders", 2), ("other", 0))]
    assert (written, fault.hits) == ([1, 1, 0, 1], 1)


def test_a_request_that_waits_in_the_broker_fails_when_it_is_done() -> None:
    """JoinGroup waits for the other members."""
    with BrokerThread(group_initial_rebalance_delay_ms=100) as broker, Client(broker.bootstrap) as member:
        broker.faults.add(api="JoinGroup", group="billing", error="NOT_COORDINATOR", handled=True)
        until_coordinated(broker, member)
        joined = member.ask(join("billing", ""), 3)
        assert joined.error_code == int(ErrorCode.NOT_COORDINATOR)
        listed = member.ask(ListGroupsRequest(), 2).groups
        assert [group.group_id for group in listed] == ["billing"]


def test_a_test_waits_for_the_hits_of_a_fault(broker: BrokerThread, client: Client) -> None:
    fault = broker.faults.add(api="Produce", error="REQUEST_TIMED_OUT")
    with pytest.raises(NotReached, match=r"add\(api='Produce', .*\) was hit 0 times within 0.05 s, not 1"):
        broker.wait_for_hits(fault, within=0.05)
    asking = threading.Thread(target=lambda: [client.ask(produce({"orders": [0]}), 9) for _ in range(3)])
    asking.start()
    broker.wait_for_hits(fault, 3)
    assert fault.hits == 3
    asking.join(20)
    broker.wait_for_hits(fault, 2, within=0.05)
    with pytest.raises(ValueError, match="hits=0: must be at least 1"):
        broker.wait_for_hits(fault, 0)


def test_a_client_is_throttled(broker: BrokerThread, client: Client) -> None:
    broker.faults.add(api="Produce", times=1, throttle_ms=300)
    began = time.monotonic()
    assert client.ask(produce({"orders": [0]}), 9).throttle_time_ms == 300
    assert client.ask(produce({"orders": [0]}), 9).throttle_time_ms == 0
    assert time.monotonic() - began >= 0.29, "the connection is not read meanwhile (KIP-219)"


def test_only_a_fetch_with_records_is_hit_by_corruption(broker: BrokerThread, client: Client) -> None:
    fault = broker.faults.add(api="Fetch", topic="orders", partition=1, nth=1, corrupt=True)
    client.ask(fetch("orders", [0, 1]), 12)
    assert fault.hits == 0
    client.ask(produce({"orders": [0, 1]}), 9)
    answers = [client.ask(fetch("orders", [0, 1]), 12) for _ in range(2)]
    sound = [
        [_is_sound(bytes(partition.records)) for partition in answer.responses[0].partitions] for answer in answers
    ]
    assert (sound, fault.hits) == ([[True, False], [True, True]], 1)


def _is_sound(batch: bytes) -> bool:
    return crc32c(batch[21:]) == read_batch_header(batch).crc


# Functions


def test_a_function_answers_some_requests_and_leaves_others_to_the_broker(broker: BrokerThread, client: Client) -> None:
    seen: list[Request] = []

    def respond(request: Request) -> Any:
        seen.append(request)
        return request.fail_with("REQUEST_TIMED_OUT") if len(seen) == 2 else None

    broker.faults.add(api="Produce", respond=respond)
    answered = [codes(client.ask(produce({"orders": [0]}), 9))["orders", 0] for _ in range(3)]
    assert answered == [0, int(ErrorCode.REQUEST_TIMED_OUT), 0]
    assert [(each.api, each.version, each.client_id) for each in seen] == [("Produce", 9, "raw")] * 3
    assert seen[0].body.topic_data[0].name == "orders"


def test_a_coroutine_answers_when_it_is_ready(broker: BrokerThread, client: Client) -> None:
    async def respond(request: Request) -> Any:
        await until(lambda: broker.broker.metadata.topic("created") is not None)
        return request.answer_with(throttle_time_ms=7)

    broker.faults.add(api="ListOffsets", respond=respond)
    client.send(ListOffsetsRequest(topics=[]), 7)
    with Client(broker.bootstrap, "another") as other:
        other.create("created")
    assert client.receive().throttle_time_ms == 7


def test_a_connection_error_of_a_function_ends_the_connection(broker: BrokerThread, client: Client) -> None:
    def respond(_request: Request) -> Any:
        raise ConnectionResetError

    broker.faults.add(api="Produce", respond=respond)
    client.send(produce({"orders": [0]}), 9)
    with pytest.raises(ConnectionError):
        client.raw.receive()


def test_a_function_changes_answers(broker: BrokerThread, client: Client) -> None:
    def only_old_versions(_request: Request, response: Any) -> None:
        for api in response.api_keys:
            api.max_version = min(api.max_version, 2)

    broker.faults.add(api="ApiVersions", change=only_old_versions)
    answered = client.ask(ApiVersionsRequest(client_software_name="raw", client_software_version="1"), 3)
    assert answered.api_keys
    assert max(api.max_version for api in answered.api_keys) == 2


def test_the_failure_of_a_function_ends_the_connection_and_fails_the_test() -> None:
    def respond(_request: Request) -> Any:
        raise LookupError("no such order")

    def use_a_broker() -> None:
        with BrokerThread() as broker, Client(broker.bootstrap) as client:
            broker.faults.add(api="Metadata", respond=respond)
            client.send(MetadataRequest(topics=None), 9)
            with pytest.raises(ConnectionError):
                client.raw.receive()

    with pytest.raises(UnusedFaults, match="no such order"):
        use_a_broker()


@pytest.mark.parametrize("argument", ["respond", "coroutine", "change"])
def test_what_is_no_response_of_the_api_ends_the_connection_and_fails_the_test(argument: str) -> None:
    def respond(_request: Request) -> Any:
        return ListOffsetsRequest()

    async def coroutine(request: Request) -> Any:
        return respond(request)

    def change(_request: Request, response: Any) -> None:
        response.controller_id = "one"

    functions = {"respond": respond, "coroutine": coroutine, "change": change}
    name = "respond" if argument == "coroutine" else argument

    def use_a_broker() -> None:
        with BrokerThread() as broker, Client(broker.bootstrap) as client:
            broker.faults.add(api="Metadata", **{name: functions[argument]})  # type: ignore[arg-type]
            client.send(MetadataRequest(topics=None), 9)
            with pytest.raises(ConnectionError):
                client.raw.receive()

    with pytest.raises(UnusedFaults, match="the function of"):
        use_a_broker()


def test_an_unsupported_version_of_api_versions_is_answered_in_version_0(broker: BrokerThread, client: Client) -> None:
    broker.faults.add(api="ApiVersions", times=1, error="UNSUPPORTED_VERSION")
    client.send(ApiVersionsRequest(client_software_name="raw", client_software_version="1"), 3)
    answered = body_of(client.raw.receive(), ApiKey.API_VERSIONS, 0)
    assert answered.error_code == int(ErrorCode.UNSUPPORTED_VERSION)
    assert [(api.api_key, api.max_version) for api in answered.api_keys] == [(18, 5)]


async def test_a_login_fails_and_then_succeeds_and_cannot_be_delayed() -> None:
    async with in_process_broker(security="SASL_PLAINTEXT") as broker:
        fault = broker.faults.add(api="SaslAuthenticate", nth=1, error="SASL_AUTHENTICATION_FAILED")
        broker.faults.add(delay=0.01)
        refused = aiokafka.AIOKafkaProducer(**broker.client_settings("aiokafka"))
        with pytest.raises(aiokafka.errors.KafkaError):
            await refused.start()
        await refused.stop()
        assert fault.hits == 1
        async with aiokafka.AIOKafkaProducer(**broker.client_settings("aiokafka")) as producer:
            assert (await producer.send_and_wait("orders", b"an order")).offset == 0


# Clusters


@pytest.mark.timeout(60)
async def test_one_broker_of_a_cluster_fails_requests() -> None:
    async with in_process_cluster(brokers=2) as cluster:
        fault = cluster.faults.add(api="Metadata", broker=2, client_id="raw", error="LEADER_NOT_AVAILABLE")
        await cluster.create_topic("orders")

        def ask(broker_id: int) -> int:
            with Client(cluster.bootstrap_of(broker_id)) as client:
                return int(client.ask(MetadataRequest(topics=None), 9).topics[0].error_code)

        assert [await asyncio.to_thread(ask, broker_id) for broker_id in (1, 2)] == [0, 5]
        assert fault.hits == 1
        await cluster.restart(2)
        await cluster.wait_until_stable()
        assert await asyncio.to_thread(ask, 2) == 5, "a broker that starts again has the faults, too"


@pytest.mark.timeout(60)
async def test_followers_fetch_nothing_while_their_fetches_are_held() -> None:
    async with in_process_cluster(brokers=2) as cluster:
        await cluster.create_topic("orders", replication_factor=2)
        leader = await cluster.wait_for_leader("orders", 0)
        fault = cluster.faults.add(api="Fetch", topic="orders", broker=leader, hold=True)
        await until(lambda: fault.held)

        def write() -> None:
            with Client(cluster.bootstrap_of(leader)) as client:
                assert codes(client.ask(produce({"orders": [0]}, acks=1), 9)) == {("orders", 0): 0}

        await asyncio.to_thread(write)
        await cluster.wait_for_isr("orders", 0, {leader})
        fault.remove()
        await cluster.wait_for_isr("orders", 0, {1, 2})


def test_faults_may_be_added_and_removed_from_any_thread_under_load(broker: BrokerThread, client: Client) -> None:
    stop = threading.Event()
    answered: list[int] = []

    def load() -> None:
        while not stop.is_set():
            answered.append(codes(client.ask(produce({"orders": [0]}), 9))["orders", 0])

    worker = threading.Thread(target=load)
    worker.start()
    try:
        for _ in range(50):
            fault = broker.faults.add(api="Produce", error="REQUEST_TIMED_OUT")
            block_until(partial(getattr, fault, "hits"))
            fault.remove()
        last = len(answered)
        block_until(lambda: len(answered) > last + 2)
    finally:
        stop.set()
        worker.join()
    assert set(answered) == {0, int(ErrorCode.REQUEST_TIMED_OUT)}
    assert answered[-1] == 0
