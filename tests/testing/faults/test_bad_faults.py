"""A fault that makes no sense is one clear error, and one that was never hit fails the test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.schema import ZERO_UUID
from odradek.testing import (
    BrokerThread,
    ClusterThread,
    Faults,
    Request,
    UnusedFaults,
    in_process_broker,
    in_process_cluster,
)
from tests.memory_files import ForgetfulFiles
from tests.wire.blocking_client import Client


async def decides_later(_request: Request) -> bool:
    return True


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"api": "Produc", "error": "REQUEST_TIMED_OUT"}, "there is no API 'Produc'; did you mean Produce"),
    ({"api": "produce", "delay": 1}, "there is no API 'produce'; did you mean Produce"),
    ({"api": "xyz", "delay": 1}, "there is no API 'xyz'$"),
    ({"error": "NOT_LEADER"}, "there is no error code 'NOT_LEADER'; did you mean .*NOT_LEADER_OR_FOLLOWER"),
    ({"error": 9999}, "there is no error code 9999"),
    ({"error": "NONE"}, "NONE is no error"),
    ({"api": "Produce"}, "the fault does nothing"),
    ({"error": "REQUEST_TIMED_OUT", "close": "before"}, "error and close: a fault does one of these"),
    ({"delay": 1, "hold": True}, "hold and delay: a fault does one of both"),
    ({"delay": 0}, "delay=0: must be above 0 seconds"),
    ({"delay": float("nan")}, "delay=nan: must be above 0 seconds"),
    ({"delay": 1e300}, "delay=1e.300: must be .* at most a day"),
    ({"throttle_ms": 1 << 40}, "throttle_ms=1099511627776: must be at most a day"),
    ({"error": True}, "there is no error code True"),
    ({"nth": 0, "delay": 1}, "nth=0: must be at least 1"),
    ({"times": -1, "delay": 1}, "times=-1: must be at least 1"),
    ({"cut": -1}, "cut=-1: must be at least 0"),
    ({"partition": 1, "delay": 1}, "a partition is selected together with its topic"),
    ({"topic_id": "no uuid", "delay": 1}, "badly formed"),
    ({"close": "now"}, "close='now': must be 'before' or 'after'"),
    ({"drop": True}, "drop=True: must be 'before' or 'after'"),
    ({"corrupt": True}, 'corrupt goes with api="Fetch"'),
    ({"api": "SaslAuthenticate", "hold": True}, "a login is a dialogue"),
    ({"api": "SaslHandshake", "throttle_ms": 1}, "the responses of SaslHandshake have no throttle_time_ms"),
    ({"error_message": "text", "delay": 1}, "error_message goes with error"),
    ({"disk": "broken"}, "there is no fault of disks 'broken'"),
    ({"disk": "full", "api": "Produce"}, "selects by topic, partition, path and broker, not by api"),
    ({"disk": "slow sync"}, "delay or hold go with disk='slow sync'"),
    ({"disk": "full", "delay": 1}, "delay or hold go with disk='slow sync'"),
    ({"path": "orders-0/*", "delay": 1}, "path and after_bytes are for faults of disks"),
    ({"disk": "fail sync", "after_bytes": 10}, "after_bytes goes with disk='full'"),
    ({"disk": "slow sync", "hold": True, "in_order": False}, "in_order is for faults of requests"),
    ({"disk": "full", "error_message": "text"}, "error_message is for faults of requests"),
    ({"error": "REQUEST_TIMED_OUT", "in_order": False}, "in_order=False goes with delay, hold or respond"),
    ({"close": "before", "handled": True}, "handled goes with error"),
    ({"topic": "", "delay": 1}, "topic is empty: leave it out to select any"),
    ({"group": "", "delay": 1}, "group is empty: leave it out"),
    ({"topic": "orders", "partition": -1, "delay": 1}, "partition=-1: must be at least 0"),
    ({"api": "Heartbeat", "topic": "orders", "delay": 1}, "requests of Heartbeat name no topic; .* by group$"),
    ({"api": "Produce", "group": "billing", "delay": 1}, "requests of Produce name no group; .* by topic, "),
    ({"api": "ApiVersions", "topic": "orders", "delay": 1}, "requests of ApiVersions name no topic$"),
    ({"api": "ListOffsets", "topic_id": ZERO_UUID, "delay": 1}, "requests of ListOffsets name no topic_id"),
    (
        {"api": "DeleteTopics", "topic": "orders", "partition": 0, "delay": 1},
        "requests of DeleteTopics name no partition",
    ),
    ({"when": decides_later, "delay": 1}, "when is a coroutine function: it must decide at once"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG)
def test_an_impossible_fault_is_refused_and_not_added(arguments: dict[str, Any], message: str) -> None:
    faults = Faults()
    with pytest.raises(ValueError, match=message):
        faults.add(**arguments)
    assert faults.all() == []
    assert (faults.of_requests, faults.of_disks) == ((), ())


def test_an_unknown_argument_names_those_that_are_similar() -> None:
    with pytest.raises(TypeError, match="there is no argument 'eror'; did you mean error"):
        Faults().add(api="Produce", eror="REQUEST_TIMED_OUT")  # type: ignore[call-arg]


async def test_a_disk_of_the_test_s_own_has_no_faults() -> None:
    async with in_process_broker(files=ForgetfulFiles(), data_dir="/data") as broker:
        with pytest.raises(ValueError, match="was passed in as `files`"):
            broker.faults.add(disk="full")


async def test_a_broker_that_is_not_there_is_refused() -> None:
    async with in_process_cluster(brokers=2) as cluster:
        with pytest.raises(ValueError, match="there is no broker 3; there is 1, 2"):
            cluster.faults.add(broker=3, delay=1)
        with pytest.raises(ValueError, match="there is no broker 0; there is 1, 2"):
            await cluster.request(broker=0)


# Unused faults


async def test_a_fault_that_was_never_hit_fails_the_test() -> None:
    with pytest.raises(UnusedFaults, match=r"add\(api='Produce', error='REQUEST_TIMED_OUT'\) was never hit"):
        async with in_process_broker() as broker:
            broker.faults.add(api="Produce", error="REQUEST_TIMED_OUT")


async def test_an_optional_a_removed_and_a_hit_fault_do_not() -> None:
    async with in_process_broker() as broker:
        broker.faults.add(api="Produce", error="REQUEST_TIMED_OUT", optional=True)
        broker.faults.add(api="Produce", error="REQUEST_TIMED_OUT").remove()
        broker.faults.clear()


async def test_the_failure_of_the_test_itself_comes_before_unused_faults() -> None:
    with pytest.raises(LookupError):  # noqa: PT012
        async with in_process_broker() as broker:
            broker.faults.add(api="Produce", error="REQUEST_TIMED_OUT")
            raise LookupError
    with pytest.raises(LookupError), BrokerThread() as running:  # noqa: PT012
        running.faults.add(api="Produce", error="REQUEST_TIMED_OUT")
        raise LookupError


def test_an_unused_fault_fails_the_test_of_a_blocking_client() -> None:
    with pytest.raises(UnusedFaults), BrokerThread() as broker:
        broker.faults.add(api="Produce", error="REQUEST_TIMED_OUT")


@pytest.mark.timeout(60)
async def test_an_unused_fault_of_a_cluster_fails_the_test() -> None:
    with pytest.raises(UnusedFaults):
        async with in_process_cluster(brokers=1) as cluster:
            cluster.faults.add(api="Produce", broker=1, error="REQUEST_TIMED_OUT")
    with pytest.raises(UnusedFaults), ClusterThread(brokers=1) as threaded:
        threaded.faults.add(api="Produce", error="REQUEST_TIMED_OUT")


PLUGIN_TESTS = """
def test_passes_but_for_its_fault(odradek_broker):
    odradek_broker.faults.add(api="Produce", error="REQUEST_TIMED_OUT")


