"""The fixture `odradek_session_broker`, in another project's tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CONFTEST = """
import pytest

from odradek.testing import BrokerThread

resets = []
reset = BrokerThread.reset


def counted(self):
    resets.append(self)
    reset(self)


BrokerThread.reset = counted


@pytest.fixture
def counted_resets():
    return resets


@pytest.fixture(scope="session")
def odradek_session_broker_arguments():
    return {"num_partitions": 3}
"""

TESTS = """
import pytest
from kafka import KafkaProducer

addresses = set()


def use(broker):
    addresses.add(broker.bootstrap)
    assert broker.broker.metadata.topic_count == 0
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    assert producer.send("orders", b"value").get(timeout=60).offset == 0
    producer.close()
    assert len(broker.broker.metadata.topic("orders").partitions) == 3


def test_the_first_test_needs_no_reset(odradek_session_broker, counted_resets):
    use(odradek_session_broker)
    assert len(counted_resets) == 0


def test_without_the_fixture_nothing_is_reset(counted_resets):
    assert len(counted_resets) == 0


@pytest.mark.parametrize("number", [1, 2])
def test_others_find_the_broker_as_at_its_start(odradek_session_broker, counted_resets, number):
    use(odradek_session_broker)
    assert len(counted_resets) == number


def test_all_of_them_had_the_same_address(odradek_session_broker):
    assert addresses == {odradek_session_broker.bootstrap}
"""


def test_tests_share_a_broker_that_is_reset_between_those_that_use_it(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_service.py").write_text(TESTS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--strict-markers"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "5 passed" in done.stdout, done.stdout + done.stderr


def test_a_fault_that_a_test_has_left_unused_is_an_error_of_that_test_only(tmp_path: Path) -> None:
    (tmp_path / "test_service.py").write_text(
        """
def test_forgets_a_fault(odradek_session_broker):
    odradek_session_broker.faults.add(api="Produce", error="NOT_LEADER_OR_FOLLOWER")


def test_finds_none(odradek_session_broker):
    assert odradek_session_broker.faults.all() == []


def test_reads_the_journal(odradek_session_broker):
    assert len(odradek_session_broker.requests) == 0


def test_finds_the_journal_off(odradek_session_broker):
    assert not odradek_session_broker.faults.journal.is_on
"""
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "4 passed, 1 error" in done.stdout, done.stdout + done.stderr
    assert "ERROR test_service.py::test_forgets_a_fault - odradek" in done.stdout
