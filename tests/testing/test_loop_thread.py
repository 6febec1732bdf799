"""A broker in a thread: what is called before its start, after its end, or in the thread itself is one clear error."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import structlog
from aiokafka import AIOKafkaProducer

from odradek.protocol.messages.metadata import MetadataRequest
from odradek.testing import (
    BrokerThread,
    CannotAdvance,
    Cluster,
    ClusterThread,
    UnusedFaults,
    in_process_broker,
    still_loops,
)
from tests.patience import block_until
from tests.wire.blocking_client import Client

CALLS: dict[str, Callable[[BrokerThread], Any]] = {
    "request": lambda broker: broker.request(api="Produce"),
    "snapshot": lambda broker: broker.snapshot(),
    "reset": lambda broker: broker.reset(),
    "seed": lambda broker: broker.seed({"orders": [b"an order"]}),
    "advance": lambda broker: broker.advance(1),
    "advance_until": lambda broker: broker.advance_until(lambda: True),
    "call": lambda broker: broker.call(asyncio.sleep(0)),
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_broker_that_was_not_started_says_so(call: Callable[[BrokerThread], Any]) -> None:
    with pytest.raises(RuntimeError, match="odradek-broker was not started: use it in a `with` statement, or start it"):
        call(BrokerThread(time="virtual"))


@pytest.mark.timeout(60)
def test_what_is_read_before_the_start_is_the_same_error() -> None:
    for read in (lambda: BrokerThread().bootstrap, lambda: BrokerThread().faults, lambda: ClusterThread().bootstrap):
        with pytest.raises(RuntimeError, match="was not started"):
            read()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_broker_that_was_stopped_says_so(call: Callable[[BrokerThread], Any]) -> None:
    with BrokerThread(time="virtual") as broker:
        pass
    with pytest.raises(RuntimeError, match="odradek-broker has ended"):
        call(broker)
    assert broker.bootstrap


@pytest.mark.timeout(60)
def test_a_function_of_a_fault_that_calls_the_broker_does_not_hang() -> None:
    def waits(_request: Any) -> bool:
        broker.request(api="Produce")
        return True

    with BrokerThread() as broker, Client(broker.bootstrap) as client:
        broker.faults.add(api="Metadata", when=waits, delay=1, optional=True)
        with pytest.raises(ConnectionError):
            client.ask(MetadataRequest(topics=None), 9)
        with pytest.raises(UnusedFaults, match="odradek-broker is called from its own thread"):
            broker.faults.check()
        broker.faults.clear()


@pytest.mark.timeout(60)
def test_a_call_that_the_end_overtakes_does_not_hang() -> None:
    outcomes: list[BaseException] = []
    broker = BrokerThread()
    broker.start()

    def wait() -> None:
        try:
            broker.request(api="Produce", within=600)
        except BaseException as error:
            outcomes.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    broker.stop()
    waiting.join(30)
    assert len(outcomes) == 1


@pytest.mark.timeout(60)
def test_a_condition_of_a_blocking_wait_is_no_coroutine_function() -> None:
    async def never() -> bool:
        return False

    with BrokerThread(time="virtual") as broker, pytest.raises(TypeError, match="never is a coroutine function"):
        broker.advance_until(never, within=5)
    with ClusterThread(brokers=1, time="virtual") as cluster:
        with pytest.raises(TypeError, match="never is a coroutine function"):
            cluster.advance_until(never, within=5)
        with pytest.raises(TypeError, match="never is a coroutine function"):
            cluster.wait_until(never)


@pytest.mark.parametrize("time", ["wall", "virtual"])
def test_a_broker_of_another_event_loop_says_so(time: str) -> None:
    """As with a fixture of the session and a test that has a loop of its own."""
    with asyncio.Runner() as session, asyncio.Runner() as other:
        opened = in_process_broker(time=time)
        broker = session.run(opened.__aenter__())
        for calls in (broker.snapshot, broker.reset, partial(broker.seed, {"orders": [b"an order"]})):
            with pytest.raises(RuntimeError, match="the broker runs on another event loop: give its fixture and the t"):
                other.run(asyncio.wait_for(calls(), 20))
        session.run(broker.seed({"orders": [b"an order"]}))
        session.run(broker.reset())
        session.run(opened.__aexit__(None, None, None))


def test_a_broker_is_started_once_and_may_be_stopped_before() -> None:
    broker = BrokerThread()
    broker.stop()
    with broker, pytest.raises(RuntimeError, match="odradek-broker was started before: make a new one"):
        broker.start()


def test_what_the_documentation_says_of_other_loops_holds_while_the_brokers_loop_runs_in_a_thread() -> None:
    async def on_another_loop(thread: BrokerThread) -> None:
        broker = thread.broker
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
            await producer.send_and_wait("orders", b"an order")
        await broker.seed({"orders": [b"one more"]})
        fault = broker.faults.add(api="Produce", delay=0.001)
        await broker.seed({"orders": [b"one more"]})
        await broker.wait_for_hits(fault)
        assert (await broker.request(api="Produce")).api == "Produce"
        for call in (broker.snapshot, broker.reset):
            with pytest.raises(RuntimeError, match="the broker runs on another event loop"):
                await call()
        with pytest.raises(CannotAdvance, match="use the methods of the thread"):
            await broker.advance(1)

    with BrokerThread(time="virtual", journal=True) as thread:
        asyncio.run(on_another_loop(thread))


def test_a_cluster_of_another_loop_says_so_and_goes_on() -> None:
    async def on_another_loop(cluster: Cluster) -> None:
        for call in (
            cluster.snapshot,
            partial(cluster.stop, 1),
            partial(cluster.restart, 1),
            partial(cluster.run, 1, asyncio.sleep(0)),
        ):
            with pytest.raises(RuntimeError, match=r"the broker runs on another event loop: .* or ClusterThread"):
                await call()

    with ClusterThread(brokers=2) as thread:
        asyncio.run(on_another_loop(thread.cluster))
        assert thread.running == [1, 2]
        thread.restart(1)


def test_a_broker_whose_loop_nobody_runs_is_named_while_a_client_connects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(still_loops, "LOOK_S", 0.02)
    monkeypatch.setattr(still_loops, "STILL_S", 0.1)
    with asyncio.Runner() as session, structlog.testing.capture_logs() as events:
        opened = in_process_broker()
        broker = session.run(opened.__aenter__())
        host, port = broker.bootstrap.split(":")
        with socket.create_connection((host, int(port))):
            block_until(lambda: [each for each in events if each["event"].startswith("event loop stands still")])
        session.run(opened.__aexit__(None, None, None))
    (said,) = (each for each in events if each["event"].startswith("event loop stands still"))
    assert said["at"] == "no line: nobody runs it"
    assert "give its fixture and the test the same loop scope" in said["advice"]