def test_passes(odradek_broker):
    odradek_broker.faults.add(api="Produce", error="REQUEST_TIMED_OUT", optional=True)


def test_fails_before_its_fault(odradek_broker):
    odradek_broker.faults.add(api="Produce", error="REQUEST_TIMED_OUT")
    assert False


def test_fails_with_the_broker_of_the_session(odradek_session_broker):
    odradek_session_broker.faults.add(api="Produce", error="REQUEST_TIMED_OUT")
    assert False
"""


def test_the_fixture_reports_unused_faults(tmp_path: Path) -> None:
    (tmp_path / "test_theirs.py").write_text(PLUGIN_TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio", "-p", "no:timeout"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert "2 failed, 2 passed, 1 error" in done.stdout, done.stdout + done.stderr
    assert "UnusedFaults: add(api='Produce', error='REQUEST_TIMED_OUT') was never hit" in done.stdout


def test_a_broker_without_faults_has_its_own_dispatch() -> None:
    """What is not switched on is not on the path: `odradek serve` passes nothing."""
    from odradek.broker.server import Broker
    from odradek.broker.settings.config import BrokerConfig

    served = Broker(BrokerConfig.single_node({}))
    assert served._wrap_dispatch is None


def test_a_request_is_not_decoded_while_there_are_no_faults(broker: BrokerThread, client: Client) -> None:
    client.ask(MetadataRequest(topics=None), 9)
    assert not broker.broker.faults.journal.is_on
    assert len(broker.broker.faults.journal) == 0
