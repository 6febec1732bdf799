"""Calls that are not there are errors that name the right ones; and the argument `port`."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pytest

from odradek.broker.start_error import StartError
from odradek.testing import BrokerThread, ClusterThread, in_process_broker, in_process_cluster

ASYNCHRONOUS: dict[Callable[..., Any], str] = {in_process_broker: "BrokerThread", in_process_cluster: "ClusterThread"}
BLOCKING: dict[Callable[..., Any], str] = {BrokerThread: "in_process_broker", ClusterThread: "in_process_cluster"}


@pytest.mark.parametrize("opened", ASYNCHRONOUS)
async def test_an_asynchronous_broker_without_async_is_an_error_that_names_both_ways(opened: Any) -> None:
    name, blocking = opened.__name__, ASYNCHRONOUS[opened]
    both = rf"`async with {name}\(\.\.\.\) as x`; for blocking clients: `with {blocking}\(\.\.\.\) as x`"
    with pytest.raises(TypeError, match=both), opened():
        pass
    with pytest.raises(TypeError, match=both):
        await opened()
    with pytest.raises(AttributeError, match=rf"bootstrap: nothing was started yet.*{both}"):
        print(opened().bootstrap)


@pytest.mark.parametrize("opened", BLOCKING)
async def test_a_blocking_broker_with_async_is_an_error_that_names_both_ways(opened: Any) -> None:
    name, asynchronous = opened.__name__, BLOCKING[opened]
    both = rf"`with {name}\(\.\.\.\) as x`; in an asynchronous test: `async with {asynchronous}\(\.\.\.\)`"
    with pytest.raises(TypeError, match=both):
        async with opened():
            pass


async def test_the_way_in_is_a_decorator_too() -> None:
    @in_process_broker(num_partitions=2)
    async def decorated(found: int) -> int:
        return found + 1

    assert await decorated(1) == 2


def test_a_name_of_another_kind_is_an_error_that_says_which_one_has_it() -> None:
    with BrokerThread() as broker:
        for wrong, right in (
            (lambda it: it.kill(1), "BrokerThread has no kill; ClusterThread has it"),
            (lambda it: it.snapshots(), r"BrokerThread has no snapshots; did you mean snapshot\?"),
            (
                lambda it: it.metadata,
                r"BrokerThread has no metadata; its \.broker has it, whose methods run with \.call",
            ),
            (lambda it: it.broker.move_leader("orders", 0, 1), "InProcessBroker has no move_leader; Cluster has it"),
        ):
            with pytest.raises(AttributeError, match=right):
                wrong(broker)
    thread = ClusterThread()
    with pytest.raises(AttributeError, match="ClusterThread has no reset; BrokerThread has it"):
        thread.reset()  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=r"no partition; its \.cluster has it, whose methods run with \.run"):
        thread.partition("orders", 0)  # type: ignore[attr-defined]
    assert not hasattr(thread, "_no_such")


async def test_settings_in_the_place_of_the_number_of_brokers_are_an_error() -> None:
    with pytest.raises(TypeError, match=r"brokers is a number, not .*; settings come second, or as settings="):
        async with in_process_cluster({"num.partitions": 4}):  # type: ignore[arg-type]
            pass
    with pytest.raises(TypeError, match="settings are a dict of names and values, or keyword arguments, not 3"):
        async with in_process_broker(3):  # type: ignore[arg-type]
            pass


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        return int(reserved.getsockname()[1])


def test_a_broker_listens_on_the_port_that_it_is_given() -> None:
    port = free_port()
    for security in ("PLAINTEXT", "SASL_PLAINTEXT"):
        with BrokerThread(port=port, security=security) as broker:
            assert broker.bootstrap == f"127.0.0.1:{port}"
            with pytest.raises(StartError, match=f"port {port} is already in use"):
                BrokerThread(port=port).start()
    with BrokerThread(port=0) as first, BrokerThread(port=0) as second:
        assert first.bootstrap != second.bootstrap


@pytest.mark.odradek_broker(port=0)
def test_the_mark_of_the_fixture_takes_a_port(odradek_broker: BrokerThread) -> None:
    assert not odradek_broker.bootstrap.endswith(":0")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"port": 9092, "listeners": "PLAINTEXT://127.0.0.1:9093"}, "port and listeners both say where"),
        ({"port": 0, "settings": {"listeners": "PLAINTEXT://127.0.0.1:9093"}}, "port and listeners both say where"),
        ({"port": -1}, "port=-1: must be 0, for a free port, to 65535"),
        ({"port": 65536}, "port=65536: must be 0"),
    ],
)
async def test_an_impossible_port_is_an_error(arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        async with in_process_broker(**arguments):
            pass


async def test_a_cluster_takes_no_port() -> None:
    with pytest.raises(ValueError, match="port is for single brokers: a cluster takes none"):
        async with in_process_cluster(port=9092):
            pass
