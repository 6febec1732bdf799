"""The package's tools for other projects' tests: brokers that leave nothing behind, a plugin without side effects."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import kafka
import pytest
import structlog

from odradek.testing import BrokerThread, in_process_broker
from tests.patience import PATIENCE_S
from tests.testing.leftovers import left_behind

OTHER_PROJECTS_TESTS = """
import asyncio
import sys
import threading

from kafka import KafkaConsumer, KafkaProducer, TopicPartition


def test_without_the_fixture_nothing_of_the_broker_is_imported():
    ours = [name for name in sys.modules if name.partition(".")[0] == "odradek"]
    assert set(ours) <= {"odradek", "odradek.pytest_plugin"}, ours
    assert "uvloop" not in sys.modules


def test_a_blocking_client_talks_to_the_broker(odradek_broker):
    producer = KafkaProducer(bootstrap_servers=odradek_broker.bootstrap)
    assert producer.send("topic", b"value").get(timeout=60).offset == 0
    producer.close()
    consumer = KafkaConsumer(bootstrap_servers=odradek_broker.bootstrap)
    partition = TopicPartition("topic", 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    assert [message.value for message in consumer.poll(20_000)[partition]] == [b"value"]
    consumer.close()


def test_the_next_test_gets_a_new_broker(odradek_broker):
    consumer = KafkaConsumer(bootstrap_servers=odradek_broker.bootstrap)
    assert consumer.topics() == set()
    consumer.close()


def test_a_cluster_goes_on_without_a_broker(odradek_cluster):
    odradek_cluster.create_topic("topic")
    producer = KafkaProducer(bootstrap_servers=odradek_cluster.bootstrap, acks="all")
    assert producer.send("topic", b"first").get(timeout=60).offset == 0
    odradek_cluster.kill(odradek_cluster.leader("topic", 0))
    assert producer.send("topic", b"second").get(timeout=60).offset == 1
    producer.close()


def test_no_broker_thread_is_left():
    for thread in threading.enumerate():
        if "odradek" in thread.name:  # nobody has waited for those of a killed broker
            thread.join(20)
            assert not thread.is_alive(), thread.name


async def test_a_coroutine_test_is_left_to_other_plugins():
    raise AssertionError("the plugin must not run coroutines")
"""


def use(bootstrap_servers: str, **security: Any) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap_servers, **security)
    producer.send("topic", b"value").get(timeout=PATIENCE_S)
    producer.close()
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap_servers, **security)
    partition = kafka.TopicPartition("topic", 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    assert consumer.poll(20_000)
    consumer.close()


@pytest.mark.usefixtures("isolated")
@pytest.mark.parametrize("security", ["PLAINTEXT", "SASL_SSL"])
async def test_an_in_process_broker_leaves_no_file_socket_thread_task_or_directory_behind(security: str) -> None:
    async def one() -> None:
        async with in_process_broker(security=security) as broker:
            await asyncio.to_thread(use, **broker.client_settings("kafka-python"))

    await one()  # the first broker leaves threads of the executor and imported modules for the next: not a leak
    before, tasks = left_behind(), asyncio.all_tasks()
    await one()
    assert left_behind() == before
    assert asyncio.all_tasks() == tasks


async def test_only_data_that_is_kept_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[object] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    async with in_process_broker() as broker:
        await broker.seed({"orders": [b"value"]})
        await broker.reset()
    assert not synced
    async with in_process_broker(data_dir=tmp_path):
        assert synced


@pytest.mark.usefixtures("isolated")
def test_a_broker_in_a_thread_leaves_no_file_socket_thread_or_directory_behind() -> None:
    def one() -> None:
        with BrokerThread() as running:
            use(running.bootstrap)

    one()
    before = left_behind()
    one()
    assert left_behind() == before


def test_the_programs_logging_is_restored_after_the_last_broker(capsys: pytest.CaptureFixture[str]) -> None:
    before, was_configured = structlog.get_config(), structlog.is_configured()
    structlog.reset_defaults()
    try:
        with BrokerThread() as first:
            with BrokerThread():
                pass
            assert structlog.is_configured(), "the first broker still runs"
            use(first.bootstrap)
        assert not structlog.is_configured()
        assert capsys.readouterr().out == ""
        mine = structlog.make_filtering_bound_logger(40)
        structlog.configure(wrapper_class=mine)
        with BrokerThread():
            pass
        assert structlog.get_config()["wrapper_class"] is mine
    finally:
        structlog.reset_defaults()
        if was_configured:
            structlog.configure(**before)


def test_the_plugin_provides_its_fixtures_to_another_project_and_changes_nothing_else(tmp_path: Path) -> None:
    """A separate project whose pytest has no asyncio mode and treats warnings as errors."""
    (tmp_path / "test_theirs.py").write_text(OTHER_PROJECTS_TESTS)
    kafka_python_s = "ignore:(read|open)_text is deprecated:DeprecationWarning"
    (tmp_path / "pytest.ini").write_text(f"[pytest]\nfilterwarnings =\n  error\n  {kafka_python_s}\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio", "-p", "no:timeout"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "ODRADEK"))}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    output = done.stdout + done.stderr
    assert "1 failed, 5 passed" in output, output
    assert "async def functions are not natively supported" in output


def test_the_plugin_imports_nothing_of_the_broker() -> None:
    code = (
        "import sys; import odradek.pytest_plugin\n"
        "print(*sorted(name for name in sys.modules if name.startswith('odradek')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert done.stdout == "odradek odradek.pytest_plugin\n"
